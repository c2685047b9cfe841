"""Five hundred requests of every fate over real sockets: the counters are what their clients have counted."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from server.ingress import key_file
from server.ingress.key import Scope
from tests.reliability.readers import Reader, readers
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.live import listening
from tests.support.site import CHAT, COMPLETIONS, chat, completion
from tests.support.waiting import until

Samples = dict[tuple[str, tuple[str, ...]], float]
Outcome = tuple[str, str]  # endpoint, and how it ended

SLOTS, PLACES, CLIENTS = 16, 8, 12
ENDLESS = 100_000
RATE = 5  # requests a minute of the narrow key
BURST = 100  # several times the slots and places, at once
ENDPOINTS = {CHAT: "chat", COMPLETIONS: "completions", "/v1/responses": "responses"}


class Caller:
    """Makes requests, and tells of each how it ended as far as a client can know."""

    def __init__(self, port: int, keys: dict[str, str]) -> None:
        self.tokens: Counter[str] = Counter()
        self._port = port
        self._keys = keys

    async def streamed(self) -> Outcome:
        payload = chat(stream=True, max_tokens=7, n=2, stream_options={"include_usage": True})
        async with self._asking(CHAT, payload) as reader:
            assert await reader.head() == 200
            *_, last, done = await reader.events()
            assert done == sse.DONE
            self._count(last["usage"])
        return "chat", "ok"

    async def collected(self) -> Outcome:
        return await self._answered(COMPLETIONS, completion(max_tokens=9))

    async def wrong(self) -> Outcome:
        return await self._answered(CHAT, chat(temperature=-1))

    async def misled(self) -> Outcome:
        return await self._answered("/v1/responses", {"model": "other", "input": "Hi"})

    async def unknown(self) -> Outcome:
        return await self._answered(CHAT, chat(), key="unknown")

    async def limited(self) -> Outcome:
        return await self._answered(COMPLETIONS, completion(max_tokens=1), key="narrow")

    async def pressed(self) -> Outcome:
        """One of more than there is room for."""
        return await self._answered(COMPLETIONS, completion(max_tokens=100))

    async def hasty(self) -> Outcome:
        """Gone before the first byte of the answer."""
        async with self._asking(COMPLETIONS, completion(max_tokens=ENDLESS)) as reader:
            await reader.close()
        return "completions", "client_gone"

    async def fickle(self) -> Outcome:
        """Gone after it."""
        async with self._asking(CHAT, chat(stream=True, max_tokens=ENDLESS)) as reader:
            assert await reader.head() == 200
            await reader.chunk()
        return "chat", "client_gone"

    async def late(self) -> Outcome:
        """Its time is over in the middle of the stream, or before it has begun."""
        headers = {"X-Request-Timeout-Ms": "100"}
        async with self._asking(CHAT, chat(stream=True, max_tokens=ENDLESS), headers) as reader:
            status = await reader.head()
            body = await reader.body()
            failure = json.loads(body) if status != 200 else sse.events(body)[-2]
            return "chat", failure["error"]["code"]

    @asynccontextmanager
    async def _asking(
        self, path: str, payload: Any, headers: Mapping[str, str] = MappingProxyType({}), key: str = "wide"
    ) -> AsyncIterator[Reader]:
        async with readers(self._port, 1) as (reader,):
            reader.post(path, payload, {"Authorization": f"Bearer {self._keys[key]}", **headers})
            yield reader

    async def _answered(self, path: str, payload: Any, key: str = "wide") -> Outcome:
        """By a body, of whatever status."""
        async with self._asking(path, payload, key=key) as reader:
            status = await reader.head()
            body = json.loads(await reader.body())
        if status == 200:
            self._count(body["usage"])
        return ENDPOINTS[path], body["error"]["code"] if status != 200 else "ok"

    def _count(self, usage: dict[str, int]) -> None:
        self.tokens["prompt"] += usage["prompt_tokens"]
        self.tokens["output"] += usage["completion_tokens"]


MIXED = {
    Caller.streamed: 80,
    Caller.collected: 80,
    Caller.wrong: 40,
    Caller.misled: 20,
    Caller.unknown: 20,
    Caller.limited: 40,
    Caller.hasty: 40,
    Caller.fickle: 40,
    Caller.late: 40,
}


async def test_what_is_counted_is_what_five_hundred_clients_saw(scripted: MakeScripted, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    everything = tuple(Scope)
    keys = {
        "wide": key_file.add(path, "wide", scopes=everything),
        "narrow": key_file.add(path, "narrow", scopes=everything, requests_per_minute=RATE),
        "unknown": "sg-unknown",
    }
    settings = (f"admission.max_batch_size={SLOTS}", f"admission.max_queue_size={PLACES}", f"keys.file={path}")
    engine = scripted(step_ms=5, max_model_len=2 * ENDLESS)
    async with listening(engine, *settings) as live:
        unknown = failures("unknown")
        caller = Caller(live.port, keys)
        seen = await mixed(caller)
        await until(lambda: live.idle)
        seen += await burst(caller)
        await until(lambda: live.idle and not engine.in_flight)
        assert seen.total() == 500

        async with readers(live.port, 1) as (reader,):
            samples = await scraped(reader, keys["wide"])
            records = await recorded(reader, keys["wide"])
        counted = {labels: count for (name, labels), count in samples.items() if name == "streamgauge_requests_total"}
        assert counted == seen
        assert Counter((record["endpoint"], record["outcome"]) for record in records) == seen
        assert failures("unknown") - unknown == MIXED[Caller.unknown]
        assert seen["completions", "rate_limit_exceeded"] >= MIXED[Caller.limited] / 2
        refused = seen["completions", "server_overloaded"]
        assert refused > 0
        assert sum(n for (name, _), n in samples.items() if name == "streamgauge_admission_refused_total") == refused
        check_histograms(samples, records, seen)
        check_tokens(samples, records, caller.tokens)
        for gauge in ("requests_in_flight", "admission_in_use", "admission_queued", "parked_streams"):
            assert samples[f"streamgauge_{gauge}", ()] == 0


async def mixed(caller: Caller) -> Counter[Outcome]:
    """In any order, a few at a time, so that nobody is turned away who cannot know."""
    fates = [fate for fate, count in MIXED.items() for _ in range(count)]
    random.Random(23).shuffle(fates)
    seen: Counter[Outcome] = Counter()

    async def work() -> None:
        while fates:
            seen[await fates.pop()(caller)] += 1

    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    return seen


async def burst(caller: Caller) -> Counter[Outcome]:
    return Counter(await asyncio.gather(*(caller.pressed() for _ in range(BURST))))


def check_histograms(samples: Samples, records: Sequence[Any], seen: Counter[Outcome]) -> None:
    for name in ("request", "unattributed"):
        assert samples[f"streamgauge_{name}_seconds_count", ()] == seen.total()
    first = samples["streamgauge_time_to_first_token_seconds_count", ()]
    assert first == sum(record["ttft_ms"] is not None for record in records)
    assert first >= seen["chat", "ok"] + seen["completions", "ok"] + MIXED[Caller.fickle]


def check_tokens(samples: Samples, records: Sequence[Any], told: Counter[str]) -> None:
    """Clients know the tokens of what they have read to its end; of the others only the server does."""
    for kind in ("prompt", "output"):
        whole = sum(record[f"{kind}_tokens"] for record in records if record["outcome"] == "ok")
        assert whole == told[kind]
        begun = sum(record[f"{kind}_tokens"] for record in records if record["output_tokens"])
        assert samples["streamgauge_tokens_total", (kind,)] == begun > whole


async def scraped(reader: Reader, key: str) -> Samples:
    text = (await got(reader, "/metrics", key)).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("streamgauge")
    }


async def recorded(reader: Reader, key: str) -> list[Any]:
    found: list[Any] = json.loads(await got(reader, "/debug/requests?limit=1000", key))["requests"]
    return found


async def got(reader: Reader, path: str, key: str) -> bytes:
    reader.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    assert await reader.head() == 200
    return await reader.body()


def failures(reason: str) -> float:
    """Of keys, since this process began."""
    return REGISTRY.get_sample_value("streamgauge_auth_failures_total", {"reason": reason}) or 0
