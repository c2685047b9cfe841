"""The key file: what is kept of a key, who may read it, and what is said of a file that cannot be used."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from server.ingress import key_file
from server.ingress.key import Limits, Priority, Scope
from server.ingress.key_file import KeyFileError
from server.request import LOW

DIGEST = "a" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "alice", "sha256": DIGEST, "scopes": ["infer"], "created": "2026-01-31", **fields}


def content(*entries: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"version": 1, "keys": entries, **fields})


def test_a_key_is_random_and_only_its_hash_is_kept(path: Path) -> None:
    secrets = [key_file.add(path, name, scopes=(Scope.INFER,)) for name in ("alice", "bob")]
    assert len({*secrets}) == 2
    for secret, kept in zip(secrets, key_file.read(path), strict=True):
        assert secret.startswith("sg-")
        assert len(secret) == len("sg-") + 43  # 32 bytes in base64
        assert kept.sha256 == sha256(secret.encode()).hexdigest()
        assert secret not in path.read_text()


def test_only_its_owner_may_read_the_file_and_nothing_but_the_lock_is_left_beside_it(path: Path) -> None:
    key_file.add(path, "alice", scopes=(Scope.INFER,))
    key_file.add(path, "bob", scopes=(Scope.INFER,))
    key_file.revoke(path, "bob")
    assert sorted(found.name for found in path.parent.iterdir()) == [".keys.json.lock", "keys.json"]
    assert {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()} == {0o600}


def test_everything_a_key_allows_comes_back(path: Path) -> None:
    key_file.add(path, "plain", scopes=(Scope.ADMIN,))
    limits = {"requests_per_minute": 60, "tokens_per_minute": 1000, "concurrent_requests": 2}
    key_file.add(path, "bounded", scopes=(Scope.INFER, Scope.METRICS), priority=Priority.LOW, timeout=1.5, **limits)
    plain, bounded = (found.key for found in key_file.read(path))
    assert (plain.scopes, plain.timeout, plain.limits) == (frozenset({Scope.ADMIN}), None, Limits())
    assert bounded.scopes == {Scope.INFER, Scope.METRICS}
    assert (bounded.rank, bounded.timeout) == (LOW, 1.5)
    assert bounded.limits == Limits(60, 1000, 2)


def test_a_revoked_key_is_gone_and_its_name_is_free_again(path: Path) -> None:
    first = key_file.add(path, "alice", scopes=(Scope.INFER,))
    key_file.revoke(path, "alice")
    assert key_file.read(path) == ()
    assert key_file.add(path, "alice", scopes=(Scope.INFER,)) != first


def test_a_name_that_is_taken_or_unknown_changes_nothing(path: Path) -> None:
    key_file.add(path, "alice", scopes=(Scope.INFER,))
    before = path.read_bytes()
    for name in ("alice", "default"):
        with pytest.raises(KeyFileError, match=f"the name `{name}` is taken"):
            key_file.add(path, name, scopes=(Scope.INFER,))
    with pytest.raises(KeyFileError, match="there is no key `bob`"):
        key_file.revoke(path, "bob")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["", "a b", "-a", "é", "a\n", "a/b", "x" * 65])
def test_a_name_is_safe_to_log(path: Path, name: str) -> None:
    with pytest.raises(KeyFileError, match=r"^name: "):
        key_file.add(path, name, scopes=(Scope.INFER,))
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1"),
        ('{"version": 1,\n "keys": [', "line 2"),
        ("[]", "an object"),
        (content(version=2), "version"),
        (content(extra=1), "extra"),
        ('{"version": 1}', "keys"),
        (content(entry(), entry(sha256="z" * 64)), "keys.1.sha256"),
        (content(entry(sha256=DIGEST.upper())), "keys.0.sha256"),
        (content(entry(scopes=[])), "keys.0.scopes"),
        (content(entry(scopes=["root"])), "keys.0.scopes.0"),
        (content(entry(priority="urgent")), "keys.0.priority"),
        (content(entry(timeout=0)), "keys.0.timeout"),
        (content(entry(timeout="5")), "keys.0.timeout"),
        (content(entry(requests_per_minute=0)), "keys.0.requests_per_minute"),
        (content(entry(requests_per_minute=True)), "keys.0.requests_per_minute"),
        (content(entry(tokens_per_minutes=5)), "keys.0.tokens_per_minutes"),
        (content(entry(created="yesterday")), "keys.0.created"),
        (content(entry(), entry()), "entry 1: the name `alice` is taken"),
        (content(entry(), entry(name="bob")), "entry 1: `bob` is the same key"),
        (content(entry(name="default")), "entry 0: the name `default` is taken"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_place(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    with pytest.raises(KeyFileError) as refused:
        key_file.read(path)
    message = str(refused.value)
    assert str(path) in message
    assert problem in message
    assert DIGEST not in message


def test_bytes_that_are_no_text_are_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KeyFileError):
        key_file.read(path)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(KeyFileError, match=f"{path}: No such file"):
        key_file.read(path)
    with pytest.raises(KeyFileError, match="No such file"):
        key_file.add(path / "below" / "keys.json", "alice", scopes=(Scope.INFER,))


def test_a_broken_file_is_not_written_over(path: Path) -> None:
    path.write_text("{")
    with pytest.raises(KeyFileError):
        key_file.add(path, "alice", scopes=(Scope.INFER,))
    assert path.read_text() == "{"


def test_commands_at_the_same_time_lose_nothing_and_a_reader_never_sees_half_a_file(path: Path) -> None:
    key_file.add(path, "first", scopes=(Scope.INFER,))
    names = [f"key{number}" for number in range(12)]
    with ThreadPoolExecutor(5) as pool:
        made = [pool.submit(key_file.add, path, name, scopes=(Scope.INFER,)) for name in names]
        while not all(each.done() for each in made):
            assert key_file.read(path)[0].name == "first"
        secrets = [each.result() for each in made]
    kept = {found.name: found.sha256 for found in key_file.read(path)}
    assert {kept[name] for name in names} == {sha256(secret.encode()).hexdigest() for secret in secrets}


def test_a_link_stays_one(path: Path) -> None:
    link = path.with_name("link.json")
    link.symlink_to(path)
    key_file.add(link, "alice", scopes=(Scope.INFER,))
    assert link.is_symlink()
    assert [found.name for found in key_file.read(path)] == ["alice"]
