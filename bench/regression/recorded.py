"""A result of an earlier run as one arm of a comparison, and the load it was made with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.regression.pairs import Visit
from bench.run.result import Result
from bench.run.spec import Closed, Lengths, Open, Prompts, Spec, SpecError


def load(path: Path) -> Result:
    """What `bench run` wrote; `path` may be its folder. Raises SpecError for anything else."""
    file = path / "result.json" if path.is_dir() else path
    try:
        return Result.load(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{file} can't be read as a result: {error}") from None


def as_visit(result: Result, name: str) -> Visit:
    return Visit(name, 0, 0, result)


def spec(result: Result, url: str, api_key: str | None = None) -> Spec:
    """The recorded load, on the server at `url`; raises SpecError where the record is of another version."""
    found = result.spec
    changed = {"url": url, "api_key": api_key}
    try:
        parts = {
            "load": _arrivals(found["load"]),
            "prompts": _prompts(found["prompts"]),
            "output": Lengths(**found["output"]),
        }
        return Spec(**{**found, **parts, **changed})
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"the result doesn't say how it was made: {error}") from None


def _arrivals(found: Mapping[str, Any]) -> Closed | Open:
    plain = {name: value for name, value in found.items() if name != "kind"}
    if found["kind"] == "closed":
        return Closed(**plain)
    return Open(**{**plain, "trace": _path(found["trace"])})


def _prompts(found: Mapping[str, Any]) -> Prompts:
    return Prompts(**{**found, "path": _path(found["path"]), "lengths": Lengths(**found["lengths"])})


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
