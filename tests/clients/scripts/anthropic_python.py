"""anthropic's client against /v1/messages."""

from typing import Any

import anthropic
from cases import BASE_URL, MODEL, QUESTION, WEATHER_SCHEMA, case, report

MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0}  # the protocol has it, this client's functions no longer do
FIELDS: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 64, "extra_body": GREEDY}
TOOLS: list[Any] = [
    {"name": "get_weather", "description": "The weather in a city", "input_schema": WEATHER_SCHEMA},
]
OPTIONS: dict[str, Any] = {"base_url": BASE_URL, "api_key": "none", "max_retries": 0, "timeout": 60}

client = anthropic.Anthropic(**OPTIONS)


@case
def version() -> str:
    return anthropic.__version__


@case
def create() -> dict[str, Any]:
    answer = client.messages.create(**FIELDS)
    return {
        "text": "".join(block.text for block in answer.content if block.type == "text"),
        "role": answer.role,
        "stop_reason": answer.stop_reason,
        "tokens": [answer.usage.input_tokens, answer.usage.output_tokens],
    }


@case
def stream() -> dict[str, Any]:
    with client.messages.stream(**FIELDS) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    return {
        "text": text,
        "stop_reason": final.stop_reason,
        "tokens": [final.usage.input_tokens, final.usage.output_tokens],
    }


@case
def raw_stream() -> list[str]:
    """The order of the events, pings left out and runs of deltas taken as one."""
    types: list[str] = []
    for event in client.messages.create(**FIELDS, stream=True):
        if types[-1:] != [event.type] and event.type != "ping":
            types.append(event.type)
    return types


@case
async def both_async() -> dict[str, Any]:
    async with anthropic.AsyncAnthropic(**OPTIONS) as made:
        whole = await made.messages.create(**FIELDS)
        async with made.messages.stream(**FIELDS) as events:
            streamed = "".join([text async for text in events.text_stream])
    return {"text": whole.content[0].text, "streamed": streamed}


@case
def system() -> dict[str, Any]:
    plain = client.messages.count_tokens(model=MODEL, messages=MESSAGES)
    told = client.messages.count_tokens(model=MODEL, messages=MESSAGES, system="You are a very terse geographer.")
    answer = client.messages.create(**FIELDS, system="You are a very terse geographer.")
    return {"plain": plain.input_tokens, "told": told.input_tokens, "used": answer.usage.input_tokens}


@case
def stop_sequence() -> dict[str, Any]:
    answer = client.messages.create(**FIELDS, stop_sequences=[" France"])
    return {"text": answer.content[0].text, "reason": answer.stop_reason, "sequence": answer.stop_sequence}


@case
def max_tokens() -> str | None:
    return client.messages.create(**{**FIELDS, "max_tokens": 2}).stop_reason


@case
def tools() -> dict[str, Any]:
    answer = client.messages.create(**FIELDS, tools=TOOLS, tool_choice={"type": "any"})
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    with client.messages.stream(**FIELDS, tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"}) as events:
        pieces = [event.partial_json for event in events if event.type == "input_json"]
        final = events.get_final_message()
    (streamed,) = [block for block in final.content if block.type == "tool_use"]
    return {
        "name": call.name,
        "id": bool(call.id),
        "input": call.input,
        "stop_reason": answer.stop_reason,
        "streamed": streamed.input,
        "pieces": "".join(pieces),
        "streamed_stop_reason": final.stop_reason,
    }


@case
def tool_result() -> dict[str, Any]:
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris"}}
    messages: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Sunny, 24 degrees."}]},
    ]
    answer = client.messages.create(**{**FIELDS, "messages": messages}, tools=TOOLS, tool_choice={"type": "none"})
    return {"text": answer.content[0].text, "stop_reason": answer.stop_reason}


@case
def errors() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, fields in {"model": {"model": "another"}, "temperature": {"extra_body": {"temperature": 3}}}.items():
        try:
            client.messages.create(**{**FIELDS, **fields})
        except anthropic.APIStatusError as error:
            body: Any = error.body
            seen[name] = [type(error).__name__, body["type"], body["error"]["type"], bool(body["error"]["message"])]
    return seen


report()
