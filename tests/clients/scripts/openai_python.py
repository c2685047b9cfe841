"""openai-python, 2 and 3."""

import json
from typing import Any, Literal

import openai
from cases import BASE_URL, MODEL, QUESTION, WEATHER_SCHEMA, case, report
from pydantic import BaseModel

MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 64}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 64}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER_SCHEMA},
    }
]
FUNCTIONS: list[Any] = [{"type": "function", "name": "get_weather", "parameters": WEATHER_SCHEMA, "strict": True}]
OPTIONS: dict[str, Any] = {"base_url": f"{BASE_URL}/v1", "api_key": "none", "max_retries": 0, "timeout": 60}

client = openai.OpenAI(**OPTIONS)


class Capital(BaseModel):
    city: Literal["Paris", "Rome"]
    in_europe: bool


def dumped(model: BaseModel | None) -> Any:
    return None if model is None else model.model_dump(mode="json")


@case
def version() -> str:
    return openai.__version__


@case
def models() -> list[str]:
    return [card.id for card in client.models.list()]


@case
def chat() -> dict[str, Any]:
    whole = client.chat.completions.create(**CHAT)
    stream = client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return {
        "text": whole.choices[0].message.content,
        "finish": whole.choices[0].finish_reason,
        "usage": dumped(whole.usage),
        "streamed": "".join(choice.delta.content or "" for choice in choices),
        "streamed_finish": choices[-1].finish_reason,
        "streamed_usage": dumped(chunks[-1].usage),
        "ids": len({chunk.id for chunk in chunks}),
        "roles": [choice.delta.role for choice in choices if choice.delta.role],
    }


@case
async def chat_async() -> dict[str, Any]:
    async with openai.AsyncOpenAI(**OPTIONS) as made:
        whole = await made.chat.completions.create(**CHAT)
        stream = await made.chat.completions.create(**CHAT, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    return {"text": whole.choices[0].message.content, "streamed": streamed}


@case
def stream_helper() -> dict[str, Any]:
    with client.chat.completions.stream(**CHAT, n=2) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    return {
        "events": events,
        "texts": [choice.message.content for choice in final.choices],
        "finish": [choice.finish_reason for choice in final.choices],
    }


@case
def stop() -> dict[str, Any]:
    answer = client.chat.completions.create(**CHAT, stop=[" France"])
    return {"text": answer.choices[0].message.content, "finish": answer.choices[0].finish_reason}


@case
def logprobs() -> list[Any]:
    answer = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)
    found = answer.choices[0].logprobs
    return [] if found is None else [token.model_dump() for token in found.content or []]


@case
def parse() -> dict[str, Any]:
    answer = client.chat.completions.parse(**CHAT, response_format=Capital)
    message = answer.choices[0].message
    return {"parsed": dumped(message.parsed), "finish": answer.choices[0].finish_reason}


