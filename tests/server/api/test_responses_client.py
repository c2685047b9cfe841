"""OpenAI's own package against `/v1/responses`, over a socket."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from pydantic import BaseModel

from tests.support.engines import FakeEngine
from tests.support.live import Live, listening
from tests.support.responses import TOOL
from tests.support.site import MODEL
from tests.support.waiting import until

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class City(BaseModel):
    name: str


@pytest.fixture
async def live(engine: FakeEngine) -> AsyncIterator[Live[FakeEngine]]:
    async with listening(engine, "chat.tool_parser=hermes", "chat.reasoning_parser=think") as served:
        yield served


@pytest.fixture
async def client(live: Live[FakeEngine]) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{live.port}/v1", api_key="k", max_retries=0) as made:
        yield made


async def speak(engine: FakeEngine, *texts: str, index: int = 0) -> None:
    sequence = await engine.sequence(index)
    for text in texts:
        sequence.say(text)
    sequence.end()


def later(engine: FakeEngine, *texts: str, index: int = 0) -> "asyncio.Task[None]":
    return asyncio.create_task(speak(engine, *texts, index=index))


async def test_create_and_retrieve_and_delete(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    speaking = later(engine, "Paris")
    response = await client.responses.create(model=MODEL, input="Hi", metadata={"a": "b"})
    await speaking
    assert response.output_text == "Paris"
    assert response.usage is not None and response.usage.output_tokens == 2
    assert (await client.responses.retrieve(response.id)) == response
    items = [item async for item in client.responses.input_items.list(response.id)]
    assert len(items) == 1
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_stream_of_thoughts_text_and_a_call(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    speaking = later(engine, "<think>Hm</think>", "I ask.", CALL)
    async with client.responses.stream(model=MODEL, input="Hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    await speaking
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "I ask."
    assert "response.function_call_arguments.done" in kinds


async def test_a_parsed_answer(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    speaking = later(engine, '{"name":', ' "Paris"}')
    async with client.responses.stream(model=MODEL, input="Hi", text_format=City) as stream:
        parsed = (await stream.get_final_response()).output_parsed
    await speaking
    assert parsed == City(name="Paris")


async def test_a_background_response_is_polled_streamed_again_and_cancelled(
    client: openai.AsyncOpenAI, engine: FakeEngine
) -> None:
    queued = await client.responses.create(model=MODEL, input="Hi", background=True)
    assert queued.status == "queued"
    (await engine.sequence()).say("Par")
    stream = await client.responses.retrieve(queued.id, stream=True, starting_after=1)
    seen = []
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    assert [event.sequence_number for event in seen] == [2, 3, 4, 5]
    cancelled = await client.responses.cancel(queued.id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "Par")
    rest = [event async for event in await client.responses.retrieve(queued.id, stream=True, starting_after=5)]
    assert [event.type for event in rest] == ["response.incomplete"]


async def test_a_background_response_survives_its_clients_disconnect(
    client: openai.AsyncOpenAI, engine: FakeEngine, live: Live[FakeEngine]
) -> None:
    stream = await client.responses.create(model=MODEL, input="Hi", background=True, stream=True)
    first = await anext(aiter(stream))
    assert first.type == "response.created"
    await stream.close()
    await speak(engine, "Paris")
    await until(lambda: live.idle)
    async with client.responses.stream(response_id=first.response.id) as again:
        assert (await again.get_final_response()).output_text == "Paris"


async def test_a_conversation_goes_on(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    speaking = later(engine, "Paris")
    first = await client.responses.create(model=MODEL, input="Capital of France?")
    await speaking
    speaking = later(engine, "Yes", index=1)
    second = await client.responses.create(model=MODEL, input="Sure?", previous_response_id=first.id)
    await speaking
    assert (second.output_text, second.previous_response_id) == ("Yes", first.id)


async def test_errors_are_the_packages_own(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_0")
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model=MODEL, input="Hi", tools=[{"type": "web_search"}])
