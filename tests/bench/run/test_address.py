import pytest

from bench.run.address import Address, get, reach
from bench.run.spec import Closed, Spec, SpecError
from tests.support.truth_server import truth_server


def spec(url: str, key: str | None = None) -> Spec:
    return Spec(url, "m", Closed(1), 1, api_key=key)


@pytest.mark.parametrize(
    ("url", "host", "port", "root"),
    [
        ("http://box:8000", "box", 8000, ""),
        ("http://box:8000/", "box", 8000, ""),
        ("http://box:8000/v1", "box", 8000, ""),
        ("http://box:8000/v1/", "box", 8000, ""),
        ("http://box/openai/v1", "box", 80, "/openai"),
        ("http://[::1]:8000/v1", "::1", 8000, ""),
    ],
)
def test_a_url_says_where_the_api_is_with_or_without_its_version(url: str, host: str, port: int, root: str) -> None:
    found = Address.of(spec(url))
    assert (found.host, found.port, found.root) == (host, port, root)


def test_the_headers_have_the_host_as_it_was_given_and_the_key() -> None:
    assert Address.of(spec("http://[::1]:8000")).headers == {"Host": "[::1]:8000"}
    assert Address.of(spec("http://box", "k")).headers == {"Host": "box:80", "Authorization": "Bearer k"}


@pytest.mark.parametrize(
    "url",
    [
        "https://box:8000",
        "unix:///run/socket",
        "box:8000",
        "http://",
        "http://box:0",
        "http://box:x",
        "http://[::1",
        "http://box?a=b",
    ],
)
def test_a_url_that_cannot_be_called_is_an_error(url: str) -> None:
    with pytest.raises(SpecError, match=r"URL|http"):
        Address.of(spec(url))


def test_a_key_that_would_break_its_header_is_an_error_that_does_not_tell_it() -> None:
    with pytest.raises(SpecError) as caught:
        Address.of(spec("http://box", "secret\r\nX: y"))
    assert "secret" not in str(caught.value)


def test_the_key_is_in_no_representation() -> None:
    assert "secret" not in repr(Address.of(spec("http://box", "secret")))


async def test_a_name_is_looked_up_once_and_kept_for_the_header() -> None:
    async with truth_server() as server:
        found = await reach(Address.of(spec(f"http://localhost:{server.port}")))
    assert found.host == "127.0.0.1"
    assert found.headers["Host"] == f"localhost:{server.port}"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with truth_server() as server:
        pass
    with pytest.raises(SpecError, match=f"no server at 127.0.0.1:{server.port}"):
        await reach(Address.of(spec(server.url)))


async def test_a_page_is_read_whole_or_not_at_all() -> None:
    page = b"x" * 300_000
    async with truth_server(pages={"/below/page": page}) as server:
        address = Address.of(spec(f"{server.url}/below"))
        assert await get(address, "/page", 20) == page
        assert await get(address, "/other", 20) is None
