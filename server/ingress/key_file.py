"""The file that `streamgauge keys` writes and the server reads: JSON, versioned, one entry for each key.

A change is a whole new file that takes the old one's place, so that a reader sees either. Those who change it take
turns by a lock file beside it.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from server.config import ConfigError
from server.ingress.key import Key, Limits, Priority, Scope

DEFAULT = "default"  # the name of keys.api_key; the file has none of that name
PREFIX = "sg-"
RANDOM_BYTES = 32

LIMITS = {"timeout", "requests_per_minute", "tokens_per_minute", "concurrent_requests"}
Count = Annotated[int | None, Field(ge=1)]


class KeyFileError(ConfigError):
    """A key file that cannot be used, or a change to one; for the operator, and without any digest."""


class KeyEntry(BaseModel):
    """One key as the file has it; `timeout` is in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: tuple[Scope, ...] = Field(min_length=1)
    priority: Priority = Priority.NORMAL
    timeout: float | None = Field(default=None, gt=0)
    requests_per_minute: Count = None
    tokens_per_minute: Count = None
    concurrent_requests: Count = None
    created: date

    @property
    def key(self) -> Key:
        limits = Limits(self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests)
        return Key(self.name, self.sha256, frozenset(self.scopes), self.priority.rank, self.timeout, limits)


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    keys: tuple[KeyEntry, ...]

    @field_validator("keys")
    @classmethod
    def _tell_apart(cls, keys: tuple[KeyEntry, ...]) -> tuple[KeyEntry, ...]:
        names = [DEFAULT, *(entry.name for entry in keys)]
        digests = [entry.sha256 for entry in keys]
        for place, entry in enumerate(keys):
            if entry.name in names[: place + 1]:
                raise _problem(place, f"the name `{entry.name}` is taken")
            if entry.sha256 in digests[:place]:
                raise _problem(place, f"`{entry.name}` is the same key as an earlier one")
        return keys


def _problem(place: int, what: str) -> PydanticCustomError:
    return PydanticCustomError("keys", "{what}", {"what": f"entry {place}: {what}"})


def digest_of(secret: bytes) -> str:
    return sha256(secret).hexdigest()


def read(path: Path) -> tuple[KeyEntry, ...]:
    """Raises KeyFileError naming the line or the entry."""
    try:
        return _Content.model_validate_json(path.read_bytes()).keys
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise KeyFileError(f"{path}: {_explain(error)}") from None


def add(path: Path, name: str, **fields: Any) -> str:
    """Make a key with these fields of KeyEntry, and the file too if need be; returns it, the only time it is seen.

    Raises KeyFileError.
    """
    secret = f"{PREFIX}{secrets.token_urlsafe(RANDOM_BYTES)}"
    today = datetime.now(UTC).date()
    with _locked(path) as path:
        entries = read(path) if path.exists() else ()
        try:
            entry = KeyEntry(name=name, sha256=digest_of(secret.encode()), created=today, **fields)
            content = _Content(version=1, keys=(*entries, entry))
        except ValidationError as error:
            raise KeyFileError(_explain(error)) from None
        _replace(path, content)
    return secret


def revoke(path: Path, name: str) -> None:
    """Raises KeyFileError, also when there is no such key."""
    with _locked(path) as path:
        entries = read(path)
        kept = tuple(entry for entry in entries if entry.name != name)
        if len(kept) == len(entries):
            raise KeyFileError(f"{path}: there is no key `{name}`")
        _replace(path, _Content(version=1, keys=kept))


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """The file itself where `path` is a link: that is what is to be replaced."""
    path = path.resolve()
    try:
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(descriptor)


def _replace(path: Path, content: _Content) -> None:
    text = content.model_dump_json(indent=2, exclude_none=True)
    try:
        descriptor, new = mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by its owner alone
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    try:
        with open(descriptor, "w") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(new)
        raise KeyFileError(f"{path}: {error.strerror}") from None


def _explain(error: ValidationError) -> str:
    """The first problem, without the text it was found in: that may be a digest."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join([*_place(problem["loc"]), problem["msg"]])


def _place(location: Sequence[int | str]) -> list[str]:
    return [".".join(str(part) for part in location)] if location else []
