"""Which keys are in force: found by their text alone, and changed by the file while the server runs."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from server.config import ConfigError, KeySettings
from server.ingress import key_file
from server.ingress.key import EVERYTHING, Scope
from server.ingress.keyring import MAX_SECRET_BYTES, KeyRing
from tests.support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def add(path: Path, name: str) -> bytes:
    return key_file.add(path, name, scopes=(Scope.INFER,)).encode()


def replace(path: Path, text: str | None) -> str | None:
    """What was there before, and what is there then; None: nothing."""
    before = path.read_text() if path.exists() else None
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    return before


def swap_unseen(path: Path, name: str) -> bytes:
    """Another key of that name, in a file of the same size and time."""
    then = path.stat()
    key_file.revoke(path, name)
    secret = add(path, name)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (then.st_size, then.st_mtime_ns)
    return secret


def name_of(ring: KeyRing, secret: bytes) -> str | None:
    key = ring.find(secret)
    return key.name if key is not None else None


def test_a_key_is_found_by_its_text_and_by_nothing_like_it(path: Path) -> None:
    secrets = {name: add(path, name) for name in ("alice", "bob")}
    ring = KeyRing(KeySettings(file=path))
    for name, secret in secrets.items():
        assert name_of(ring, secret) == name
        digest = key_file.digest_of(secret).encode()
        for other in (secret[:-1], secret + b" ", secret.swapcase(), b"", digest, bytes.fromhex(digest.decode())):
            assert ring.find(other) is None


def test_the_key_of_the_settings_may_do_everything_beside_those_of_the_file(path: Path) -> None:
    alice = add(path, "alice")
    ring = KeyRing(KeySettings(file=path, api_key=SecretStr("simple")))
    key = ring.find(b"simple")
    assert key is not None
    assert (key.name, key.scopes) == ("default", EVERYTHING)
    assert name_of(ring, alice) == "alice"


@pytest.mark.parametrize("api_key", ["", " ", "a b", "a\n", "schlüssel", "x" * (MAX_SECRET_BYTES + 1)])
def test_a_key_that_no_header_could_carry_is_refused_at_start(api_key: str) -> None:
    with pytest.raises(ConfigError, match=r"keys\.api_key") as refused:
        KeyRing(KeySettings(api_key=SecretStr(api_key)))
    assert not api_key.strip() or api_key not in str(refused.value)


def test_the_longest_key_is_found_and_a_longer_text_is_none() -> None:
    longest = "x" * MAX_SECRET_BYTES
    ring = KeyRing(KeySettings(api_key=SecretStr(longest)))
    assert name_of(ring, longest.encode()) == "default"
    assert ring.find(longest.encode() + b"x") is None
    assert ring.find(b"x" * 10**6) is None


def test_a_key_is_required_where_one_is_configured_even_if_none_is_left(path: Path) -> None:
    assert not KeyRing(KeySettings()).required
    assert KeyRing(KeySettings(api_key=SecretStr("simple"))).required
    add(path, "alice")
    key_file.revoke(path, "alice")
    assert KeyRing(KeySettings(file=path)).required


@pytest.mark.parametrize("text", [None, "{"])
def test_a_file_that_cannot_be_used_is_an_error_at_start(path: Path, text: str | None) -> None:
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        KeyRing(KeySettings(file=path))


@pytest.fixture
async def watched(path: Path) -> AsyncIterator[KeyRing]:
    """A ring whose task is left to notice what happens to the file."""
    add(path, "first")
    ring = KeyRing(KeySettings(file=path, api_key=SecretStr("simple")))
    ring.start()
    yield ring
    await ring.close()


async def test_keys_come_and_go_while_the_server_runs(path: Path, watched: KeyRing) -> None:
    alice = add(path, "alice")
    await until(lambda: watched.find(alice))
    key_file.revoke(path, "alice")
    await until(lambda: not watched.find(alice))
    assert name_of(watched, b"simple") == "default"


async def test_a_closed_ring_has_no_task_left_and_keeps_its_keys(watched: KeyRing) -> None:
    def tasks() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "key-file"]

    assert tasks() == ["key-file"]
    await watched.close()
    await watched.close()
    assert tasks() == []
    assert name_of(watched, b"simple") == "default"


@pytest.mark.parametrize("broken", ["{", None], ids=["malformed", "removed"])
async def test_a_broken_file_leaves_the_old_keys_in_force_and_is_logged_once(path: Path, broken: str | None) -> None:
    alice = add(path, "alice")
    ring = KeyRing(KeySettings(file=path))
    good = replace(path, broken)
    with capture_logs() as logs:
        for _ in range(3):
            await ring.reload()
    assert [(line["event"], line["log_level"]) for line in logs] == [("keys_not_reloaded", "error")]
    assert str(path) in logs[0]["problem"]
    assert name_of(ring, alice) == "alice"
    replace(path, good)
    with capture_logs() as logs:
        for _ in range(3):
            await ring.reload()
    assert [(line["event"], line["keys"]) for line in logs] == [("keys_reloaded", 1)]


async def test_a_change_of_the_same_size_and_time_is_noticed(path: Path) -> None:
    alice = add(path, "alice")
    ring = KeyRing(KeySettings(file=path))
    mallory = swap_unseen(path, "alice")
    await ring.reload()
    assert ring.find(alice) is None
    assert name_of(ring, mallory) == "alice"


async def test_an_unchanged_file_is_not_read_again(path: Path) -> None:
    add(path, "alice")
    ring = KeyRing(KeySettings(file=path))
    with capture_logs() as logs:
        await ring.reload()
    assert logs == []
