import asyncio
from dataclasses import replace

import pytest

from bench.client import stream_request
from bench.load import Target
from bench.sample import NO_CHOICE, RequestSample
from tests.bench.bytes import (
    DONE,
    SSE_HEAD,
    chat_event,
    chunked,
    cuts_in_two,
    event,
    playing,
    read_all,
    single_bytes,
    usage_event,
)

STREAM = SSE_HEAD + chunked(
    chat_event("", role="assistant"),
    chat_event("Héllo"),
    chat_event(" wörld", finish="stop"),
    usage_event(2),
    DONE,
)


def facts(sample: RequestSample) -> RequestSample:
    """A sample without its stamps."""
    events = [stamped._replace(stamp_ns=0) for stamped in sample.events]
    return replace(sample, events=events, sent_ns=0, headers_ns=None, done_ns=None)


def test_a_stream_reads_the_same_at_every_cut() -> None:
    whole = read_all([STREAM])
    assert whole.ok and whole.status == 200
    assert whole.text == "Héllo wörld"
    assert whole.output_tokens == 2
    assert whole.finish_reasons == {0: "stop"}
    assert [(one.choice, one.generated) for one in whole.events] == [
        (0, False),
        (0, True),
        (0, True),
        (NO_CHOICE, False),
    ]
    for pieces in [*cuts_in_two(STREAM), single_bytes(STREAM)]:
        assert facts(read_all(pieces)) == facts(whole)


def test_every_event_has_the_stamp_of_the_read_that_completed_it() -> None:
    first, second = chat_event("a"), chat_event("b")
    body = chunked(first + second, chat_event("c"), DONE)
    cut = len(SSE_HEAD) + body.index(b"\r\n") + 2 + len(first) + len(second) - 1
    sample = read_all([SSE_HEAD, (SSE_HEAD + body)[len(SSE_HEAD) : cut], (SSE_HEAD + body)[cut:]])
    assert sample.headers_ns == 1
    assert [one.stamp_ns for one in sample.events] == [2, 3, 3]
    assert sample.done_ns == 3


def test_events_need_not_match_chunks() -> None:
    events = chat_event("a") + chat_event("b") + usage_event(2) + DONE
    for cut in range(len(events) + 1):
        parts = [part for part in (events[:cut], events[cut:]) if part]
        assert read_all([SSE_HEAD + chunked(*parts)]).text == "ab"


def test_choices_of_one_stream_are_told_apart() -> None:
    sample = read_all(
        [
            SSE_HEAD,
            chunked(chat_event("a"), chat_event("x", index=1), chat_event("b", finish="length"), DONE),
        ]
    )
    assert sample.texts == {0: "ab", 1: "x"}
    assert sample.finish_reasons == {0: "length"}


def test_completions_carry_their_text_in_the_choice() -> None:
    body = chunked(event({"choices": [{"index": 0, "text": "a"}]}), event({"choices": [{"text": ""}]}), DONE)
    sample = read_all([SSE_HEAD + body])
    assert sample.text == "a"
    assert [one.generated for one in sample.events] == [True, False]


@pytest.mark.parametrize("delta", [{"reasoning": "hm"}, {"reasoning_content": "hm"}, {"tool_calls": [{"index": 0}]}])
def test_reasoning_and_tool_data_are_generated_too(delta: dict[str, object]) -> None:
    sample = read_all([SSE_HEAD + chunked(event({"choices": [{"index": 0, "delta": delta}]}), DONE)])
    assert [one.generated for one in sample.events] == [True]
    assert sample.text == ""


def test_comments_are_no_events() -> None:
    sample = read_all([SSE_HEAD + chunked(b": keep-alive\n\n", chat_event("a"), DONE)])
    assert len(sample.events) == 1


def test_a_stream_without_done_is_cut_even_if_http_ended_well() -> None:
    sample = read_all([SSE_HEAD + chunked(chat_event("a"))])
    assert (sample.error, sample.done_ns) == ("cut", None)
    assert sample.text == "a"


def test_a_connection_lost_anywhere_before_done_is_a_cut() -> None:
    before_done = STREAM.index(b"data: [DONE]") + len(DONE) - 1
    for end in range(before_done + 1):
        assert read_all([STREAM[:end]]).error == "cut"


