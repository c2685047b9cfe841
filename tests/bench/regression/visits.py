"""Visits of a server whose latencies are drawn from known distributions."""

from collections.abc import Sequence

import numpy as np

from bench.regression.measures import Arm
from bench.regression.pairs import Visit
from bench.sample import RequestSample
from tests.support.results import completed, result

USERS = 4
GAPS = 4


def drawn(
    rng: np.random.Generator, arm: str, turn: int, place: int, *, requests: int, slower: float, drift: float
) -> Visit:
    """A closed loop of `USERS`. TTFT about 100 ms and gaps about 20 ms, lognormal; a visit's own factor about 1."""
    pace = slower * rng.lognormal(0.0, drift)
    free_s = [0.0] * USERS
    samples: list[RequestSample] = []
    for _ in range(requests):
        user = free_s.index(min(free_s))
        ttft_ms, gaps_ms = 100 * pace * rng.lognormal(0.0, 0.2), 20 * pace * rng.lognormal(0.0, 0.1, GAPS)
        samples.append(completed(free_s[user], ttft_ms=ttft_ms, gaps_ms=gaps_ms.tolist()))
        free_s[user] += (ttft_ms + sum(gaps_ms)) / 1e3
    cpu_ns = round(1e6 * pace * requests * (GAPS + 1))
    return Visit(arm, turn, place, result(samples, wall_s=max(free_s)), cpu_ns)


def two_arms(
    seed: int, *, slower: float = 1.0, requests: int = 60, rounds: int = 2, drift: float = 0.02
) -> tuple[Arm, Arm]:
    """A, and B that takes `slower` times as long, visited A B B A in each round."""
    rng = np.random.default_rng(seed)
    paces = {"A": 1.0, "B": slower}
    visits = [
        drawn(rng, arm, turn, place, requests=requests, slower=paces[arm], drift=drift)
        for turn in range(rounds)
        for place, arm in enumerate("ABBA")
    ]
    return of(visits, "A"), of(visits, "B")


def of(visits: Sequence[Visit], arm: str) -> Arm:
    return Arm([visit for visit in visits if visit.arm == arm])
