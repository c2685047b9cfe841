import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, median, stdev

import pytest

from bench.bodies import WORDS
from bench.run.prompts import Conversation, Turn, conversations, draw, take
from bench.run.spec import Closed, Lengths, Prompts, Spec, SpecError
from bench.run.traces import Recorded

SPEC = Spec("http://x", "m", Closed(1), 10, output=Lengths(mean=7))


def said(spec: Spec, count: int) -> list[str]:
    """What each of the first conversations opens with."""
    return [one.turns[0].messages[0]["content"] for one in islice(conversations(spec), count)]


def with_prompts(prompts: Prompts, seed: int = 0) -> Spec:
    return replace(SPEC, prompts=prompts, seed=seed)


def test_a_synthetic_prompt_has_as_many_words_as_tokens_are_asked_for() -> None:
    for text in said(with_prompts(Prompts(lengths=Lengths(mean=40))), 20):
        words = text.split(" ")
        assert len(words) == 40 and set(words) <= set(WORDS)


def test_equal_seeds_say_the_same_and_others_something_else() -> None:
    prompts = Prompts(lengths=Lengths("lognormal", 40, 0.5))
    assert said(with_prompts(prompts, 1), 20) == said(with_prompts(prompts, 1), 20)
    assert not set(said(with_prompts(prompts, 1), 20)) & set(said(with_prompts(prompts, 2), 20))


def test_no_two_prompts_of_a_run_are_alike() -> None:
    assert len(set(said(with_prompts(Prompts(lengths=Lengths(mean=40))), 200))) == 200


def test_prefixes_are_shared_by_so_many_and_what_follows_is_not() -> None:
    texts = said(with_prompts(Prompts(lengths=Lengths(mean=50), prefix_tokens=30, prefixes=3)), 60)
    assert {len(text.split(" ")) for text in texts} == {50}
    assert len({tuple(text.split(" ")[:30]) for text in texts}) == 3
    assert len({tuple(text.split(" ")[30:]) for text in texts}) == 60


def test_a_prompt_shorter_than_its_prefix_still_has_a_word_of_its_own() -> None:
    (text,) = said(with_prompts(Prompts(lengths=Lengths(mean=5), prefix_tokens=30)), 1)
    assert len(text.split(" ")) == 31


def test_lengths_have_their_distribution_within_their_bounds() -> None:
    rng = random.Random(1)
    normal = [draw(Lengths("normal", 200, 30.0), rng) for _ in range(4000)]
    assert fmean(normal) == pytest.approx(200, rel=0.02) and stdev(normal) == pytest.approx(30, rel=0.1)
    lognormal = [draw(Lengths("lognormal", 200, 0.7, 50, 900), rng) for _ in range(4000)]
    assert min(lognormal) == 50 and max(lognormal) == 900
    assert median(lognormal) == pytest.approx(200, rel=0.05) and fmean(lognormal) > 220
    assert draw(Lengths(mean=9), rng) == 9


def test_every_turn_says_something_new_and_asks_for_its_own_length() -> None:
    prompts = Prompts(lengths=Lengths(mean=12), turns=3)
    (found,) = islice(conversations(replace(SPEC, prompts=prompts, output=Lengths("normal", 50, 10.0))), 1)
    texts = [turn.messages[0]["content"] for turn in found.turns]
    assert len(set(texts)) == 3 and {len(text.split(" ")) for text in texts} == {12}
    assert len({turn.output_tokens for turn in found.turns}) > 1


def test_a_trace_gives_the_lengths_and_equal_blocks_equal_text() -> None:
    trace = [
        Recorded(0.0, 1100, 5, (1, 2, 3)),
        Recorded(1.0, 1030, 6, (1, 2, 9)),
        Recorded(2.0, 600, 7, (4,)),
        Recorded(3.0, 3, 8),
    ]
    found = list(conversations(SPEC, trace))
    texts = [one.turns[0].messages[0]["content"].split(" ") for one in found]
    assert [len(text) for text in texts] == [1100, 1030, 600, 3]
    assert [one.turns[0].output_tokens for one in found] == [5, 6, 7, 8]
    assert texts[0][:1024] == texts[1][:1024]
    assert texts[0][1024:1030] != texts[1][1024:1030]


def test_a_file_comes_round_again_in_an_order_of_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'{{"prompt": "p{number}"}}\n' for number in range(8)))
    orders = [said(with_prompts(Prompts("jsonl", path), seed), 16) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert set(orders[0][:8]) == set(orders[0][8:]) and len(set(orders[0])) == 8


def test_the_length_a_file_asks_for_goes_before_the_specs(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "output_tokens": 3}\n')
    (found,) = islice(conversations(with_prompts(Prompts("jsonl", path))), 1)
    assert found.turns[0].output_tokens == 3


def test_conversations_are_taken_up_to_a_number_of_turns() -> None:
    talk = Conversation([Turn([], 1)] * 3)
    assert [len(one.turns) for one in take([talk] * 9, 7)] == [3, 3, 1]
    assert take([talk], 0) == []


@pytest.mark.parametrize(
    "spec",
    [
        with_prompts(Prompts(turns=0)),
        with_prompts(Prompts(prefixes=0)),
        with_prompts(Prompts(prefix_tokens=-1)),
        with_prompts(Prompts(lengths=Lengths(mean=0))),
        with_prompts(Prompts(lengths=Lengths(least=9, most=8))),
        with_prompts(Prompts(lengths=Lengths("normal", spread=-1.0))),
        replace(SPEC, output=Lengths(least=0)),
        with_prompts(Prompts("jsonl")),
    ],
)
def test_prompts_that_cannot_be_are_errors(spec: Spec) -> None:
    with pytest.raises(SpecError):
        conversations(spec)


@pytest.mark.parametrize("prompts", [Prompts(turns=2), Prompts("jsonl", Path("x"))])
def test_a_trace_goes_with_prompts_of_its_own(prompts: Prompts) -> None:
    with pytest.raises(SpecError, match="trace"):
        conversations(with_prompts(prompts), [Recorded(0.0, 1, 1)])
