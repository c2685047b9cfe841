from typing import Any

import orjson
import pytest

from bench.run.dialects import DIALECTS, TypedEventReader, hopeless
from bench.run.spec import Closed, Endpoint, Spec
from bench.sample import NO_CHOICE, RequestSample
from tests.bench.bytes import DONE, SSE_HEAD, chunked, cuts_in_two, event, single_bytes

MESSAGES = [
    {"role": "user", "content": "a?"},
    {"role": "assistant", "content": "A."},
    {"role": "user", "content": "b?"},
]
SPEC = Spec("http://x", "m", Closed(1), 1, ignore_eos=False, include_timings=False)


def body(endpoint: Endpoint, **asked: Any) -> dict[str, Any]:
    spec = Spec("http://x", "m", Closed(1), 1, **({"ignore_eos": False, "include_timings": False} | asked))
    found: dict[str, Any] = orjson.loads(DIALECTS[endpoint].body(spec, MESSAGES, 9))
    return found


def typed(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def completed(**response: Any) -> bytes:
    return typed("response.completed", response={"usage": {"input_tokens": 3, "output_tokens": 2}, **response})


def delta(text: str, of: str = "output_text") -> bytes:
    return typed(f"response.{of}.delta", delta=text)


def read(*pieces: bytes) -> RequestSample:
    """What a read makes of these; the n-th has stamp n."""
    reader = TypedEventReader(RequestSample())
    for stamp, piece in enumerate(pieces, start=1):
        reader.feed(piece, stamp)
    reader.eof(len(pieces) + 1)
    return reader.sample


def told(sample: RequestSample) -> tuple[object, ...]:
    events = [stamped._replace(stamp_ns=0) for stamped in sample.events]
    return events, sample.text, sample.error, sample.prompt_tokens, sample.output_tokens, sample.timings


# What is asked


def test_each_protocol_has_its_place_and_its_fields() -> None:
    common = {"model": "m", "temperature": 0.0, "stream": True}
    usage = {"stream_options": {"include_usage": True}}
    assert body("chat") == common | usage | {"messages": MESSAGES, "max_tokens": 9}
    assert body("completions") == common | usage | {"prompt": "a?\nA.\nb?", "max_tokens": 9}
    assert body("responses") == common | {"input": MESSAGES, "max_output_tokens": 9, "store": False}
    assert {name: dialect.path for name, dialect in DIALECTS.items()} == {
        "chat": "/v1/chat/completions",
        "completions": "/v1/completions",
        "responses": "/v1/responses",
    }


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_fields_that_are_not_openais_are_sent_only_where_asked_for(endpoint: Endpoint) -> None:
    plain = body(endpoint)
    assert body(endpoint, ignore_eos=True) == plain | {"ignore_eos": True}
    assert body(endpoint, include_timings=True) == plain | {"include_timings": True}


# How answers with typed events are read

STREAM = SSE_HEAD + chunked(
    typed("response.created", response={"status": "in_progress"}),
    typed("response.output_item.added", item={"type": "message"}),
    delta("hm", of="reasoning_text"),
    delta("Héllo"),
    delta(" wörld"),
    typed("response.output_text.done", text="Héllo wörld"),
    completed(timings={"total_ms": 1.5}),
)


def test_typed_events_read_the_same_at_every_cut() -> None:
    whole = read(STREAM)
    assert whole.ok and whole.text == "Héllo wörld"
    assert (whole.prompt_tokens, whole.output_tokens) == (3, 2)
    assert whole.timings == {"total_ms": 1.5}
    assert whole.finish_reasons == {0: "stop"}
    assert [(one.choice, one.generated) for one in whole.events] == [
        (NO_CHOICE, False),
        (NO_CHOICE, False),
        (0, True),
        (0, True),
        (0, True),
        (NO_CHOICE, False),
        (0, False),
    ]
    for pieces in [*cuts_in_two(STREAM), single_bytes(STREAM)]:
        assert told(read(*pieces)) == told(whole)


def test_an_answer_is_done_with_its_last_typed_event() -> None:
    sample = read(SSE_HEAD, chunked(delta("a"))[:-5], chunked(completed()))
    assert [one.stamp_ns for one in sample.events] == [2, 3]
    assert (sample.done_ns, sample.ttft_ns) == (3, 2)


def test_a_done_after_the_last_typed_event_does_no_harm() -> None:
    assert read(SSE_HEAD + chunked(delta("a"), completed(), DONE)).ok


def test_a_call_of_a_function_is_generated_from_its_name_on() -> None:
    name = typed("response.output_item.added", item={"type": "function_call", "name": "f"})
    sample = read(SSE_HEAD + chunked(name, delta("{}", of="function_call_arguments"), completed()))
    assert [one.generated for one in sample.events] == [True, True, False]
    assert sample.text == ""


def test_an_answer_that_its_limit_ended_is_complete() -> None:
    response = {"usage": {"output_tokens": 2}, "incomplete_details": {"reason": "max_output_tokens"}}
    sample = read(SSE_HEAD + chunked(delta("a"), typed("response.incomplete", response=response)))
    assert sample.ok and sample.finish_reasons == {0: "length"}
    assert sample.output_tokens == 2


@pytest.mark.parametrize(
    ("last", "error", "detail"),
    [
        (typed("response.incomplete", response={"status": "cancelled"}), "incomplete", "cancelled"),
        (
            typed("response.incomplete", response={"incomplete_details": {"reason": "content_filter"}}),
            "incomplete",
            "content_filter",
        ),
        (typed("response.failed", response={"error": {"message": "engine died"}}), "error event", "engine died"),
        (typed("error", message="overloaded"), "error event", "overloaded"),
        (event({"choices": []}), "protocol", "type"),
        (b"", "cut", "without"),
    ],
)
def test_an_answer_that_ended_otherwise_is_a_failure_by_its_reason(last: bytes, error: str, detail: str) -> None:
    sample = read(SSE_HEAD + chunked(*(part for part in (delta("a"), last) if part)))
    assert sample.error == error
    assert detail in sample.detail


# Refusals that speak for all


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_who_may_not_ask_or_asks_in_vain_is_told_so(status: int) -> None:
    reason = hopeless(RequestSample(status=status, error=f"http {status}", detail="no such model"))
    assert reason is not None and "no such model" in reason and str(status) in reason


@pytest.mark.parametrize("status", [400, 422])
def test_a_field_that_the_server_does_not_know_is_named(status: int) -> None:
    reason = hopeless(RequestSample(status=status, detail="Unrecognized request argument supplied: ignore_eos"))
    assert reason is not None and "doesn't know ignore_eos" in reason


@pytest.mark.parametrize(
    "sample",
    [
        RequestSample(status=400, detail="the prompt is too long"),
        RequestSample(status=429, detail="ignore_eos"),
        RequestSample(status=503),
        RequestSample(error="connect"),
        RequestSample(status=200),
    ],
)
def test_other_refusals_say_nothing_of_the_next_request(sample: RequestSample) -> None:
    assert hopeless(sample) is None
