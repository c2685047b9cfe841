import json

import pytest
from structlog.testing import capture_logs

from server.ledger import Ledger
from server.stages import StageClock
from server.telemetry.records import Records
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat


def finished(name: str) -> Ledger:
    return Ledger(id=name, clock=StageClock(started=0), endpoint="chat", status=200, ended_ns=10**6)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_no_more_records_are_kept_than_the_limit(limit: int) -> None:
    records = Records(limit)
    for number in range(5):
        records.add(finished(str(number)))
    assert [record["id"] for record in records.latest(100)] == ["4", "3", "2"][:limit]


def test_the_newest_records_come_first() -> None:
    records = Records(10)
    for number in range(5):
        records.add(finished(str(number)))
    assert [record["id"] for record in records.latest(2)] == ["4", "3"]


@pytest.mark.parametrize("stream", [True, False])
async def test_each_request_is_one_log_line_without_its_text(site: Served[FakeEngine], stream: bool) -> None:
    with capture_logs() as logs:
        exchange = site.open(CHAT, chat(stream=stream, messages=[{"role": "user", "content": "hush"}], user="secret"))
        (await site.engine.sequence()).say("confidential")
        site.engine.sequences[0].end()
        await exchange
    (line,) = [log for log in logs if log["event"] == "request"]
    assert line["id"] == exchange.headers["x-request-id"]
    assert (line["status"], line["outcome"], line["finish_reasons"]) == (200, "ok", ["stop"])
    assert line["prompt_tokens"] > 0
    assert line["output_tokens"] > 0
    assert line["ttft_ms"] > 0
    assert set(line["stages_ms"]) >= {"receive", "tokenize", "send"}
    everything = json.dumps(logs)
    assert not any(secret in everything for secret in ("hush", "secret", "confidential"))


async def test_a_failed_request_is_one_log_line_too(site: Served[FakeEngine]) -> None:
    with capture_logs() as logs:
        await site.post(CHAT, chat(model="other"))
    (line,) = [log for log in logs if log["event"] == "request"]
    assert (line["status"], line["outcome"], line["ttft_ms"]) == (404, "model_not_found", None)


def refused(at_ns: int) -> Ledger:
    return Ledger(id="no", clock=StageClock(started=0), status=503, error="server_overloaded", ended_ns=at_ns)


def test_refusals_share_a_line_per_second() -> None:
    records = Records(10)
    with capture_logs() as logs:
        for at_ms in (1, 2, 900, 1000, 1001, 1500, 2002):
            records.add(refused(at_ms * 10**6))
    assert [(line["outcome"], line["refused"]) for line in logs] == [("server_overloaded", n) for n in (1, 4, 2)]
    assert len(records.latest(100)) == 7, "each has its record"


def test_a_request_that_was_looked_at_has_its_own_line_however_it_ended() -> None:
    records = Records(10)
    with capture_logs() as logs:
        for _ in range(3):
            ledger = refused(10**6)
            ledger.prompt_tokens = 7
            records.add(ledger)
    assert len(logs) == 3
