from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.wire import (
    ChunkedDecoder,
    HeadReader,
    LengthDecoder,
    SseParser,
    UntilCloseDecoder,
    WireError,
    parse_head,
    request_bytes,
)
from tests.bench.bytes import chunked, cuts_in_two, single_bytes


def parse(pieces: list[bytes]) -> list[bytes]:
    parser = SseParser()
    return [payload for piece in pieces for payload in parser.feed(piece)]


def dechunk(pieces: list[bytes]) -> tuple[bytes, bool]:
    decoder = ChunkedDecoder()
    return b"".join([decoder.feed(piece) for piece in pieces]), decoder.done


@st.composite
def cut_anywhere(draw: st.DrawFn, data: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    whole = draw(data)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    bounds = [0, *cuts, len(whole)]
    return whole, [whole[start:end] for start, end in pairwise(bounds)]


# Everything that means something to an SSE parser, and little else, so that odd neighbours meet often.
sse_streams = st.lists(st.sampled_from([b"data:", b" ", b"x", b"\n", b"\n\n", b"\r\n", b"\r", b":", b"event: e"])).map(
    b"".join
)


@given(cut_anywhere(sse_streams))
@example((b"data:data:\r\r\n\n", [b"data:data:\r\r\n", b"\n"]))  # the second CR was joined with the next read's LF
def test_events_are_the_same_wherever_the_stream_is_cut(cut: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = cut
    assert parse(pieces) == parse([whole])


def test_a_usual_stream_is_the_same_at_every_cut() -> None:
    stream = b': hello\n\ndata: {"a":1}\n\ndata:{"b":2}\nid: 7\n\nevent: x\ndata: one\ndata: two\n\ndata: [DONE]\n\n'
    expected = [b'{"a":1}', b'{"b":2}', b"one\ntwo", b"[DONE]"]
    for pieces in cuts_in_two(stream):
        assert parse(pieces) == expected
    assert parse(single_bytes(stream)) == expected


def test_crlf_line_ends_are_read_as_lf() -> None:
    stream = b"data: one\r\n\r\ndata: two\r\ndata: three\r\n\r\n"
    for pieces in cuts_in_two(stream):
        assert parse(pieces) == [b"one", b"two\nthree"]


def test_several_events_of_one_read_come_out_in_order() -> None:
    assert parse([b"data: 1\n\ndata: 2\n\ndata: 3\n\nda"]) == [b"1", b"2", b"3"]


def test_an_unterminated_event_is_no_event() -> None:
    assert parse([b"data: 1\n\ndata: 2\n"]) == [b"1"]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.data())
def test_a_chunked_body_is_the_same_wherever_it_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    _, pieces = data.draw(cut_anywhere(st.just(chunked(*parts))))
    assert dechunk(pieces) == (b"".join(parts), True)


def test_chunk_extensions_and_trailers_are_passed_over() -> None:
    stream = b"3;name=value\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n"
    for pieces in cuts_in_two(stream):
        assert dechunk(pieces) == (b"abc", True)


@pytest.mark.parametrize("stream", [b"zz\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"\r\n", b"3\r\nabcd\r\n", b"1" * 5000])
def test_a_broken_chunk_is_an_error_at_every_cut(stream: bytes) -> None:
    for pieces in [[stream], single_bytes(stream)]:
        with pytest.raises(WireError):
            dechunk(pieces)


def test_a_chunked_body_without_its_end_is_not_done() -> None:
    assert dechunk([b"3\r\nabc\r\n"]) == (b"abc", False)


def test_a_body_of_known_length_ends_there() -> None:
    decoder = LengthDecoder(5)
    assert (decoder.feed(b"abc"), decoder.done) == (b"abc", False)
    assert (decoder.feed(b"defg"), decoder.done) == (b"de", True)


def test_a_head_is_read_at_every_cut_and_the_body_behind_it_is_kept() -> None:
    raw = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 4\r\n\r\nbody"
    for pieces in cuts_in_two(raw):
        reader = HeadReader()
        rest = b""
        for piece in pieces:
            rest = reader.feed(piece) if reader.head is None else rest + piece
        assert reader.head is not None
        assert (reader.head.status, reader.head.headers["retry-after"], rest) == (503, "2", b"body")


def test_interim_responses_are_passed_over() -> None:
    reader = HeadReader()
    assert reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest") == b"rest"
    assert reader.head is not None and reader.head.status == 200


def test_an_endless_head_is_an_error() -> None:
    with pytest.raises(WireError):
        HeadReader().feed(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000)


@pytest.mark.parametrize("raw", [b"SSH-2.0-server", b"HTTP/1.1 abc", b"HTTP/2 200 OK", b""])
def test_something_else_than_http_is_an_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_head(raw)


def test_the_body_is_framed_as_the_head_says() -> None:
    assert isinstance(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").body_decoder(), ChunkedDecoder)
    assert isinstance(parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 3").body_decoder(), LengthDecoder)
    assert isinstance(parse_head(b"HTTP/1.1 200 OK").body_decoder(), UntilCloseDecoder)
    with pytest.raises(WireError):
        parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: -3").body_decoder()


def test_a_request_carries_its_headers_and_the_length_of_its_body() -> None:
    raw = request_bytes("127.0.0.1", 8000, "/v1/completions", b"{}", {"Authorization": "Bearer k"})
    assert raw == (
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
        b"Accept: text/event-stream\r\nAuthorization: Bearer k\r\nContent-Length: 2\r\n\r\n{}"
    )
