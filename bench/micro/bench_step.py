"""What a token costs between the engine's output and the transport: µs per token of `pipeline.step`, streams in turn.

    python -m bench.micro.bench_step --tokenizer ~/models/smollm2/tokenizer.json --output step.json

Prints a table in markdown, a column per number of streams. The transport takes everything at no cost; what its write
takes is not in here. `unmeasured` is `telemetry.ledger: false`. The arms take turns.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import monotonic_ns

from tokenizers import Tokenizer

from bench.micro.turns import Cost, in_turn, table, write
from sampling.logprobs import TokenLogprob
from sampling.params import SamplingParams
from server.api.chat_shape import ChatShape
from server.api.logprobs import TokenNames
from server.api.openai_shape import Extras
from server.ledger import Ledger
from server.pipeline import step
from server.request import GenerationRequest, TokenDelta
from server.stages import NullClock, StageClock
from server.streaming.stream import Stream
from server.telemetry.metrics import Metrics

TEXT = " the river runs past the old mill and on to the sea where small boats wait for the wind"
TOKENS = 128  # of each stream, at least as many deltas in all as DELTAS
DELTAS = 16_384
ALTERNATIVES = tuple((1000 + k, -2.0 - k) for k in range(3))

Run = Callable[[], float]


def streams(tokenizer: Tokenizer, count: int, params: SamplingParams, *, ledger: bool) -> list[Stream]:
    metrics = Metrics()
    clock = StageClock if ledger else NullClock
    names = TokenNames(tokenizer)
    made = []
    for number in range(count):
        request = GenerationRequest(f"req-{number}", [[1, 2, 3]], params, streamed=True)
        extras = Extras(logprobs=params.logprobs)
        shape = ChatShape(request, "model", names, extras=extras)
        stream = Stream(
            request, tokenizer, Ledger(id=request.id, clock=clock(), endpoint="chat"), metrics.meters, encoder=shape
        )
        stream.outbox._try_write = _take_all  # as `Outbox.run` attaches a reader
        made.append(stream)
    return made


def _take_all(data: bytes) -> bool:
    return True


def deltas(ids: Iterator[int], params: SamplingParams) -> Iterator[TokenDelta]:
    """An engine step ends, reaches this process and brings one token."""
    for token_id in ids:
        now = monotonic_ns()
        delta = TokenDelta([token_id], sampled_ns=now, received_ns=now, scheduled_ns=now, sample_ns=1)
        if params.logprobs is not None:
            delta.logprobs = [TokenLogprob(token_id, -1.0, 1, ALTERNATIVES)]
        yield delta


def run(tokenizer: Tokenizer, count: int, params: SamplingParams, *, ledger: bool) -> float:
    """µs of this thread's CPU per token."""
    made = streams(tokenizer, count, params, ledger=ledger)
    steps = [partial(step, stream, stream.choices[0]) for stream in made]
    ids = cycle(tokenizer.encode(TEXT, add_special_tokens=False).ids)
    spent_ns, turns = 0, max(TOKENS, DELTAS // count)
    for _ in range(turns):
        batch = list(deltas(islice(ids, count), params))
        began = time.thread_time_ns()
        for on_step, delta in zip(steps, batch, strict=True):
            on_step(delta)
        spent_ns += time.thread_time_ns() - began
    return spent_ns / 1e3 / (turns * count)


def arms(tokenizer: Tokenizer, count: int) -> dict[str, Run]:
    plain = SamplingParams(max_tokens=100_000)
    stop = SamplingParams(max_tokens=100_000, stop=("never said",))
    logprobs = SamplingParams(max_tokens=100_000, logprobs=3)
    return {
        "plain": partial(run, tokenizer, count, plain, ledger=True),
        "plain, unmeasured": partial(run, tokenizer, count, plain, ledger=False),
        "a stop string": partial(run, tokenizer, count, stop, ledger=True),
        "3 log probabilities": partial(run, tokenizer, count, logprobs, ledger=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.micro.bench_step")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 64, 256])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    costs: list[Cost] = []
    for count in args.streams:
        costs += in_turn(arms(tokenizer, count), f"{count} streams", args.rounds)
    print(table(costs))
    if args.output is not None:
        write(args.output, costs, {"rounds": args.rounds, "deltas": DELTAS})


if __name__ == "__main__":
    main()