def test_a_connection_lost_after_done_lost_nothing() -> None:
    after_done = STREAM.index(b"data: [DONE]") + len(DONE)
    for end in range(after_done, len(STREAM)):
        assert read_all([STREAM[:end]]).ok


def test_an_error_event_counts_as_such_although_done_follows() -> None:
    sample = read_all([SSE_HEAD + chunked(chat_event("a"), event({"error": {"message": "engine died"}}), DONE)])
    assert sample.error == "error event"
    assert "engine died" in sample.detail


def test_the_first_cause_of_a_failure_is_kept() -> None:
    assert read_all([SSE_HEAD + chunked(event({"error": {"message": "x"}}))]).error == "error event"


@pytest.mark.parametrize("payload", [b"data: {nonsense\n\n", b"data: 7\n\n"])
def test_an_event_that_is_no_json_object_is_a_protocol_error(payload: bytes) -> None:
    assert read_all([SSE_HEAD + chunked(payload, DONE)]).error == "protocol"


def test_a_refusal_is_counted_by_status_and_keeps_its_text() -> None:
    raw = b'HTTP/1.1 429 Too Many Requests\r\nContent-Length: 21\r\n\r\n{"error":"too many"}\n'
    for pieces in cuts_in_two(raw):
        sample = read_all(pieces)
        assert (sample.status, sample.error) == (429, "http 429")
        assert sample.detail == '{"error":"too many"}\n'


def test_a_chunked_refusal_is_read_as_well() -> None:
    raw = b"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"dra", b"ining")
    assert read_all(single_bytes(raw)).detail == "draining"


def test_a_refusal_that_lasts_until_the_connection_closes_is_complete() -> None:
    assert read_all([b"HTTP/1.0 500 Oops\r\n\r\nbroken"]).error == "http 500"


def test_a_refusal_shorter_than_it_says_is_a_cut() -> None:
    assert read_all([b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\nbroken"]).error == "cut"


def test_a_plain_document_is_kept_whole() -> None:
    sample = read_all([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"])
    assert sample.ok
    assert (sample.body, sample.done_ns, sample.ttft_ns) == (b"{}", 1, None)


@pytest.mark.parametrize("raw", [b"SSH-2.0-x\r\n\r\n", SSE_HEAD + b"nonsense\r\n"])
def test_bytes_that_are_not_http_are_a_protocol_error(raw: bytes) -> None:
    assert read_all([raw]).error == "protocol"


# Over a socket


async def test_a_stream_is_read_from_a_socket() -> None:
    async with playing(STREAM) as port:
        sample = await stream_request("127.0.0.1", port, "/v1/chat/completions", b"{}")
    assert facts(sample) == facts(read_all([STREAM]))
    assert sample.headers_ns is not None and sample.done_ns is not None
    stamps = [sample.sent_ns, sample.headers_ns, *(one.stamp_ns for one in sample.events), sample.done_ns]
    assert stamps == sorted(stamps)


async def test_a_stream_that_comes_byte_by_byte_is_read_from_a_socket() -> None:
    async with playing(*single_bytes(STREAM)) as port:
        sample = await stream_request("127.0.0.1", port, "/", b"{}")
    assert facts(sample) == facts(read_all([STREAM]))


async def test_a_finished_stream_is_not_waited_for_until_the_server_closes() -> None:
    async with playing(STREAM, hold_open=True) as port, asyncio.timeout(30):
        assert (await stream_request("127.0.0.1", port, "/", b"{}")).ok


async def test_a_server_that_closes_early_is_a_cut() -> None:
    async with playing(STREAM[:-30]) as port:
        assert (await stream_request("127.0.0.1", port, "/", b"{}")).error == "cut"


async def test_a_silent_server_ends_with_the_deadline() -> None:
    async with playing(SSE_HEAD, hold_open=True) as port:
        sample = await stream_request("127.0.0.1", port, "/", b"{}", deadline_s=0.2)
    assert sample.error == "deadline"


async def test_a_port_nobody_listens_on_is_a_failed_connection() -> None:
    async with playing() as port:
        pass
    sample = await stream_request("127.0.0.1", port, "/", b"{}")
    assert sample.error == "connect"


async def test_a_target_sends_its_body_and_its_schedule() -> None:
    async with playing(STREAM) as port:
        target = Target("127.0.0.1", port, "/", body=lambda number: b"x" * number)
        sample = await target.send(3, 123)
    assert sample.ok
    assert sample.scheduled_ns == 123