@case
def parse_stream() -> dict[str, Any]:
    with client.chat.completions.stream(**CHAT, response_format=Capital) as stream:
        snapshots = [event.parsed for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    return {"parsed": dumped(final.choices[0].message.parsed), "snapshots": len(snapshots), "last": snapshots[-1]}


@case
async def parse_async() -> Any:
    async with openai.AsyncOpenAI(**OPTIONS) as made:
        answer = await made.chat.completions.parse(**CHAT, response_format=Capital)
    return dumped(answer.choices[0].message.parsed)


@case
def json_object() -> Any:
    """What a small model puts into it is its own affair, so the limit may cut it."""
    answer = client.chat.completions.create(**CHAT, response_format={"type": "json_object"})
    return {"text": answer.choices[0].message.content, "finish": answer.choices[0].finish_reason}


@case
def tools() -> dict[str, Any]:
    whole = client.chat.completions.create(**CHAT, tools=TOOLS, tool_choice="required").choices[0]
    stream = client.chat.completions.create(**CHAT, tools=TOOLS, tool_choice="required", stream=True)
    pieces = [call for chunk in stream if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    calls = whole.message.tool_calls or []
    return {
        "calls": [[call.id, call.type, call.function.name, call.function.arguments] for call in calls],
        "finish": whole.finish_reason,
        "streamed_name": pieces[0].function.name,
        "streamed_id": pieces[0].id,
        "streamed_arguments": "".join(piece.function.arguments or "" for piece in pieces),
    }


@case
def tool_named() -> dict[str, Any]:
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    with client.chat.completions.stream(**CHAT, tools=TOOLS, tool_choice=choice) as stream:
        events = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    (call,) = final.message.tool_calls or []
    return {"name": call.function.name, "arguments": json.loads(call.function.arguments), "events": sorted(events)}


@case
def tool_result() -> dict[str, Any]:
    """The answer to a call goes back to the model."""
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 24 degrees."},
    ]
    answer = client.chat.completions.create(**{**CHAT, "messages": messages}, tools=TOOLS, tool_choice="none")
    return {"text": answer.choices[0].message.content, "calls": answer.choices[0].message.tool_calls}


@case
def completion() -> dict[str, Any]:
    fields: dict[str, Any] = {"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 12}
    whole = client.completions.create(**fields)
    streamed = client.completions.create(**fields, stream=True)
    return {
        "text": whole.choices[0].text,
        "finish": whole.choices[0].finish_reason,
        "usage": dumped(whole.usage),
        "streamed": "".join(chunk.choices[0].text for chunk in streamed),
    }


@case
def response() -> dict[str, Any]:
    whole = client.responses.create(**RESPONSE)
    stored = client.responses.retrieve(whole.id)
    return {
        "text": whole.output_text,
        "status": whole.status,
        "usage": dumped(whole.usage),
        "stored": stored.output_text,
        "stored_id": stored.id == whole.id,
    }


@case
def response_stream() -> dict[str, Any]:
    events = list(client.responses.create(**RESPONSE, stream=True))
    return {
        "types": [event.type for event in events],
        "numbers": [event.sequence_number for event in events],
        "text": "".join(event.delta for event in events if event.type == "response.output_text.delta"),
        "final": events[-1].response.output_text if events[-1].type == "response.completed" else None,
    }


@case
def response_stream_helper() -> dict[str, Any]:
    with client.responses.stream(**RESPONSE) as stream:
        count = sum(1 for _ in stream)
        final = stream.get_final_response()
    return {"events": count, "text": final.output_text, "status": final.status}


@case
def response_follow_up() -> dict[str, Any]:
    first = client.responses.create(**RESPONSE)
    second = client.responses.create(**{**RESPONSE, "input": "And of Italy?"}, previous_response_id=first.id)
    return {
        "previous": second.previous_response_id == first.id,
        "longer": second.usage.input_tokens > first.usage.input_tokens,
        "text": second.output_text,
    }


@case
def response_parse() -> Any:
    return dumped(client.responses.parse(**RESPONSE, text_format=Capital).output_parsed)


@case
def response_tools() -> dict[str, Any]:
    whole = client.responses.create(**RESPONSE, tools=FUNCTIONS, tool_choice="required")
    calls = [item for item in whole.output if item.type == "function_call"]
    events = list(client.responses.create(**RESPONSE, tools=FUNCTIONS, tool_choice="required", stream=True))
    return {
        "calls": [[bool(call.call_id), call.name, call.arguments] for call in calls],
        "streamed": "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta"),
        "types": [event.type for event in events],
    }


@case
async def response_async() -> dict[str, Any]:
    async with openai.AsyncOpenAI(**OPTIONS) as made:
        whole = await made.responses.create(**RESPONSE)
        async with made.responses.stream(**RESPONSE) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_response()
        stored = await made.responses.retrieve(final.id)
    return {"text": whole.output_text, "streamed": final.output_text, "stored": stored.output_text}


@case
def errors() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, fields in {"model": {"model": "another"}, "temperature": {"temperature": 3}}.items():
        try:
            client.chat.completions.create(**{**CHAT, **fields})
        except openai.APIStatusError as error:
            seen[name] = [type(error).__name__, error.code, error.param, bool(error.request_id)]
    return seen


report()
