"""Parts joined, as an answer in one body has them."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.streaming.answer import Answer, Call, Passage

TEXTS = st.text("ab 🙂", min_size=1, max_size=3)


def answer_of(*parts: Part) -> Answer:
    answer = Answer()
    for part in parts:
        answer.add(part)
    return answer


def told(answer: Answer) -> list[tuple[str, str]]:
    """Kind and text of each item."""
    found = []
    for item in answer.items:
        match item:
            case Passage():
                found.append(("thoughts" if item.thoughts else "text", item.text))
            case Call():
                found.append((item.name, item.arguments))
    return found


def test_items_come_in_the_order_they_appeared_in() -> None:
    parts: list[Part] = [Reasoning("h"), Reasoning("m"), "a", "b", ToolCall("f"), Arguments("{"), Arguments("}"), "c"]
    answer = answer_of(*parts, ToolCall("g"), Arguments("[]"))
    assert told(answer) == [("thoughts", "hm"), ("text", "ab"), ("f", "{}"), ("text", "c"), ("g", "[]")]
    assert (answer.text, answer.reasoning, answer.content) == ("abc", "hm", "abc")
    assert [call.name for call in answer.calls] == ["f", "g"]


def test_an_answer_without_anything_is_an_empty_text() -> None:
    assert (answer_of().content, answer_of().reasoning, answer_of().calls) == ("", "", [])


def test_thoughts_or_calls_alone_leave_the_content_out() -> None:
    assert answer_of(Reasoning("hm")).content is None
    assert answer_of(ToolCall("f"), Arguments("{}")).content is None
    assert answer_of(Reasoning("hm"), "a").content == "a"


def test_each_call_has_an_id_of_its_own() -> None:
    ids = [call.id for call in answer_of(*[ToolCall("f")] * 100).calls]
    assert len(set(ids)) == 100
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", call_id) for call_id in ids)


@given(st.lists(TEXTS | TEXTS.map(Reasoning) | st.just(ToolCall("f")), max_size=20))
def test_nothing_is_lost_and_neighbours_of_a_kind_are_one(parts: list[Part]) -> None:
    answer = answer_of(*parts)
    assert answer.text == "".join(part for part in parts if isinstance(part, str))
    assert answer.reasoning == "".join(part.text for part in parts if isinstance(part, Reasoning))
    kinds = [kind for kind, _ in told(answer)]
    assert not any(left == right != "f" for left, right in pairwise(kinds))
