"""langchain-openai."""

from importlib.metadata import version as installed
from typing import Any, Literal

import langchain_openai
from cases import BASE_URL, MODEL, QUESTION, case, report
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

OPTIONS: dict[str, Any] = {"base_url": f"{BASE_URL}/v1", "api_key": "none", "model": MODEL, "temperature": 0}
model = langchain_openai.ChatOpenAI(**OPTIONS, max_tokens=64, max_retries=0, timeout=60, stream_usage=True)
responses = langchain_openai.ChatOpenAI(**OPTIONS, max_tokens=64, max_retries=0, timeout=60, use_responses_api=True)


class Capital(BaseModel):
    """A country's capital."""

    city: Literal["Paris", "Rome"]
    in_europe: bool


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


def summed(chunks: list[Any]) -> Any:
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return total


@case
def version() -> str:
    return str(installed("langchain-openai"))


@case
def chat() -> dict[str, Any]:
    whole = model.invoke(QUESTION)
    streamed = summed(list(model.stream(QUESTION)))
    return {
        "text": whole.text,
        "finish": whole.response_metadata["finish_reason"],
        "usage": whole.usage_metadata,
        "streamed": streamed.text,
        "streamed_finish": streamed.response_metadata["finish_reason"],
        "streamed_usage": streamed.usage_metadata,
    }


@case
async def chat_async() -> dict[str, Any]:
    whole = await model.ainvoke(QUESTION)
    return {"text": whole.text, "streamed": "".join([chunk.text async for chunk in model.astream(QUESTION)])}


@case
def completion() -> dict[str, Any]:
    plain = langchain_openai.OpenAI(**OPTIONS, max_tokens=12, max_retries=0)
    prompt = "The capital of France is"
    return {"text": plain.invoke(prompt), "streamed": "".join(plain.stream(prompt))}


@case
def structured() -> dict[str, Any]:
    by_schema = model.with_structured_output(Capital, method="json_schema").invoke(QUESTION)
    by_function = model.with_structured_output(Capital, method="function_calling").invoke(QUESTION)
    return {"schema": by_schema.model_dump(), "function": by_function.model_dump()}


@case
def tools() -> dict[str, Any]:
    bound = model.bind_tools([get_weather], tool_choice="any")
    whole = bound.invoke("How is the weather in Paris?")
    streamed = summed(list(bound.stream("How is the weather in Paris?")))
    return {
        "calls": [[bool(call["id"]), call["name"], call["args"]] for call in whole.tool_calls],
        "streamed": [[bool(call["id"]), call["name"], call["args"]] for call in streamed.tool_calls],
    }


@case
def tool_result() -> str:
    call = {"name": "get_weather", "args": {"city": "Paris"}, "id": "call_1"}
    messages: list[BaseMessage] = [
        HumanMessage("How is the weather in Paris?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("Sunny, 24 degrees.", tool_call_id="call_1"),
    ]
    return model.invoke(messages).text


@case
def responses_api() -> dict[str, Any]:
    whole = responses.invoke(QUESTION)
    streamed = summed(list(responses.stream(QUESTION)))
    return {"text": whole.text, "streamed": streamed.text, "usage": whole.usage_metadata}


report()
