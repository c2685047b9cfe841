import orjson

from bench.bodies import chat_body, prompt
from bench.stages import STAGES


def test_a_body_asks_for_exactly_so_many_tokens() -> None:
    body = orjson.loads(chat_body("m", max_tokens=7, prompt_words=3)(0))
    assert (body["max_tokens"], body["ignore_eos"], body["temperature"], body["stream"]) == (7, True, 0, True)
    assert body["stream_options"] == {"include_usage": True}


def test_prompts_repeat_from_run_to_run_and_differ_from_each_other() -> None:
    assert prompt(5, 20) == prompt(5, 20)
    assert len({prompt(number, 20) for number in range(500)}) == 500


def test_stages_are_named_once() -> None:
    assert len(set(STAGES)) == len(STAGES) == 14
