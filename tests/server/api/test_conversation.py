"""What a conversation allows its answer to be, and the schema that forces a call."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sampling.params import Structured
from server.api.conversation import MAX_TOOLS, Conversation, Named, Tool, ToolChoice
from server.errors import InvalidRequest

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "The weather", CITY)
CLOCK = Tool("clock")


def conversation(*tools: Tool, choice: ToolChoice = "auto", **fields: Any) -> Conversation:
    return Conversation(messages=[], tools=tools, tool_choice=choice, **fields)


def schema(*tools: Tool, choice: ToolChoice = "required", **fields: Any) -> dict[str, Any]:
    found = conversation(*tools, choice=choice, **fields).constraint()
    assert found is not None and found.kind == "json" and isinstance(found.value, str)
    parsed: dict[str, Any] = json.loads(found.value)
    return parsed


def calls_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = found["items"]["anyOf"]
    return calls


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def resolved(root: Any, reference: str) -> Any:
    node = root
    for step in reference.removeprefix("#").split("/")[1:]:
        node = node[step]
    return node


def test_a_named_tool_is_forced_by_the_schema_of_its_arguments() -> None:
    assert schema(WEATHER, CLOCK, choice=Named("get_weather")) == CITY
    assert schema(WEATHER, CLOCK, choice=Named("clock")) == {"type": "object", "properties": {}}


def test_any_tool_is_forced_by_a_list_of_calls() -> None:
    found = schema(WEATHER, CLOCK)
    assert (found["type"], found["minItems"]) == ("array", 1)
    assert "maxItems" not in found
    assert [call["properties"]["name"]["const"] for call in calls_of(found)] == ["get_weather", "clock"]
    assert calls_of(found)[0]["properties"]["parameters"] == {"$ref": "#/$defs/get_weather"}
    assert found["$defs"]["get_weather"] == CITY
    assert all(call["required"] == ["name", "parameters"] for call in calls_of(found))
    assert all(call["additionalProperties"] is False for call in calls_of(found))


def test_where_one_call_is_allowed_one_is_forced() -> None:
    assert schema(WEATHER, parallel_calls=False)["maxItems"] == 1


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
def test_definitions_stay_where_their_references_look_for_them(keyword: str) -> None:
    place = {"$ref": f"#/{keyword}/Place"}
    parameters = {
        "type": "object",
        "properties": {"from": place, "to": {"anyOf": [place, {"type": "null"}]}},
        keyword: {"Place": CITY},
    }
    tool = Tool("f", None, parameters)
    for found in (schema(tool, CLOCK), schema(tool, choice=Named("f"))):
        meant = [reference for reference in references(found) if reference.endswith("/Place")]
        assert [resolved(found, reference) for reference in meant] == [CITY] * 2


@pytest.mark.parametrize("reference", ["#", "#/properties/left"])
def test_a_reference_into_the_tools_own_schema_still_means_it(reference: str) -> None:
    left = {"type": "object", "properties": {"x": {"type": "integer"}}}
    parameters = {"type": "object", "properties": {"left": left, "right": {"$ref": reference}}}
    found = schema(Tool("f", None, parameters), CLOCK)
    right = found["$defs"]["f"]["properties"]["right"]["$ref"]
    assert resolved(found, right) == resolved(found["$defs"]["f"], reference)


def test_two_tools_may_use_one_name_for_two_definitions() -> None:
    def tool(name: str, place: dict[str, Any]) -> Tool:
        parameters = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}, "$defs": {"Place": place}}
        return Tool(name, None, parameters)

    found = schema(tool("f", CITY), tool("g", {"type": "string"}))
    meant = [resolved(found, reference) for reference in references(found) if reference.endswith("/Place")]
    assert meant == [CITY, {"type": "string"}]


def test_the_tools_themselves_are_left_as_they_are() -> None:
    parameters = {"type": "object", "$defs": {"Place": CITY}}
    tool = Tool("f", None, parameters)
    schema(tool)
    assert parameters == {"type": "object", "$defs": {"Place": CITY}}
    assert tool.for_template()["function"]["parameters"] == parameters


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
@pytest.mark.parametrize("definitions", [[1], "x", 1, True, [{}]], ids=repr)
def test_definitions_that_are_none_harm_nobody_who_does_not_refer_to_them(keyword: str, definitions: Any) -> None:
    found = schema(Tool("f", None, {"type": "object", keyword: definitions}))
    assert found["$defs"]["f"][keyword] == definitions


def test_a_schema_too_costly_is_refused_as_the_tools_fault() -> None:
    with pytest.raises(InvalidRequest) as caught:
        schema(Tool("f", None, {"type": "array", "maxItems": 10**6}))
    assert caught.value.param == "tools"


@pytest.mark.parametrize("choice", ["required", Named("clock")])
def test_a_forced_call_and_a_format_exclude_each_other(choice: ToolChoice) -> None:
    with pytest.raises(InvalidRequest) as caught:
        conversation(CLOCK, choice=choice, structured=Structured("json_object")).constraint()
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_call_that_is_not_forced_leaves_the_format(choice: ToolChoice) -> None:
    assert conversation(CLOCK, choice=choice, structured=Structured("json_object")).constraint() == Structured(
        "json_object"
    )
    assert conversation(CLOCK, choice=choice).constraint() is None


@pytest.mark.parametrize(
    ("found", "param"),
    [
        (conversation(*[Tool(f"f{i}") for i in range(MAX_TOOLS + 1)]), "tools"),
        (conversation(CLOCK, WEATHER, CLOCK), "tools"),
        (conversation(CLOCK, choice=Named("other")), "tool_choice"),
        (conversation(choice=Named("clock")), "tool_choice"),
        (conversation(choice="required"), "tool_choice"),
    ],
    ids=["too many", "twice", "unknown", "named without tools", "required without tools"],
)
def test_a_choice_that_the_tools_do_not_allow_is_refused(found: Conversation, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        found.check()
    assert caught.value.param == param


@pytest.mark.parametrize("choice", ["auto", "none", "required", Named("f0")])
def test_as_many_tools_as_are_allowed_are_well(choice: ToolChoice) -> None:
    found = conversation(*[Tool(f"f{i}") for i in range(MAX_TOOLS)], choice=choice)
    found.check()
    assert len(found.offered) == (0 if choice == "none" else MAX_TOOLS)


def test_without_tools_nothing_has_to_be_chosen() -> None:
    conversation().check()
    conversation(choice="none").check()
