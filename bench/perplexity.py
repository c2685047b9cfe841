"""How well a server's model foretells a fixed text: to hold weights in fewer bits to those that they were made of.

    python -m bench.perplexity --url http://127.0.0.1:8000 --model smollm2-135m

The text is the reference of the Python language, as the standard library has it (`pydoc_data.topics`); between two runs
of one interpreter it is the same. Each passage is a prompt whose own tokens' log probabilities are asked for
(`prompt_logprobs` of /v1/completions, as vLLM has it); the first of each, which nothing foretells, does not count.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pydoc_data.topics import topics
from typing import Any

import orjson

from bench import loop
from bench.client import stream_request
from bench.run.address import Address, reach
from bench.run.spec import Closed, Spec

PASSAGE_CHARACTERS = 4000
DEADLINE_S = 300.0


def passages(count: int) -> list[str]:
    """Of equal length, from the longest topics on."""
    longest = sorted(topics.values(), key=len, reverse=True)
    cut = (
        text[start : start + PASSAGE_CHARACTERS]
        for text in longest
        for start in range(0, len(text) - PASSAGE_CHARACTERS, PASSAGE_CHARACTERS)
    )
    return [passage for _, passage in zip(range(count), cut, strict=False)]


def logprobs(entries: Sequence[dict[str, dict[str, Any]] | None]) -> Iterator[float]:
    """Of the prompt's own tokens: an entry's first is the token itself."""
    for entry in entries:
        if entry:
            yield next(iter(entry.values()))["logprob"]


async def measure(address: Address, model: str, texts: Sequence[str]) -> tuple[float, int]:
    """Perplexity, and over how many tokens. Raises RuntimeError for what the server doesn't answer."""
    total, count = 0.0, 0
    for text in texts:
        body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        path = f"{address.root}/v1/completions"
        sample = await stream_request(address.host, address.port, path, orjson.dumps(body), address.headers, DEADLINE_S)
        if not sample.ok or sample.body is None:
            raise RuntimeError(f"no answer: {sample.error}, {sample.detail}")
        [choice] = orjson.loads(sample.body)["choices"]
        found = list(logprobs(choice["prompt_logprobs"]))
        total, count = total + sum(found), count + len(found)
    return math.exp(-total / count), count


async def _main(args: argparse.Namespace) -> None:
    address = await reach(Address.of(Spec(args.url, args.model, Closed(1), 1, api_key=args.api_key)))
    perplexity, count = await measure(address, args.model, passages(args.passages))
    print(f"perplexity {perplexity:.4f} over {count} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.perplexity")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--passages", type=int, default=24)
    parser.add_argument("--api-key")
    loop.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
