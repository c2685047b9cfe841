"""Request bodies that are the same in every run, and among which no two share more than the template's prefix."""

import random
from collections.abc import Callable

import orjson

WORDS = [
    "river",
    "stone",
    "winter",
    "market",
    "signal",
    "garden",
    "engine",
    "letter",
    "harbour",
    "window",
    "copper",
    "meadow",
    "lantern",
    "forest",
    "ticket",
    "puzzle",
]


def prompt(number: int, words: int) -> str:
    rng = random.Random(number)
    return f"Tell a story, number {number}, with these words: {' '.join(rng.choices(WORDS, k=words))}."


def chat_body(model: str, *, max_tokens: int, prompt_words: int) -> Callable[[int], bytes]:
    """Streams exactly `max_tokens` tokens, greedily."""

    def body(number: int) -> bytes:
        return orjson.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt(number, prompt_words)}],
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    return body
