"""From what is typed to the parts of a Spec; everything here raises SpecError for what can't be read."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from bench.run.spec import Closed, Lengths, Open, Prompts, Shape, SpecError

LENGTHS = re.compile(r"(\d+)|(normal|lognormal):(\d+):(\d+(?:\.\d+)?)(?::(\d+):(\d+))?")


def lengths(text: str) -> Lengths:
    """`128`, `normal:MEAN:SPREAD` or `lognormal:MEDIAN:SPREAD`, the latter two also with `:LEAST:MOST`."""
    found = LENGTHS.fullmatch(text)
    if not found:
        raise SpecError(f"not a number of tokens: {text!r}; it reads 128, normal:512:100 or lognormal:512:0.6:16:2048")
    fixed, kind, mean, spread, least, most = found.groups()
    if int(fixed or mean) < 1:
        raise SpecError(f"at least one token, not {text!r}")
    if fixed:
        return Lengths(mean=int(fixed))
    made = Lengths(cast(Literal["normal", "lognormal"], kind), int(mean), float(spread))
    if least is None:
        return made
    if not 1 <= int(least) <= int(most):
        raise SpecError(f"the bounds of {text!r} leave no length")
    return Lengths(made.kind, made.mean, made.spread, int(least), int(most))


def prompts(path: Path | None, prompt_tokens: str | None, prefix_tokens: int, prefixes: int, turns: int) -> Prompts:
    """Those of a file, JSONL by its name's end or else ShareGPT's JSON; synthetic ones without a file."""
    if path is None:
        wanted = Lengths() if prompt_tokens is None else lengths(prompt_tokens)
        return Prompts(lengths=wanted, prefix_tokens=prefix_tokens, prefixes=prefixes, turns=turns)
    if prompt_tokens is not None or prefix_tokens:
        raise SpecError("--prompt-tokens and --prefix-tokens shape synthetic prompts, and --prompts names a file")
    return Prompts("jsonl" if path.suffix == ".jsonl" else "sharegpt", path, turns=turns)


def load(
    concurrency: int | None,
    rate: float | None,
    trace: Path | None,
    *,
    evenly: bool = False,
    burstiness: float | None = None,
    rate_end: float | None = None,
    speed: float | None = None,
) -> Closed | Open:
    """How requests come: exactly one of the first three says, the others refine the rate or the trace."""
    given = {"--concurrency": concurrency, "--rate": rate, "--trace": trace}
    if sum(value is not None for value in given.values()) != 1:
        raise SpecError(f"exactly one of {', '.join(given)}")
    refinements = {"--evenly": evenly or None, "--burstiness": burstiness, "--rate-end": rate_end}
    if rate is not None:
        _none_of({"--speed": speed}, "--trace")
        return _open(rate, evenly=evenly, burstiness=burstiness, rate_end=rate_end)
    _none_of(refinements, "--rate")
    if trace is not None:
        return Open("trace", trace=trace) if speed is None else Open("trace", trace=trace, speed=speed)
    _none_of({"--speed": speed}, "--trace")
    return Closed(cast(int, concurrency))


def _open(rate: float, *, evenly: bool, burstiness: float | None, rate_end: float | None) -> Open:
    if sum([evenly, burstiness is not None, rate_end is not None]) > 1:
        raise SpecError("at most one of --evenly, --burstiness, --rate-end")
    if burstiness is not None:
        return Open("gamma", rate, burstiness=burstiness)
    if rate_end is not None:
        return Open("ramp", rate, rate_end=rate_end)
    shape: Shape = "constant" if evenly else "poisson"
    return Open(shape, rate)


def _none_of(options: Mapping[str, object], owner: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise SpecError(f"{name} goes with {owner}")
