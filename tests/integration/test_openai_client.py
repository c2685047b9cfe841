"""The openai package, unmodified, against the real engine."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.integration.live import LiveServer

MODEL = "smollm2-135m"
QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France?"}
]


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(live: LiveServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{live.base_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_the_capital_of_france_is_paris_streamed_and_not(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert "Paris" in text
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "stop"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content
    usage = chunks[-1].usage
    assert usage is not None
    assert usage == whole.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    # One event per token, the stop token without text, then the finish and the usage.
    assert len(chunks) == usage.completion_tokens - 1 + 2


async def test_the_async_client_reads_the_same_answer(async_client: openai.AsyncOpenAI) -> None:
    whole = await async_client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    stream = await async_client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert whole.choices[0].message.content == text
    assert "Paris" in text


def test_the_stream_helper_accumulates_two_choices(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, n=2, temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1]
    assert all(choice.message.content for choice in final.choices)
    assert [choice.finish_reason for choice in final.choices] == ["stop", "stop"]
    assert any(event.type == "content.done" for event in events)


async def test_the_async_stream_helper_accumulates_two_choices(async_client: openai.AsyncOpenAI) -> None:
    async with async_client.chat.completions.stream(model=MODEL, messages=QUESTION, n=2, temperature=0) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1]
    assert all(choice.message.content for choice in final.choices)


def test_a_completion_of_token_ids_equals_that_of_their_text(live: LiveServer, client: openai.OpenAI) -> None:
    text = "The capital of France is"
    ids = live.engine.model.tokenizer.encode(text)
    by_text = client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=12)
    by_ids = client.completions.create(model=MODEL, prompt=ids, temperature=0, max_tokens=12)
    streamed = client.completions.create(model=MODEL, prompt=ids, temperature=0, max_tokens=12, stream=True)
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in streamed) == by_text.choices[0].text
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == len(ids)
    assert by_ids.usage.completion_tokens == 12


def test_a_list_of_prompts_has_one_choice_each_in_order(live: LiveServer, client: openai.OpenAI) -> None:
    prompts = ["The capital of France is", "Two plus two equals"]
    ids = [live.engine.model.tokenizer.encode(prompt) for prompt in prompts]
    forced = {str(live.engine.model.tokenizer.encode(" yes")[0]): 100}
    for given in (prompts, ids):
        answer = client.completions.create(model=MODEL, prompt=given, temperature=0, max_tokens=2, logit_bias=forced)
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert [choice.text for choice in answer.choices] == [" yes yes", " yes yes"]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == sum(map(len, ids))
        assert answer.usage.completion_tokens == 4


def test_the_served_model_is_listed(client: openai.OpenAI) -> None:
    (card,) = client.models.list().data
    assert card.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_errors_arrive_as_the_clients_own_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="another", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=3)
    assert wrong.value.param == "temperature"
