"""The client's id is repeated where it is harmless; everything is kept under our own."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from server.ingress.request_ids import RequestIds
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.live import listening
from tests.support.site import CHAT, Served, chat, serving

Site = Served[FakeEngine]

UNWANTED = [
    b"",
    b" ",
    b"a b",
    b"a\r\nSet-Cookie: x=1",
    b"a\n",
    b"x" * 129,
    b"x" * 10_240,
    "идентификатор".encode(),
    b"caf\xe9",
    b'{"id": 1}',
    b"\x1b[2Jgone",
    b"a;b",
    b"a/../b",
    b"%0d%0a",
    b"${jndi:ldap://x}",
    b"\x00",
]


async def ask(site: Site, path: str, ids: Sequence[bytes], method: str = "GET", body: bytes = b"") -> Exchange:
    scope = scope_of(method, path)
    scope["headers"] = [(b"x-request-id", value) for value in ids]
    return await Exchange(site.app, scope, [body])


def own_id(exchange: Exchange) -> str:
    found = exchange.headers["streamgauge-request-id"]
    assert found.startswith("req-")
    assert len(found) == len("req-") + 32
    return found


@pytest.mark.parametrize("client_id", ["x", "x" * 128, "0b3f-A.b_c-9"])
@pytest.mark.parametrize("path", ["/v1/models", "/live", "/ready", "/metrics", "/no-such", CHAT, "/v1/responses/x"])
async def test_a_clients_id_comes_back_on_every_route_beside_ours(site: Site, path: str, client_id: str) -> None:
    for method in ("GET", "POST"):
        exchange = await ask(site, path, [client_id.encode()], method)
        assert exchange.headers["x-request-id"] == client_id
        assert own_id(exchange) != client_id


@pytest.mark.parametrize("client_id", UNWANTED, ids=range(len(UNWANTED)))
async def test_an_id_that_could_do_harm_is_dropped_and_not_repaired(site: Site, client_id: bytes) -> None:
    for path in (CHAT, "/live"):
        exchange = await ask(site, path, [client_id], "POST", b"{")
        assert exchange.headers["x-request-id"] == own_id(exchange)


async def test_without_an_id_or_with_two_the_id_is_ours(site: Site) -> None:
    for ids in ([], [b"one", b"two"]):
        exchange = await ask(site, "/v1/models", ids)
        assert exchange.headers["x-request-id"] == own_id(exchange)


async def test_refusals_carry_both_ids(engine: FakeEngine) -> None:
    async with serving(engine, "keys.api_key=simple") as site:
        exchange = await ask(site, "/v1/models", [b"mine"])
        assert (exchange.status, exchange.headers["x-request-id"]) == (401, "mine")
        assert own_id(exchange)


async def test_the_log_and_the_records_have_both_ids(site: Site) -> None:
    with capture_logs() as logs:
        exchanges = [await ask(site, CHAT, ids, "POST", b"{") for ids in ([b"mine"], [b"not mine"])]
    lines = [line for line in logs if line["event"] == "request"]
    records = (await site.records())[::-1]
    for found in (lines, records):
        assert [each["id"] for each in found] == [own_id(exchange) for exchange in exchanges]
        assert [each["client_request_id"] for each in found] == ["mine", None]


async def test_two_requests_with_one_id_share_nothing(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as first, live.client() as second:
        for index, client in enumerate((first, second)):
            client.post(CHAT, chat(), {"X-Request-Id": "same"})
            (await engine.sequence(index)).say(f"answer {index}")
        for sequence in engine.sequences:
            sequence.end()
        for index, client in enumerate((first, second)):
            assert await client.head() == 200
            assert client.headers["x-request-id"] == "same"
            assert f"answer {index}".encode() in await client.body()
        ids = {client.headers["streamgauge-request-id"] for client in (first, second)}
    assert len(ids) == len({sequence.request.id for sequence in engine.sequences}) == 2
    assert not any("same" in sequence.request.id for sequence in engine.sequences)


async def test_headers_that_steer_an_engine_end_at_the_door() -> None:
    seen: list[Any] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.extend(scope["headers"])

    headers = {
        "Host": "test",
        "X-Data-Parallel-Rank": "3",
        "X-Vllm-Priority": "-9",
        "X-Priority": "-9",
        "X-Session-ID": "s",
        "X-Request-Id": "mine",
        "X-Stainless-Lang": "python",
    }
    await Exchange(RequestIds(app), scope_of("POST", CHAT, headers), [b""])
    assert seen == [(b"host", b"test"), (b"x-stainless-lang", b"python")]


async def test_a_priority_in_a_header_changes_nothing(site: Site) -> None:
    for index, headers in enumerate(({}, {"X-Vllm-Priority": "-9", "X-Priority": "-9", "X-Data-Parallel-Rank": "1"})):
        scope = scope_of("POST", CHAT, {"content-type": "application/json", **headers})
        exchange = Exchange(site.app, scope, [json.dumps(chat()).encode()])
        sequence = await site.engine.sequence(index)
        sequence.end()
        await exchange
        assert sequence.request.priority == 0
