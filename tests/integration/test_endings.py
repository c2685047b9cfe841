"""What ends a sequence, and what steers it: on the real engine, which stops at once when we say so."""

import asyncio
from typing import Any

from tests.integration.http import CHAT, COMPLETIONS, answer, chat, completion, long_one, post
from tests.integration.live import LiveServer, until

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown fox"


def ids_of(live: LiveServer, text: str) -> list[int]:
    return live.engine.model.tokenizer.encode(text)


async def complete(live: LiveServer, prompt: Any = PROMPT, **fields: Any) -> dict[str, Any]:
    sample = await post(live, COMPLETIONS, completion(prompt, **fields))
    assert sample.ok, sample.detail
    return answer(sample)


async def text_of(live: LiveServer, prompt: Any = PROMPT, **fields: Any) -> str:
    (choice,) = (await complete(live, prompt, **fields))["choices"]
    return str(choice["text"])


async def test_a_stop_string_across_token_borders_ends_the_engines_work_at_once(live: LiveServer) -> None:
    text = await text_of(live, max_tokens=12)
    pieces = [live.engine.model.tokenizer.backend.decode([token_id]) for token_id in ids_of(live, text)]
    # Half of the sixth token and half of the seventh: found when the seventh has come.
    before = "".join(pieces[:5]) + pieces[5][:2]
    stop = pieces[5][2:] + pieces[6][:2]
    assert text.index(stop) == len(before), "the stop's first occurrence spans the two tokens"

    for fields in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
        sample = await post(live, COMPLETIONS, completion(PROMPT, stop=stop, **long_one(ignore_eos=False), **fields))
        await until(lambda: not live.unfinished and not live.running, "the engine has stopped")
        assert sample.ok, sample.detail
        if fields:
            assert sample.text == before
            assert sample.finish_reasons == {0: "stop"}
            assert sample.output_tokens == 7
        else:
            (choice,) = answer(sample)["choices"]
            assert choice["text"] == before
            assert choice["finish_reason"] == "stop"
            assert answer(sample)["usage"]["completion_tokens"] == 7


async def test_a_stop_token_id_ends_the_sequence_without_its_text(live: LiveServer) -> None:
    text = await text_of(live, max_tokens=8)
    ids = ids_of(live, text)
    stopped = await complete(live, max_tokens=8, stop_token_ids=[ids[4]])
    (choice,) = stopped["choices"]
    assert choice["text"] == live.engine.model.tokenizer.backend.decode(ids[:4])
    assert choice["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] == 5


async def test_the_end_of_sequence_token_waits_for_min_tokens(live: LiveServer) -> None:
    eos = {"2": 100}  # <|im_end|>
    at_once = await complete(live, max_tokens=8, logit_bias=eos)
    assert at_once["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}
    assert at_once["usage"]["completion_tokens"] == 1
    later = await complete(live, max_tokens=8, min_tokens=5, logit_bias=eos)
    assert later["choices"][0]["finish_reason"] == "stop"
    assert later["usage"]["completion_tokens"] == 6
    never = await complete(live, max_tokens=8, ignore_eos=True, logit_bias=eos)
    assert never["choices"][0]["finish_reason"] == "length"
    assert never["usage"]["completion_tokens"] == 8


async def test_a_stop_string_waits_for_min_tokens(live: LiveServer) -> None:
    word = ids_of(live, " yes")[0]
    forced = {str(word): 100}
    early = await complete(live, max_tokens=8, logit_bias=forced, stop=" yes")
    late = await complete(live, max_tokens=8, logit_bias=forced, stop=" yes", min_tokens=4)
    assert (early["choices"][0]["text"], early["usage"]["completion_tokens"]) == ("", 1)
    assert (late["choices"][0]["text"], late["usage"]["completion_tokens"]) == (" yes" * 4, 5)


async def test_a_seed_repeats_its_sample_and_another_seed_does_not(live: LiveServer) -> None:
    wild = {"max_tokens": 24, "temperature": 2, "top_p": 1, "ignore_eos": True}
    first = await text_of(live, seed=11, **wild)
    assert await text_of(live, seed=11, **wild) == first
    assert await text_of(live, seed=12, **wild) != first


async def test_choices_of_one_seeded_request_differ(live: LiveServer) -> None:
    wild = {"max_tokens": 24, "temperature": 2, "top_p": 1, "ignore_eos": True}
    several = await complete(live, n=3, seed=11, **wild)
    texts = [choice["text"] for choice in several["choices"]]
    assert len(set(texts)) == 3
    assert several["usage"]["completion_tokens"] == 3 * 24


async def test_logit_bias_forces_and_forbids_a_token(live: LiveServer) -> None:
    word = ids_of(live, " yes")[0]
    assert await text_of(live, max_tokens=5, logit_bias={str(word): 100}) == " yes" * 5
    usual = ids_of(live, await text_of(live, max_tokens=1))[0]
    assert ids_of(live, await text_of(live, max_tokens=1, logit_bias={str(usual): -100})) != [usual]


async def test_penalties_change_what_repeats(live: LiveServer) -> None:
    word = ids_of(live, " yes")[0]
    forced = {str(word): 20}
    assert await text_of(live, "Say it:", max_tokens=12, logit_bias=forced) == " yes" * 12
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2, "frequency_penalty": 2}):
        assert await text_of(live, "Say it:", max_tokens=24, logit_bias=forced, **penalty) != " yes" * 24
    assert await text_of(live, "Say it:", max_tokens=12, logit_bias=forced, repetition_penalty=10) != " yes" * 12


async def test_a_choice_that_meets_its_stop_string_leaves_the_others_running(live: LiveServer) -> None:
    prompts = [ids_of(live, "Count: one, two, three, four,"), ids_of(live, "a a a a a a a a a a a a")]
    free = await complete(live, prompts, max_tokens=16, ignore_eos=True)
    texts = [choice["text"] for choice in free["choices"]]
    stop = next(word for word in (" five", " six", " seven", " one") if word in texts[0] and word not in texts[1])
    sample = await post(live, COMPLETIONS, completion(prompts, max_tokens=64, ignore_eos=True, stop=stop, stream=True))
    assert sample.ok, sample.detail
    assert sample.finish_reasons == {0: "stop", 1: "length"}
    assert len(sample.generated_stamps[1]) > len(sample.generated_stamps.get(0, ()))
    await until(lambda: not live.unfinished and not live.running, "the engine is idle")


async def test_every_choice_of_a_chat_ends_by_itself(live: LiveServer) -> None:
    body = chat(n=3, seed=3, temperature=1, max_tokens=20, stream=True, stream_options={"include_usage": True})
    sample = await post(live, CHAT, body)
    assert sample.ok, sample.detail
    assert set(sample.finish_reasons) == {0, 1, 2}
    assert len(set(sample.texts.values())) == 3
    first_seen = list(dict.fromkeys(event.choice for event in sample.events if event.choice >= 0))
    assert first_seen == [0, 1, 2]


async def test_requests_of_different_length_share_a_batch(live: LiveServer) -> None:
    lengths = [1, 2, 3, 5, 8, 13, 21, 34]
    answers = await asyncio.gather(
        *(complete(live, f"Number {length}:", max_tokens=length, ignore_eos=True) for length in lengths)
    )
    assert [found["usage"]["completion_tokens"] for found in answers] == lengths
