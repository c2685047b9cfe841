"""Requests, answers and points as the tests of the overload bench need them."""

from collections.abc import Sequence

import orjson

from bench.overload_plan import Request
from bench.overload_point import Answered, Cost, Objectives, Point
from bench.sample import RequestSample, StreamEvent

OBJECTIVES = Objectives(ttft_s=1.0, tpot_s=0.2)
S = 1_000_000_000


def completed(
    number: int = 0, *, tokens: int = 100, ttft_s: float = 0.5, tpot_s: float = 0.1, out: int = 11
) -> Answered:
    first = round(ttft_s * S)
    last = first + round(tpot_s * S) * (out - 1)
    events = [StreamEvent(first, 0, True, None)] + ([StreamEvent(last, 0, True, "length")] if out > 1 else [])
    sample = RequestSample(scheduled_ns=0, done_ns=last, status=200, output_tokens=out, events=events)
    return Answered(Request(number, tokens - out, out), sample)


def refused(number: int = 0, *, tokens: int = 100, after_s: float = 0.01, code: str = "server_overloaded") -> Answered:
    body = orjson.dumps({"error": {"message": "later", "type": "server_error", "code": code}})
    sample = RequestSample(scheduled_ns=0, headers_ns=round(after_s * S), status=503, error="http 503", body=body)
    return Answered(Request(number, tokens - 1, 1), sample)


def failed(number: int = 0, error: str = "cut") -> Answered:
    return Answered(Request(number, 99, 1), RequestSample(scheduled_ns=0, error=error))


def point(arm: str, factor: float, answered: Sequence[Answered], *, window_s: float = 10.0, turn: int = 0) -> Point:
    cost = Cost(wall_ns=10 * S, api_ns=S, tree_ns=9 * S, client_ns=S // 2, others_ns=0)
    return Point(arm, turn, factor, factor * 4, window_s, OBJECTIVES, answered, cost)


def good_point(arm: str, factor: float, good: int, turned_away: int = 0, turn: int = 0) -> Point:
    answered = [completed(number) for number in range(good)] + [refused(good + n) for n in range(turned_away)]
    return point(arm, factor, answered, turn=turn)
