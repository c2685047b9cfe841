"""What a response is asked for, how it goes on from another one, and how long it is kept."""

from typing import Any

import pytest

from server.request import FinishReason
from tests.support.engines import FakeEngine
from tests.support.responses import RESPONSES, TOOL, answered, ask, post_as, request
from tests.support.site import Served, serving
from tests.support.waiting import turns, until


def prompt_of(site: Served[FakeEngine], index: int = -1) -> str:
    """What the model was told."""
    ids = site.engine.sequences[index].request.prompt_token_ids
    return site.engine.model.tokenizer.backend.decode(list(ids), skip_special_tokens=False)


def text_in(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


@pytest.mark.parametrize(
    "given",
    [
        "How are you?",
        [{"role": "user", "content": "How are you?"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How are you?"}]}],
        [{"role": "user", "content": [{"type": "text", "text": "How are "}, {"type": "input_text", "text": "you?"}]}],
        [{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "How are you?"}],
        [{"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "How are you?"}],
    ],
)
async def test_the_same_words_in_any_form_make_the_same_prompt(site: Served[FakeEngine], given: Any) -> None:
    await answered(site, input=given)
    assert prompt_of(site).endswith("<|im_start|>user\nHow are you?<|im_end|>\n<|im_start|>assistant\n")


async def test_instructions_and_a_developers_message_are_one_system_message(site: Served[FakeEngine]) -> None:
    await answered(
        site,
        instructions="Be brief.",
        input=[{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    )
    assert prompt_of(site).startswith("<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call", "id": "c"}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_0"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1]"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"background": True, "store": False}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools.0"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [TOOL]}, "tools"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"const": 10**30}}}}, "text.format"),
        ({"tools": [TOOL | {"parameters": {"const": 10**30}}], "tool_choice": "none"}, "tools"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"max_output_tokens": 100_000}, "max_output_tokens"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    site: Served[FakeEngine], fields: dict[str, Any], param: str
) -> None:
    exchange = await site.post(RESPONSES, ask(**fields))
    assert exchange.status == (404 if param == "previous_response_id" else 400)
    assert exchange.error["param"] == param
    assert not site.engine.sequences


async def test_what_was_asked_is_told_again(site: Served[FakeEngine]) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "user": "u",
    }
    response = await answered(site, tools=[TOOL], truncation="auto", service_tier="flex", **asked)
    assert {name: response[name] for name in asked} == asked
    assert response["tools"] == [TOOL | {"strict": None}]
    assert (response["truncation"], response["service_tier"], response["store"]) == ("disabled", "default", True)


async def test_a_forced_call_is_an_item_of_its_own(site: Served[FakeEngine]) -> None:
    response = await answered(
        site, '{"city": "Paris"}', tools=[TOOL], tool_choice={"type": "function", "name": "weather"}
    )
    (item,) = response["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "weather", "completed")
    assert item["arguments"] == '{"city": "Paris"}'
    assert item["call_id"].startswith("call_") and item["id"].startswith("fc_")
    assert site.engine.sequences[0].request.params.structured is not None


async def test_a_response_goes_on_from_the_one_before(site: Served[FakeEngine]) -> None:
    first = await answered(site, "Hello Alice", input="I am Alice", instructions="Be brief.")
    second = await answered(site, "Alice", input="Who am I?", previous_response_id=first["id"])
    await answered(site, input="Sure?", previous_response_id=second["id"])
    told = prompt_of(site)
    assert "Be brief." not in told
    turns_of = [turn.split("<|im_end|>")[0] for turn in told.split("<|im_start|>")[2:]]
    assert turns_of == [
        "user\nI am Alice",
        "assistant\nHello Alice",
        "user\nWho am I?",
        "assistant\nAlice",
        "user\nSure?",
        "assistant\n",
    ]


async def test_a_tools_result_is_told_to_the_model_that_called_it(
    site: Served[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    tokenizer = site.engine.model.tokenizer
    render = tokenizer.render_chat

    def spy(messages: Any, **kwargs: Any) -> str:
        seen.append(messages)
        return render([{"role": "user", "content": "x"}])

    monkeypatch.setattr(tokenizer, "render_chat", spy)
    first = await answered(site, '{"city": "Paris"}', tools=[TOOL], tool_choice={"type": "function", "name": "weather"})
    call = first["output"][0]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"}
    await answered(site, previous_response_id=first["id"], input=[result])
    function = {"name": "weather", "arguments": {"city": "Paris"}}
    assert seen[-1] == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call["call_id"], "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call["call_id"], "content": "Rain", "name": "weather"},
    ]
    await answered(site, input=[{"type": "item_reference", "id": call["id"]}, result])
    assert seen[-1][1:] == seen[-2][2:]


async def test_a_stored_response_is_found_until_it_is_deleted(site: Served[FakeEngine]) -> None:
    response = await answered(site)
    path = f"{RESPONSES}/{response['id']}"
    assert (await site.get(path)).json == response
    assert (await request(site, "DELETE", path)).json == {"id": response["id"], "object": "response", "deleted": True}
    for method in ("GET", "DELETE"):
        gone = await request(site, method, path)
        assert (gone.status, gone.error["code"]) == (404, "response_not_found")


async def test_a_response_is_not_stored_where_that_is_not_wanted(site: Served[FakeEngine]) -> None:
    response = await answered(site, store=False)
    assert response["store"] is False
    assert (await site.get(f"{RESPONSES}/{response['id']}")).status == 404
    assert len(site.services.responses) == 0


async def test_a_turn_that_its_client_left_is_not_gone_on_from(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(stream=True))
    (await site.engine.sequence()).say("Par")
    await until(lambda: exchange.writes)
    exchange.disconnect()
    await exchange
    await until(lambda: site.idle)
    assert site.engine.sequences[0].aborted
    assert len(site.services.responses) == 0


async def test_another_owners_response_does_not_exist(site: Served[FakeEngine]) -> None:
    exchange = post_as(site, "alice", ask())
    (await site.engine.sequence()).say("Paris", finish=FinishReason.LENGTH)
    response = (await exchange).json
    path = f"{RESPONSES}/{response['id']}"
    for owner in ("bob", None):
        for method, where in (("GET", path), ("DELETE", path), ("POST", f"{path}/cancel")):
            assert (await request(site, method, where, owner=owner)).status == 404
    assert (await post_as(site, "bob", ask(previous_response_id=response["id"]))).status == 404
    reference = [{"type": "item_reference", "id": response["output"][0]["id"]}]
    assert (await post_as(site, "bob", ask(input=reference))).status == 400
    assert (await request(site, "GET", path, owner="alice")).status == 200


async def test_input_items_come_in_pages(site: Served[FakeEngine]) -> None:
    first = await answered(site, input=[{"role": "user", "content": f"line {k}"} for k in range(4)])
    second = await answered(site, input="more", previous_response_id=first["id"])
    path = f"{RESPONSES}/{second['id']}/input_items"
    page = (await site.get(f"{path}?order=asc&limit=3")).json
    rest = (await site.get(f"{path}?order=asc&limit=3&after={page['last_id']}")).json
    assert (page["has_more"], rest["has_more"]) == (True, False)
    texts = [item["content"][0]["text"] for item in page["data"] + rest["data"]]
    assert texts == ["line 0", "line 1", "line 2", "line 3", "Paris", "more"]
    assert [item["id"] for item in (await site.get(path)).json["data"]][::-1] == [
        item["id"] for item in page["data"] + rest["data"]
    ]
    assert (await site.get(f"{path}?after=x")).status == 400
    assert (await site.get(f"{path}?limit=0")).error["param"] == "limit"


async def test_a_response_made_in_one_call_is_neither_streamed_again_nor_cancelled(site: Served[FakeEngine]) -> None:
    response = await answered(site)
    path = f"{RESPONSES}/{response['id']}"
    assert (await site.get(f"{path}?stream=true")).status == 400
    assert (await request(site, "POST", f"{path}/cancel")).status == 400


async def test_a_thousand_responses_stay_within_the_bounds(scripted: Any) -> None:
    async with serving(scripted(stop_after=1), "responses.store_count=50") as site:
        ids = [(await site.post(RESPONSES, ask())).json["id"] for _ in range(1000)]
        store = site.services.responses
        assert len(store) == 50
        assert (await site.get(f"{RESPONSES}/{ids[0]}")).status == 404
        assert (await site.get(f"{RESPONSES}/{ids[-1]}")).status == 200
        await turns()
        assert store.size < 50 * 5000


async def test_there_is_no_compaction(site: Served[FakeEngine]) -> None:
    assert (await site.post(f"{RESPONSES}/compact", ask())).status == 404
