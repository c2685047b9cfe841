"""What a client saw in each case, as one JSON object on stdout; a case that fails hides no other.

A script is called with the server's base URL and the model's name.
"""

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

BASE_URL, MODEL = sys.argv[1:3]
QUESTION = "What is the capital of France?"
WEATHER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}

_cases: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    _cases[function.__name__] = function
    return function


def report() -> None:
    print(json.dumps({name: _outcome(function) for name, function in _cases.items()}))


def _outcome(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        value = function()
        return {"value": asyncio.run(value) if inspect.iscoroutine(value) else value}
    except Exception:
        return {"error": traceback.format_exc()}
