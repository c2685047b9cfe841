"""How often openai-python tries when the server is full, and what it gets in the end."""

import asyncio
from typing import Any

import openai
from cases import BASE_URL, MODEL, QUESTION, case, report

CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": QUESTION}],
    "temperature": 0,
    "max_tokens": 8,
}
OPTIONS: dict[str, Any] = {"base_url": f"{BASE_URL}/v1", "api_key": "none", "max_retries": 8, "timeout": 60}


@case
async def retried() -> list[dict[str, Any]]:
    """Both clients at once meet the full server."""
    return await asyncio.gather(asyncio.to_thread(_sync), _async())


def _sync() -> dict[str, Any]:
    answer = openai.OpenAI(**OPTIONS).chat.completions.with_raw_response.create(**CHAT)
    return {"retries": answer.retries_taken, "text": answer.parse().choices[0].message.content}


async def _async() -> dict[str, Any]:
    async with openai.AsyncOpenAI(**OPTIONS) as made:
        answer = await made.chat.completions.with_raw_response.create(**CHAT)
    return {"retries": answer.retries_taken, "text": answer.parse().choices[0].message.content}


report()
