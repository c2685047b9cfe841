"""What a token's text costs: µs per token of our detokenizer, of vLLM's two, and of decoding the whole answer anew.

    python -m bench.micro.bench_detokenize --tokenizer ~/models/smollm2 --output detokenize.json

Prints a table in markdown, a column per length that the answer has already. `vLLM fast` is tokenizers' DecodeStream,
which vLLM takes for all tokenizers of that library; `vLLM slow` is its path for the others, which decodes a window of
tokens twice per token. `anew` decodes the whole answer and takes off what was there before. The arms take turns.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from vllm import SamplingParams
from vllm.tokenizers.hf import get_cached_tokenizer
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.detokenizer import (
    BaseIncrementalDetokenizer,
    FastIncrementalDetokenizer,
    SlowIncrementalDetokenizer,
)

from bench.micro.turns import Cost, in_turn, table, write
from sampling.detokenizer import Detokenizer

Push = Callable[[int], str]
"""Takes the next token of an answer and gives the text it completes."""

TEXT = (
    "A stream of tokens becomes a stream of text, a piece at a time. Grüße aus Köln, 한국어로 대답하겠습니다, 漢字かな "
    "交じり文, नमस्ते दुनिया, 🙂🙂 and back: `for token in stream: print(token, end='')`\n"
)
PROMPT = "Say it in other words, please.\n"


Make = Callable[[Tokenizer, list[int], list[int]], Push]
"""The detokenizer of an answer to a prompt, the first tokens of which it has seen."""


def ours(tokenizer: Tokenizer, prompt: list[int], before: list[int]) -> Push:
    detokenizer = Detokenizer(tokenizer, prompt)
    detokenizer.push(before)
    return lambda token: detokenizer.push([token])


def vllm_fast(tokenizer: Tokenizer, prompt: list[int], before: list[int]) -> Push:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    return _pushing(FastIncrementalDetokenizer(wrapped, _request(prompt)), before)


def vllm_slow(tokenizer: Tokenizer, prompt: list[int], before: list[int]) -> Push:
    # As the engine loads it; otherwise each token would count the vocabulary.
    wrapped = cast(Any, get_cached_tokenizer)(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    return _pushing(SlowIncrementalDetokenizer(wrapped, _request(prompt)), before)


def anew(tokenizer: Tokenizer, prompt: list[int], before: list[int]) -> Push:
    """Without regard to the prompt."""
    answer, sent = list(before), len(_finished(tokenizer.decode(before)))

    def push(token: int) -> str:
        nonlocal sent
        answer.append(token)
        text = _finished(tokenizer.decode(answer))
        piece, sent = text[sent:], max(sent, len(text))
        return piece

    return push


ARMS: Mapping[str, Make] = {"ours": ours, "vLLM fast": vllm_fast, "vLLM slow": vllm_slow, "anew": anew}


def _finished(text: str) -> str:
    """Without a character whose last bytes may still come, for which some decoders take back those before it too."""
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def _request(prompt: list[int]) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id="bench",
        prompt_token_ids=prompt,
        mm_features=None,
        sampling_params=SamplingParams(),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def _pushing(detokenizer: BaseIncrementalDetokenizer, before: list[int]) -> Push:
    def push(token: int) -> str:
        detokenizer.update([token], False)
        return detokenizer.get_next_output_text(finished=False, delta=True)

    for token in before:
        push(token)
    return push


def us_per_token(make: Callable[[], Push], tokens: Sequence[int]) -> float:
    """Of these tokens, pushed one by one; what `make` does isn't counted."""
    push = make()
    begin = time.perf_counter_ns()
    for token in tokens:
        push(token)
    return (time.perf_counter_ns() - begin) / 1e3 / len(tokens)


def measure(tokenizer: Tokenizer, position: int, rounds: int, window: int) -> list[Cost]:
    """What the tokens of an answer cost behind the first `position` ones."""
    prompt, answer = _ids(tokenizer, PROMPT), _ids(tokenizer, TEXT)
    answer = list(islice(cycle(answer), position + window))
    before, tokens = answer[:position], answer[position:]
    arms = {
        name: partial(us_per_token, partial(make, tokenizer, prompt, before), tokens) for name, make in ARMS.items()
    }
    return in_turn(arms, f"after {position}", rounds)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, or the folder of one")
    parser.add_argument("--positions", type=int, nargs="+", default=[64, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=int, default=128, help="tokens of each arm in each round")
    parser.add_argument("--output", type=Path, help="a file for the figures as JSON")
    args = parser.parse_args(argv)
    path = args.tokenizer / "tokenizer.json" if args.tokenizer.is_dir() else args.tokenizer
    tokenizer = Tokenizer.from_file(str(path))
    costs = [cost for position in args.positions for cost in measure(tokenizer, position, args.rounds, args.window)]
    print(table(costs))
    if args.output:
        write(args.output, costs, {"tokenizer": str(path), "rounds": args.rounds, "window": args.window})


if __name__ == "__main__":
    main()
