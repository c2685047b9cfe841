import json
from dataclasses import replace

import pytest

from bench.overload_point import Fate, quarters, reason, refused_shares
from bench.sample import RequestSample
from tests.bench.outcomes import OBJECTIVES, S, completed, failed, point, refused


def test_a_request_is_good_only_when_it_met_both_objectives() -> None:
    assert completed(ttft_s=1.0, tpot_s=0.2).fate(OBJECTIVES) is Fate.GOOD
    assert completed(ttft_s=1.001).fate(OBJECTIVES) is Fate.LATE
    assert completed(tpot_s=0.201).fate(OBJECTIVES) is Fate.LATE


def test_a_single_token_has_no_tpot_and_passes_that_objective() -> None:
    assert completed(out=1).fate(OBJECTIVES) is Fate.GOOD


def test_what_was_turned_away_is_refused_and_what_broke_is_failed() -> None:
    assert refused().fate(OBJECTIVES) is Fate.REFUSED
    assert failed("deadline").fate(OBJECTIVES) is Fate.FAILED
    server_error = replace(refused().sample, status=500)
    assert replace(refused(), sample=server_error).fate(OBJECTIVES) is Fate.FAILED


def test_a_completion_without_any_text_is_not_good() -> None:
    silent = replace(completed().sample, events=[])
    assert replace(completed(), sample=silent).fate(OBJECTIVES) is Fate.LATE


def test_goodput_counts_good_requests_and_their_tokens_per_second_of_the_window() -> None:
    found = point("ours", 1.0, [completed(0), completed(1), completed(2, ttft_s=2.0), refused(3), failed(4)])
    assert found.goodput == pytest.approx(0.2)
    assert found.token_goodput == pytest.approx(2.2)
    assert found.figures()["fates"] == {"good": 2, "late": 1, "refused": 1, "failed": 1}


def test_percentiles_say_how_many_samples_they_are_of() -> None:
    figures = point("ours", 1.0, [completed(0), completed(1), refused(2, after_s=0.02)]).figures()
    ttft, refusal = figures["ttft_ms"], figures["refusal_ms"]
    assert isinstance(ttft, dict) and isinstance(refusal, dict)
    assert (ttft["count"], ttft["percentiles"]["p99"]) == (2, 500.0)
    assert (refusal["count"], refusal["percentiles"]["p50"]) == (1, 20.0)


def test_refusals_are_told_apart_by_status_and_reason() -> None:
    figures = point("ours", 1.0, [refused(0), refused(1), refused(2, code="slow"), failed(3)]).figures()
    assert figures["refusals"] == {"503 server_overloaded": 2, "503 slow": 1}
    assert figures["failures"] == {"- cut": 1}


def test_a_reason_is_the_bodys_own_word_where_it_has_one() -> None:
    assert reason(refused(code="why").sample) == "why"
    assert reason(completed().sample) is None
    for body in (b"", b"not json", b"[]", b'{"error": "x"}', b'{"error": {"code": 503}}'):
        assert reason(RequestSample(error="http 503", body=body)) == "http 503"


def test_refused_shares_go_from_the_shortest_quarter_to_the_longest() -> None:
    answered = [completed(n, tokens=100 * n + 50) for n in range(6)] + [
        refused(6, tokens=9000),
        refused(7, tokens=9001),
    ]
    assert refused_shares(answered[::-1]) == [0.0, 0.0, 0.0, 1.0]
    assert refused_shares([completed(0, tokens=20), refused(1, tokens=10)]) == [1.0, 0.0]
    assert refused_shares([]) == []


def test_quarters_hold_everybody_once() -> None:
    answered = [completed(n, tokens=50 + n) for n in range(10)]
    assert [len(quarter) for quarter in quarters(answered)] == [2, 3, 2, 3]
    assert [one for quarter in quarters(answered) for one in quarter] == answered


def test_a_point_with_a_late_generator_is_not_valid() -> None:
    assert point("ours", 1.0, [completed()]).valid
    late = replace(completed(), sample=replace(completed().sample, sent_ns=S // 10))
    assert not point("ours", 1.0, [late]).valid


def test_a_point_keeps_its_raw_samples() -> None:
    found = json.loads(json.dumps(point("ours", 2.0, [completed(4), refused(5)]).as_dict()))
    first, second = found["requests"]
    assert (first["number"], first["ttft_ns"], first["fate"], first["output_tokens"]) == (4, S // 2, "good", 11)
    assert (second["status"], second["reason"], second["refusal_ns"]) == (503, "server_overloaded", S // 100)
    assert found["cost"]["api_ns"] == S and found["figures"]["client_cpu_share"] == 0.05
