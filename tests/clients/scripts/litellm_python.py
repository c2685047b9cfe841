"""litellm, which maps answers and errors of ours to its own."""

from importlib.metadata import version as installed
from typing import Any

import litellm
from cases import BASE_URL, MODEL, QUESTION, WEATHER_SCHEMA, case, report

litellm.telemetry = False
litellm.suppress_debug_info = True

OPTIONS: dict[str, Any] = {"api_base": f"{BASE_URL}/v1", "api_key": "none", "temperature": 0, "timeout": 60}
CHAT: dict[str, Any] = {
    **OPTIONS,
    "model": f"openai/{MODEL}",
    "messages": [{"role": "user", "content": QUESTION}],
    "max_tokens": 64,
    "num_retries": 0,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER_SCHEMA},
    }
]


@case
def version() -> str:
    return installed("litellm")


@case
def chat() -> dict[str, Any]:
    whole = litellm.completion(**CHAT, user="someone", metadata={"trace": "1"})
    chunks = list(litellm.completion(**CHAT, stream=True, stream_options={"include_usage": True}))
    rebuilt = litellm.stream_chunk_builder(chunks)
    return {
        "text": whole.choices[0].message.content,
        "finish": whole.choices[0].finish_reason,
        "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
        "streamed": rebuilt.choices[0].message.content,
        "streamed_finish": rebuilt.choices[0].finish_reason,
        "streamed_usage": [rebuilt.usage.prompt_tokens, rebuilt.usage.completion_tokens],
    }


@case
async def chat_async() -> dict[str, Any]:
    whole = await litellm.acompletion(**CHAT)
    stream = await litellm.acompletion(**CHAT, stream=True)
    streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    return {"text": whole.choices[0].message.content, "streamed": streamed}


@case
def completion() -> dict[str, Any]:
    fields: dict[str, Any] = {
        **OPTIONS,
        "model": f"text-completion-openai/{MODEL}",
        "prompt": "The capital of France is",
        "max_tokens": 12,
    }
    whole = litellm.text_completion(**fields)
    streamed = litellm.text_completion(**fields, stream=True)
    return {"text": whole.choices[0].text, "streamed": "".join(chunk.choices[0].text or "" for chunk in streamed)}


@case
def tools() -> list[Any]:
    message = litellm.completion(**CHAT, tools=TOOLS, tool_choice="required").choices[0].message
    return [[bool(call.id), call.function.name, call.function.arguments] for call in message.tool_calls or []]


@case
def response() -> dict[str, Any]:
    answer = litellm.responses(**OPTIONS, model=f"openai/{MODEL}", input=QUESTION, max_output_tokens=64)
    return {"text": answer.output_text, "status": answer.status}


@case
def errors() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, fields in {"model": {"model": "openai/another"}, "temperature": {"temperature": 3}}.items():
        try:
            litellm.completion(**{**CHAT, **fields})
        except Exception as error:
            seen[name] = type(error).__name__
    return seen


report()
