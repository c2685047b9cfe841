"""Each sampler that the engine lacks visibly works through the openai client, on the real engine.

Where an answer is compared with another one, its continuation is beyond doubt (a list recited already), so that the
last bits of a 16-bit model's logits don't decide it.
"""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import openai
import pytest

from server.api.shaping import SHAPING_FIELDS
from tests.integration.http import COMPLETIONS, answer, completion, healthy, name, post
from tests.integration.live import LiveServer

MODEL = "smollm2-135m"
RECITAL = "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3"
STORY = "Once upon a time"
SEEDS = (1, 2, 3, 4)


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.base_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def said(
    client: openai.OpenAI, prompt: str, *, tokens: int = 24, temperature: float = 0, seed: int = 1, **fields: Any
) -> openai.types.CompletionChoice:
    extra = {"return_token_ids": True, "ignore_eos": True, **fields}
    completed = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=tokens, temperature=temperature, seed=seed, extra_body=extra
    )
    return completed.choices[0]


def texts(client: openai.OpenAI, prompt: str, **fields: Any) -> set[str]:
    """What the seeds make of it."""
    return {said(client, prompt, seed=seed, **fields).text for seed in SEEDS}


def ids(choice: openai.types.CompletionChoice) -> tuple[list[int], list[int]]:
    """Of the prompt, and of the answer."""
    extra = choice.model_extra or {}
    return extra["prompt_token_ids"], extra["token_ids"]


def repeated(choice: openai.types.CompletionChoice, n: int) -> bool:
    """Whether a run of n tokens that ends in the answer has been there before."""
    prompt, output = ids(choice)
    whole = prompt + output
    runs = [tuple(whole[end - n : end]) for end in range(n, len(whole) + 1)]
    first = max(len(prompt) - n + 1, 0)  # the first run that ends in the answer
    return any(run in set(runs[:place]) for place, run in enumerate(runs) if place >= first)


def test_no_run_of_two_tokens_occurs_twice(client: openai.OpenAI) -> None:
    assert repeated(said(client, RECITAL), 2)
    assert not repeated(said(client, RECITAL, no_repeat_ngram_size=2), 2)


def test_dry_ends_a_repetition_at_the_length_it_allows(client: openai.OpenAI) -> None:
    dry = {"dry_multiplier": 100, "dry_allowed_length": 2, "dry_sequence_breakers": []}
    assert repeated(said(client, RECITAL), 8)
    assert not repeated(said(client, RECITAL, **dry), 3)


def test_a_breaker_keeps_a_repetition_short_enough_to_be_free(client: openai.OpenAI) -> None:
    """Between two fives there are fewer tokens than a repetition must have."""
    plain = said(client, RECITAL).text
    dry = {"dry_multiplier": 100, "dry_allowed_length": 20}
    assert plain.startswith(" 4 5 6 7 8 9 1 2")
    assert said(client, RECITAL, **dry, dry_sequence_breakers=["5"]).text == plain
    assert said(client, RECITAL, **dry, dry_sequence_breakers=[]).text != plain


@pytest.mark.parametrize(
    "narrow",
    [
        {"top_n_sigma": 0.01},
        {"mirostat": 2, "mirostat_tau": 0.01},
        {"dynatemp_range": 2, "dynatemp_exponent": 10},
    ],
    ids=name,
)
def test_what_leaves_the_likeliest_token_alone_is_greedy_at_any_temperature(
    client: openai.OpenAI, narrow: dict[str, Any]
) -> None:
    greedy = said(client, RECITAL).text
    assert greedy not in texts(client, RECITAL, temperature=2)
    assert texts(client, RECITAL, temperature=2, **narrow) == {greedy}


def test_the_most_typical_token_alone_leaves_nothing_to_the_seed(client: openai.OpenAI) -> None:
    assert len(texts(client, STORY, temperature=1.5)) == len(SEEDS)
    assert len(texts(client, STORY, temperature=1.5, typical_p=1e-6, tokens=4)) == 1


def test_xtc_takes_the_likeliest_token_away(client: openai.OpenAI) -> None:
    always = {"xtc_probability": 1, "xtc_threshold": 1e-6}
    _, plain = ids(said(client, RECITAL, tokens=1))
    _, excluded = ids(said(client, RECITAL, tokens=1, **always))
    assert excluded != plain


def test_what_xtc_takes_is_the_seeds_choice(client: openai.OpenAI) -> None:
    sometimes = {"xtc_probability": 0.5, "xtc_threshold": 0.05, "tokens": 16}
    assert said(client, STORY, **sometimes).text == said(client, STORY, **sometimes).text
    assert len(texts(client, STORY, **sometimes)) > 1


