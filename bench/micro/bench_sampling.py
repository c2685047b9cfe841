"""What sampling costs: µs per token of vLLM's own sampler, of each processor of ours, of top-p with and without a sort.

    python -m bench.micro.bench_sampling --output sampling.json
    python -m bench.micro.bench_sampling --vocabularies 49152 --batches 32 --arms top-p Dry --logits peaked flat

Prints a table in markdown. An arm samples, or shapes, one token for each row of a batch; its time is divided by the
rows. The arms of a place (device, vocabulary, batch) take turns. `vLLM …` is its whole sampler, "top-p mask" the
masking alone. Logits are in the order of Zipf's law with exponent 1.5 (peaked: 60 tokens hold nine tenths) or uniform
in 0..1 (flat: nearly all tokens stay in a top-p of 0.9).
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path

import torch
from vllm import SamplingParams
from vllm.platforms import current_platform
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler as EngineSampler

from bench.micro.engine_sampler import batch_of
from bench.micro.turns import Cost, in_turn, table, write
from sampling.processors.base import Group, Row, Sampler
from sampling.processors.chain import SAMPLERS
from sampling.shaping import Shaping
from sampling.top_p import apply_top_p

Step = Callable[[torch.Tensor], object]
"""Does its work on logits [batch, vocabulary], in place or not."""

VOCABULARIES = (32_000, 49_152, 151_936)  # Llama 2, SmolLM2, Qwen 3
BATCHES = (1, 32, 256)
PROMPT_TOKENS = 1024
WORDS = 20  # different tokens in a request's text: so few that every step finds repetitions
TOP_P = 0.9
ZIPF_EXPONENT = 1.5

ENGINE_PARAMS = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "top-k": SamplingParams(top_k=50),
    "top-p": SamplingParams(top_p=TOP_P),
    "min-p": SamplingParams(min_p=0.05),
}
SHAPINGS = (
    Shaping(dry_multiplier=0.8),
    Shaping(no_repeat_ngram_size=3),
    Shaping(top_n_sigma=1.0),
    Shaping(typical_p=0.9),
    Shaping(xtc_probability=1.0),
    Shaping(dynatemp_range=0.5),
    Shaping(mirostat=2),
)


def peaked(rows: int, vocabulary: int) -> torch.Tensor:
    random_order = torch.Generator().manual_seed(0)
    ordered = torch.arange(1, vocabulary + 1).log() * -ZIPF_EXPONENT
    return torch.stack([ordered[torch.randperm(vocabulary, generator=random_order)] for _ in range(rows)])


def flat(rows: int, vocabulary: int) -> torch.Tensor:
    return torch.rand(rows, vocabulary, generator=torch.Generator().manual_seed(0))


LOGITS = {"peaked": peaked, "flat": flat}


def steps(batch: int, vocabulary: int, device: torch.device) -> Iterator[tuple[str, Step]]:
    """All arms that run there, by name: vLLM's on the one kind of device that it is built for."""
    top_p = torch.full((batch,), TOP_P, device=device)
    if device.type == current_platform.device_type:
        sampler = EngineSampler()
        for name, params in ENGINE_PARAMS.items():
            yield f"vLLM {name}", partial(sampler, sampling_metadata=batch_of(params, batch, vocabulary, device))
        yield "top-p mask, vLLM", lambda logits: apply_top_k_top_p(logits, None, top_p)
    if device.type == "cpu":
        yield "top-p mask, ours", lambda logits: apply_top_p(logits, top_p)
    for ours in SAMPLERS:
        yield type(ours).__name__, _shaping(ours, batch, device)


def _shaping(sampler: Sampler, batch: int, device: torch.device) -> Step:
    """The sampler over requests in the middle of their answers, each of which is a token longer at every step."""
    words = random.Random(0).choices(range(WORDS), k=PROMPT_TOKENS)
    shaping = next(shaping for shaping in SHAPINGS if sampler.wanted(shaping))
    rows = [Row(shaping, 1.0, seed, words, []) for seed in range(batch)]
    group = Group(rows, device)
    answer = cycle(random.Random(1).choices(range(WORDS), k=PROMPT_TOKENS))

    def step(logits: torch.Tensor) -> torch.Tensor:
        token = next(answer)
        for row in rows:
            row.output.append(token)
        return sampler.apply(logits, group)

    return step


def us_per_token(step: Step, logits: torch.Tensor, least_s: float) -> float:
    """The mean of as many calls as fit into `least_s`, one at least; each gets its own copy of the logits."""
    spent_ns, calls = 0, 0
    while not calls or spent_ns < least_s * 1e9:
        copy = logits.clone()
        _wait_for(logits.device)
        begin = time.perf_counter_ns()
        step(copy)
        _wait_for(logits.device)
        spent_ns += time.perf_counter_ns() - begin
        calls += 1
    return spent_ns / 1e3 / calls / len(logits)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(where: str, device: torch.device, logits: torch.Tensor, args: argparse.Namespace) -> list[Cost]:
    """What the chosen arms cost on these logits."""
    batch, vocabulary = logits.shape
    chosen: Mapping[str, Callable[[], float]] = {
        name: partial(us_per_token, step, logits, args.seconds)
        for name, step in steps(batch, vocabulary, device)
        if any(part in name for part in args.arms)
    }
    with torch.inference_mode():
        return in_turn(chosen, where, args.rounds)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--devices", nargs="+", default=devices)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=VOCABULARIES)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--logits", nargs="+", choices=list(LOGITS), default=["peaked"])
    parser.add_argument("--arms", nargs="+", default=[""], help="parts of the names of the arms to measure")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each arm in each round, at least")
    parser.add_argument("--output", type=Path, help="a file for the figures as JSON")
    args = parser.parse_args(argv)
    costs: list[Cost] = []
    for name, shape, vocabulary, batch in product(args.devices, args.logits, args.vocabularies, args.batches):
        device = torch.device(name)
        logits = LOGITS[shape](batch, vocabulary).to(device)
        costs += measure(f"{name} {shape} {vocabulary} × {batch}", device, logits, args)
    print(table(costs))
    if args.output:
        write(args.output, costs, {"torch": torch.__version__, "threads": torch.get_num_threads()})


if __name__ == "__main__":
    main()
