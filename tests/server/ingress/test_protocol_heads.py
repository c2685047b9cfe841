"""What is no request, or asks for more than a request may: each is told so, however its bytes are cut."""

import pytest

from tests.server.ingress.wire import CHUNKED, GET, POST, Reader, Wire, refusal

MALFORMED = {
    "garbage": b"hello\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "http 0.9": b"GET /\r\n\r\n",
    "http 2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 3.7": b"GET / HTTP/3.7\r\nHost: x\r\n\r\n",
    "length and chunks": CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "length that is no number": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n",
    "length past 64 bits": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    "bare return in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rInjected: c\r\n\r\n",
    "nul in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "folded value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "blank before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "no path": b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n",
    "connect": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad chunk size": CHUNKED + b"zz\r\n",
    "endless chunk size": CHUNKED + b"f" * 40 + b"\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_no_request_is_answered_and_the_connection_closed(wire: Wire, reader: Reader, case: str) -> None:
    await wire.feed(MALFORMED[case])
    assert refusal(wire) == (400, "invalid_http")
    assert reader.bodies == []
    await wire.feed(GET)
    assert wire.take() == b""


@pytest.mark.parametrize("case", MALFORMED)
async def test_it_makes_no_difference_how_the_bytes_are_cut(wire: Wire, case: str) -> None:
    for byte in MALFORMED[case]:
        await wire.feed(bytes([byte]))
    assert refusal(wire) == (400, "invalid_http")


@pytest.mark.parametrize("host", [b"x/?", b"x/#", b"x y", b"x@y", b"x\\", b'"x"', b"\xc3\xa4"])
async def test_a_host_that_is_none_is_refused(wire: Wire, host: bytes) -> None:
    await wire.feed(GET.replace(b"Host: x", b"Host: " + host))
    assert refusal(wire) == (400, "invalid_host")


@pytest.mark.parametrize("line", [b"A: b", b"Host: x\r\nHost: y", b"Host: x\r\nhost: x"])
async def test_a_request_names_its_host_once(wire: Wire, line: bytes) -> None:
    await wire.feed(GET.replace(b"Host: x", line))
    assert refusal(wire) == (400, "invalid_host")


@pytest.mark.parametrize("host", [b"", b"localhost:8000", b"[::1]:8000", b"a-b_c.example", b"127.0.0.1"])
async def test_usual_hosts_pass(wire: Wire, host: bytes) -> None:
    await wire.feed(GET.replace(b"Host: x", b"Host: " + host))
    assert wire.take().startswith(b"HTTP/1.1 200")


LARGE = {
    "url": b"GET /" + b"x" * 1024 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "value": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 1024 + b"\r\n\r\n",
    "name": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x" * 1024 + b": 1\r\n\r\n",
    "count": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 10 + b"\r\n",
    "many": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "endless url": b"GET /" + b"x" * 1_000_000,
    "endless value": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 1_000_000,
}


@pytest.mark.parametrize("cut", [100, 4096, 10_000_000])
@pytest.mark.parametrize("case", LARGE)
async def test_headers_are_bounded_in_size_and_number(wire: Wire, case: str, cut: int) -> None:
    data = LARGE[case]
    for place in range(0, min(len(data), 64 * cut), cut):
        await wire.feed(data[place : place + cut])
    assert refusal(wire) == (431, "headers_too_large")


@pytest.mark.parametrize("rest", [b"0\r\n" + b"A: b\r\n" * 200, b"0\r\nA: " + b"b" * 2000, b"1;" + b"x" * 2000])
async def test_what_surrounds_a_body_is_bounded_like_headers(wire: Wire, reader: Reader, rest: bytes) -> None:
    await wire.feed(CHUNKED)
    for place in range(0, len(rest), 100):
        await wire.feed(rest[place : place + 100])
    assert refusal(wire) == (431, "headers_too_large")
    assert reader.deserted == 1


async def test_headers_at_the_bound_pass(wire: Wire) -> None:
    await wire.feed(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 8 + b"B: " + b"x" * 900 + b"\r\n\r\n")
    assert wire.take().startswith(b"HTTP/1.1 200")


async def test_the_bound_is_of_one_request_and_not_of_what_comes_with_it(wire: Wire, reader: Reader) -> None:
    body = b"y" * 1500
    request = POST.replace(b"10", b"1500") + body
    await wire.feed(request * 3 + GET[:10])
    await wire.feed(GET[10:])
    assert wire.take().count(b"HTTP/1.1 200") == 4
    assert reader.bodies == [body, body, body, b""]
