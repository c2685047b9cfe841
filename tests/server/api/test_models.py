from typing import Any

import pytest

from server.api.chat import ChatRequest
from tests.support.engines import FakeEngine
from tests.support.site import MODEL, Served, serving


async def test_the_served_model_is_listed(site: Served[FakeEngine]) -> None:
    answer = await site.get("/v1/models")
    assert answer.status == 200
    (card,) = answer.json["data"]
    assert (answer.json["object"], card["object"], card["id"], card["max_model_len"]) == ("list", "model", MODEL, 512)
    assert isinstance(card["created"], int)


async def test_the_served_model_is_shown_and_no_other(site: Served[FakeEngine]) -> None:
    listed = (await site.get("/v1/models")).json["data"][0]
    assert (await site.get(f"/v1/models/{MODEL}")).json == listed
    answer = await site.get("/v1/models/org/other")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize("parser", [None, "hermes"])
async def test_tools_are_supported_where_there_is_a_parser_for_calls(engine: FakeEngine, parser: str | None) -> None:
    async with serving(engine, f"chat.tool_parser={parser or 'null'}") as site:
        supported = (await site.get(f"/v1/models/{MODEL}")).json["supported_parameters"]
    assert ("tools" in supported) is (parser is not None)


async def test_what_is_listed_as_supported_is_a_field_of_chats(site: Served[FakeEngine]) -> None:
    supported = (await site.get(f"/v1/models/{MODEL}")).json["supported_parameters"]
    assert set(supported) <= set(ChatRequest.model_fields)


@pytest.mark.parametrize("path", ["/v1/models", f"/v1/models/{MODEL}"])
async def test_no_model_is_listed_before_it_has_loaded(engine: FakeEngine, path: str) -> None:
    engine.may_start.clear()
    async with serving(engine, ready=False) as site:
        assert (await site.get(path)).status == 503


@pytest.mark.parametrize("text", ["Hello world", "", "🙂 한국어", "<|im_end|>", "x" * 10_000])
async def test_tokenize_and_detokenize_are_inverse(site: Served[FakeEngine], text: str) -> None:
    answer = await site.post("/tokenize", {"model": MODEL, "prompt": text})
    assert answer.status == 200
    assert answer.json["count"] == len(answer.json["tokens"])
    back = await site.post("/detokenize", {"model": MODEL, "tokens": answer.json["tokens"]})
    assert back.json == {"prompt": text}


async def test_tokenize_counts_messages_as_a_chat_does(site: Served[FakeEngine]) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    answer = await site.post("/tokenize", {"messages": messages})
    exchange = site.open("/v1/chat/completions", {"model": MODEL, "messages": messages})
    (await site.engine.sequence()).end()
    assert answer.json["count"] == (await exchange).json["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "payload", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [49152]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["1"]}, "tokens"),
    ],
)
async def test_wrong_input_is_named(site: Served[FakeEngine], path: str, payload: Any, param: str) -> None:
    answer = await site.post(path, payload)
    assert answer.status == 400
    assert str(answer.error["param"]).split(".")[0] == param


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_an_unknown_model_and_a_broken_body(site: Served[FakeEngine], path: str) -> None:
    answer = await site.post(path, {"model": "other", "prompt": "x", "tokens": [1]})
    assert (answer.status, answer.error["param"]) == (404, "model")
    assert (await site.post(path, b"{")).error["code"] == "invalid_json"