def test_dynamic_temperature_changes_what_a_seed_draws(client: openai.OpenAI) -> None:
    plain = said(client, STORY, temperature=1, seed=3).text
    assert said(client, STORY, temperature=1, seed=3, dynatemp_range=1).text != plain


def test_a_hotter_mirostat_surprises_more(client: openai.OpenAI) -> None:
    """Mean surprise of the sampled tokens by the model's own log probabilities."""

    def surprise(tau: float) -> float:
        extra = {"mirostat": 2, "mirostat_tau": tau, "ignore_eos": True}
        completed = client.completions.create(
            model=MODEL, prompt=STORY, max_tokens=96, temperature=1, seed=1, logprobs=0, extra_body=extra
        )
        logprobs = completed.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        return -sum(logprobs.token_logprobs) / len(logprobs.token_logprobs)

    surprises = [surprise(tau) for tau in (0.5, 2.0, 8.0)]
    assert all(calmer < wilder for calmer, wilder in pairwise(surprises)), surprises


def test_a_streamed_chat_is_shaped_as_a_whole_one_is(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Go on: {RECITAL}"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    shaped = asked | {"extra_body": {"no_repeat_ngram_size": 2}}
    whole = client.chat.completions.create(**shaped).choices[0].message.content
    chunks = client.chat.completions.create(**shaped, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert whole != client.chat.completions.create(**asked).choices[0].message.content


def test_the_model_lists_the_samplers(client: openai.OpenAI) -> None:
    card = client.models.retrieve(MODEL).model_extra or {}
    assert set(SHAPING_FIELDS) <= set(card["supported_parameters"])


def test_a_wrong_value_is_the_clients_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        said(client, STORY, typical_p=2)
    assert wrong.value.param == "typical_p"


EXTREMES: list[dict[str, Any]] = [
    {"dry_multiplier": 100, "dry_base": 10, "dry_allowed_length": 1, "dry_sequence_breakers": []},
    {"dry_multiplier": 5e-324, "dry_base": 1, "dry_allowed_length": 4096},
    {"dry_multiplier": 1, "dry_sequence_breakers": ["\x00", "\U0001f469\u200d\U0001f467", "the end of it all"]},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 256},
    {"no_repeat_ngram_size": 1, "logit_bias": {str(i): 100 for i in range(1024)}},
    {"top_n_sigma": 5e-324},
    {"top_n_sigma": 100},
    {"typical_p": 5e-324},
    {"xtc_probability": 1, "xtc_threshold": 0},
    {"xtc_probability": 5e-324, "xtc_threshold": 5e-324},
    {"dynatemp_range": 2, "dynatemp_exponent": 10, "temperature": 5e-324},
    {"dynatemp_range": 5e-324, "dynatemp_exponent": 5e-324, "temperature": 2},
    {"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 1, "temperature": 2},
    {"mirostat": 2, "mirostat_tau": 100, "mirostat_eta": 5e-324, "temperature": 1},
    {"no_repeat_ngram_size": 1, "structured_outputs": {"choice": ["yes yes yes yes"]}},
]


async def test_legal_extremes_in_one_batch_are_served_and_leave_a_neighbour_alone(live: LiveServer) -> None:
    quiet = await post(live, COMPLETIONS, completion(RECITAL, max_tokens=16))
    together = await asyncio.gather(
        post(live, COMPLETIONS, completion(RECITAL, max_tokens=16)),
        *(post(live, COMPLETIONS, completion(RECITAL, **{"max_tokens": 8, **fields})) for fields in EXTREMES),
    )
    assert [(sample.status, sample.detail) for sample in together] == [(200, quiet.detail)] * len(together)
    assert answer(together[0])["choices"] == answer(quiet)["choices"]
    await healthy(live)


async def test_a_shaped_request_is_shaped_alike_beside_others(live: LiveServer) -> None:
    """A step's rows are shaped together, each by its own values alone."""
    shaped = completion(RECITAL, max_tokens=16, no_repeat_ngram_size=2, ignore_eos=True)
    narrowed = completion(RECITAL, max_tokens=16, temperature=2, top_n_sigma=0.01, ignore_eos=True)
    alone = answer(await post(live, COMPLETIONS, narrowed))["choices"]
    others = [post(live, COMPLETIONS, body) for body in (shaped, narrowed, completion(STORY), narrowed, shaped)]
    _, second, _, fourth, _ = [answer(sample)["choices"] for sample in await asyncio.gather(*others)]
    assert second == fourth == alone
