"""What a key's holder has stored is there for that key alone; for any other it does not exist."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from server.ingress import key_file
from server.ingress.key import Priority, Scope
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, MODEL, Served, chat, serving

RESPONSES = "/v1/responses"

Site = Served[FakeEngine]
Secrets = dict[str, str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def secrets(file: Path) -> Secrets:
    holders = {"alice": Scope.INFER, "bob": Scope.INFER, "root": Scope.ADMIN}
    return {name: key_file.add(file, name, scopes=(scope,)) for name, scope in holders.items()}


@pytest.fixture
async def guarded(engine: FakeEngine, file: Path, secrets: Secrets) -> AsyncIterator[Site]:
    async with serving(engine, f"keys.file={file}") as served:
        yield served


def ask(site: Site, secret: str, method: str, path: str, body: dict[str, Any] | None = None) -> Exchange:
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    return Exchange(site.app, scope_of(method, path, headers), [json.dumps(body).encode() if body else b""])


async def stored(site: Site, secret: str, **fields: Any) -> str:
    """The id of a response that this key has made."""
    exchange = ask(site, secret, "POST", RESPONSES, {"model": MODEL, "input": "Hi", **fields})
    sequence = await site.engine.sequence()
    sequence.say("private")
    if not fields.get("background"):
        sequence.end()
    response_id: str = (await exchange).json["id"]
    return response_id


@pytest.mark.parametrize("background", [False, True])
async def test_the_responses_of_another_key_do_not_exist(guarded: Site, secrets: Secrets, background: bool) -> None:
    made = await stored(guarded, secrets["alice"], background=background)
    path = f"{RESPONSES}/{made}"
    for stranger in ("bob", "root"):
        for method, below in (
            ("GET", ""),
            ("GET", "?stream=true"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ):
            answer = await ask(guarded, secrets[stranger], method, path + below)
            assert (answer.status, answer.error["code"]) == (404, "response_not_found")
            assert b"private" not in answer.body
        turn = {"model": MODEL, "input": "And?", "previous_response_id": made}
        answer = await ask(guarded, secrets[stranger], "POST", RESPONSES, turn)
        assert (answer.status, answer.error["code"]) == (404, "response_not_found")
    assert not (background and guarded.engine.sequences[0].aborted)
    assert (await ask(guarded, secrets["alice"], "GET", path)).json["id"] == made
    assert (await ask(guarded, secrets["alice"], "DELETE", path)).json["deleted"]


async def test_a_new_key_of_the_same_name_goes_on_with_what_the_old_one_stored(
    guarded: Site, secrets: Secrets, file: Path
) -> None:
    made = await stored(guarded, secrets["alice"])
    key_file.revoke(file, "alice")
    secret = key_file.add(file, "alice", scopes=(Scope.INFER,))
    async with serving(guarded.engine, f"keys.file={file}") as later:
        later.services.responses = guarded.services.responses
        assert (await ask(later, secret, "GET", f"{RESPONSES}/{made}")).json["id"] == made


@pytest.mark.parametrize(
    ("priority", "asked", "given"),
    [
        (Priority.HIGH, -5, -5),
        (Priority.NORMAL, -5, 0),
        (Priority.NORMAL, 7, 7),
        (Priority.LOW, -5, 1),
        (Priority.LOW, 0, 1),
        (Priority.LOW, 7, 7),
    ],
)
async def test_only_a_key_of_high_priority_may_ask_to_go_before_others(
    engine: FakeEngine, file: Path, priority: Priority, asked: int, given: int
) -> None:
    secret = key_file.add(file, "alice", scopes=(Scope.INFER,), priority=priority)
    async with serving(engine, f"keys.file={file}") as site:
        exchange = ask(site, secret, "POST", CHAT, chat(priority=asked))
        sequence = await engine.sequence()
        sequence.end()
        await exchange
        assert sequence.request.priority == given
