"""A server in virtual time: requests come by chance, stay for as long as chance has it, and wait while all are busy."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapreplace
from itertools import islice
from math import log, sqrt

from bench.arrivals import poisson
from bench.metrics import percentile
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Open, Spec
from bench.sample import RequestSample
from tests.support.results import S, completed, failed, result, timings

PREFILL_S = 0.05


@dataclass(frozen=True)
class Queue:
    """M/G/c: `servers` at a time, each for a lognormal time of mean 1 s whose spread is `variation` of it."""

    servers: int
    variation: float

    def stays(self, rate: float, seed: int) -> Iterator[tuple[float, float, float]]:
        """When a request came, how long it waited and how long it was served, in seconds."""
        rng = random.Random(seed)
        sigma = sqrt(log(1 + self.variation**2))
        free = [0.0] * self.servers
        for arrival in poisson(rate, seed):
            service = rng.lognormvariate(-(sigma**2) / 2, sigma)
            start = max(free[0], arrival)
            heapreplace(free, start + service)
            yield arrival, start - arrival, service

    def meets(self, rate: float, seed: int, *, requests: int, percent: float, limit_s: float) -> bool:
        """Whether the percentile of waits is below the limit; a sixth more requests come first and don't count."""
        first = requests // 6
        waits = sorted(wait for _, wait, _ in islice(self.stays(rate, seed), first, first + requests))
        return percentile(waits, percent) < limit_s


@dataclass
class Server:
    """Puts load on a Queue, as `bench.run.load.run` does on a server. A closed loop finds it empty.

    Every `fails`-th request fails. Progress is told once a virtual second.
    """

    queue: Queue
    fails: int | None = None
    asked: list[Spec] = field(default_factory=list)

    async def load(self, spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
        self.asked.append(spec)
        if not isinstance(spec.load, Open):
            samples = [self.sample(index, float(index), 0.0, 1.0) for index in range(spec.requests)]
            return result(samples, spec=spec, wall_s=spec.requests / self.queue.servers)
        stays = islice(self.queue.stays(spec.load.rate, spec.seed), spec.warmup, spec.warmup + spec.requests)
        samples = [self.sample(index, *stay) for index, stay in enumerate(stays)]
        for progress in progresses(samples):
            on_progress(progress)
        return result(samples, spec=spec, wall_s=(max(map(_end_ns, samples)) - samples[0].origin_ns) / S)

    def sample(self, index: int, arrival: float, wait: float, service: float) -> RequestSample:
        if self.fails is not None and index % self.fails == 0:
            return failed(arrival)
        told = timings(queue=1e3 * wait, prefill=1e3 * PREFILL_S, decode=1e3 * service)
        ttft_ms = 1e3 * (wait + PREFILL_S)
        return completed(arrival, ttft_ms=ttft_ms, gaps_ms=[1e3 * service], late_ms=0.0, timings=told)


def progresses(samples: list[RequestSample]) -> Iterator[Progress]:
    origin = samples[0].origin_ns
    first_tokens = sorted((sample.origin_ns + sample.ttft_ns, sample.ttft_ns) for sample in samples if sample.ttft_ns)
    last = max(map(_end_ns, samples))
    for now in range(origin + S, last + S, S):
        done = [sample for sample in samples if _end_ns(sample) <= now]
        yield Progress(
            done=len(done),
            failed=sum(not sample.ok for sample in done),
            in_flight=sum(sample.origin_ns <= now < _end_ns(sample) for sample in samples),
            total=len(samples),
            tokens=0,
            seconds=(now - origin) / S,
            ttft_ns=[ttft for at, ttft in first_tokens if now - S < at <= now],
        )


def _end_ns(sample: RequestSample) -> int:
    return sample.origin_ns if sample.done_ns is None else sample.done_ns
