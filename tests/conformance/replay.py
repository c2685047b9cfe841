"""One answer's tokens, handed to the pipeline in every way an engine might hand them."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from time import monotonic_ns

from sampling.logprobs import TokenLogprob
from server.engine.guard import push
from server.engine.protocol import OnReleased, OnStep
from server.request import EngineRequest, FinishReason, TokenDelta
from tests.support.engines import FakeEngine

PARTITIONS = 200
END_OF_SEQUENCE = 2

Partition = Sequence[Sequence[int]]


class Played:
    """A sequence that plays by itself; `abort` silences it."""

    def __init__(self, on_released: OnReleased) -> None:
        self.aborted = False
        self.release = on_released

    def abort(self) -> None:
        self.aborted = True


class ReplayEngine(FakeEngine):
    """Answers each request with `partition`, an engine step for each of its groups, and `finish`."""

    partition: Partition = ()
    finish = FinishReason.STOP

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Played:  # type: ignore[override]
        played = Played(on_released)
        asyncio.get_running_loop().call_soon(self._play, request, on_step, played, self.partition, self.finish)
        return played

    def _play(
        self, request: EngineRequest, on_step: OnStep, played: Played, partition: Partition, finish: FinishReason
    ) -> None:
        for number, ids in enumerate(partition, 1):
            if played.aborted:
                break
            now = monotonic_ns()
            delta = TokenDelta(ids, scheduled_ns=now, sampled_ns=now, received_ns=now)
            if number == len(partition):
                delta.finish_reason = finish
                delta.stop_token = finish is FinishReason.STOP
            if request.params.logprobs is not None:
                delta.logprobs = [logprob_of(token_id, request.params.logprobs) for token_id in ids]
            push(on_step, delta, played.abort)
        played.release()


def logprob_of(token_id: int, alternatives: int) -> TokenLogprob:
    """Made up, and different for each token."""
    top = tuple((token_id + k, -0.125 * k - 1 / (token_id + 1)) for k in range(alternatives))
    return TokenLogprob(token_id, -1 / (token_id + 1), 1, top)


def partitions(ids: Sequence[int], seed: int) -> Iterator[Partition]:
    """As one delta, token by token, cut in two at every place, and PARTITIONS random ones."""
    yield [ids]
    yield [[token_id] for token_id in ids]
    for cut in range(1, len(ids)):
        yield [ids[:cut], ids[cut:]]
    random = Random(seed)
    for _ in range(PARTITIONS):
        cuts = sorted(random.sample(range(1, len(ids)), random.randint(1, len(ids) - 1)))
        yield [ids[start:end] for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
