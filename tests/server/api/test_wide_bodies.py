"""A body may hold a million mistakes; the first is enough, since collecting them holds up every stream."""

from time import thread_time

import pytest

from tests.support.engines import FakeEngine
from tests.support.messages import MESSAGES
from tests.support.responses import RESPONSES
from tests.support.site import CHAT, COMPLETIONS, Served

WIDE: dict[str, tuple[str, bytes]] = {
    "negative ids": (COMPLETIONS, b'{"model":"m","prompt":[' + b",".join([b"-1"] * 1_000_000) + b"]}"),
    "empty texts": (COMPLETIONS, b'{"model":"m","prompt":[' + b",".join([b'""'] * 1_000_000) + b"]}"),
    "empty lists": (COMPLETIONS, b'{"model":"m","prompt":[' + b",".join([b"[]"] * 300_000) + b"]}"),
    "a prompt of negative ids": (COMPLETIONS, b'{"model":"m","prompt":[[' + b",".join([b"-1"] * 1_000_000) + b"]]}"),
    "messages": (CHAT, b'{"model":"m","messages":[' + b",".join([b"1"] * 1_000_000) + b"]}"),
    "parts": (CHAT, b'{"model":"m","messages":[{"role":"user","content":[' + b",".join([b"{}"] * 1_000_000) + b"]}]}"),
    "stops": (CHAT, b'{"model":"m","messages":[],"stop":[' + b",".join([b"1"] * 1_000_000) + b"]}"),
    "biases": (
        CHAT,
        b'{"model":"m","messages":[],"logit_bias":{' + b",".join(b'"%d":"x"' % i for i in range(300_000)) + b"}}",
    ),
    "tools": (CHAT, b'{"model":"m","messages":[],"tools":[' + b",".join([b"{}"] * 1_000_000) + b"]}"),
    "choices": (
        CHAT,
        b'{"model":"m","messages":[],"structured_outputs":{"choice":[' + b",".join([b"1"] * 1_000_000) + b"]}}",
    ),
    "a schema": (
        CHAT,
        b'{"model":"smollm2-135m","messages":[{"role":"user"}],"structured_outputs":{"json":{"anyOf":['
        + b",".join([b"{}"] * 1_000_000)
        + b"]}}}",
    ),
    "input items": (RESPONSES, b'{"model":"m","input":[' + b",".join([b"{}"] * 1_000_000) + b"]}"),
    "hosted tools": (RESPONSES, b'{"model":"m","input":"x","tools":[' + b",".join([b"{}"] * 1_000_000) + b"]}"),
    "turns": (MESSAGES, b'{"model":"m","max_tokens":1,"messages":[' + b",".join([b"1"] * 1_000_000) + b"]}"),
    "blocks": (
        MESSAGES,
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":['
        + b",".join([b"{}"] * 1_000_000)
        + b"]}]}",
    ),
    "system": (
        MESSAGES,
        b'{"model":"m","max_tokens":1,"messages":[],"system":[' + b",".join([b"{}"] * 1_000_000) + b"]}",
    ),
    "tokens": ("/detokenize", b'{"tokens":[' + b",".join([b"-1"] * 1_000_000) + b"]}"),
}


@pytest.mark.parametrize("case", WIDE)
async def test_many_mistakes_cost_little_more_than_one(site: Served[FakeEngine], case: str) -> None:
    path, body = WIDE[case]
    begun = thread_time()
    answer = await site.post(path, body)
    assert answer.status == 400
    assert thread_time() - begun < 2.5
