"""What an answer says, whichever way it came: two answers are the same when their normal forms are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.sse import DONE


@dataclass
class Said:
    """One choice. `content` is None where there never was any."""

    content: str | None = None
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)  # name, arguments
    finish: str | None = None
    logprobs: list[Any] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


@dataclass
class Normal:
    choices: dict[int, Said] = field(default_factory=dict)
    usage: dict[str, Any] | None = None


def of_chat_body(body: dict[str, Any]) -> Normal:
    found = Normal(usage=body["usage"])
    for choice in body["choices"]:
        message = choice["message"]
        found.choices[choice["index"]] = Said(
            message["content"],
            message.get("reasoning", ""),
            [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", ())],
            choice["finish_reason"],
            (choice["logprobs"] or {}).get("content", []),
            choice.get("token_ids", []),
        )
    return found


def of_chat_stream(events: Sequence[Any]) -> Normal:
    """Checks on the way what every chunk must keep to."""
    found = Normal()
    assert events[-1] == DONE and DONE not in events[:-1]
    for event in events[:-1]:
        assert event["object"] == "chat.completion.chunk"
        if not event["choices"]:
            assert found.usage is None
            found.usage = event["usage"]
            continue
        (choice,) = event["choices"]
        first = choice["index"] not in found.choices
        said = found.choices.setdefault(choice["index"], Said())
        assert said.finish is None, "nothing comes after the end"
        assert ("role" in choice["delta"]) is first
        _add_delta(said, choice["delta"])
        said.finish = choice["finish_reason"]
        said.logprobs += (choice["logprobs"] or {}).get("content", [])
        said.token_ids += choice.get("token_ids", [])
    return found


def _add_delta(said: Said, delta: dict[str, Any]) -> None:
    if (text := delta.get("content")) is not None:
        said.content = (said.content or "") + text
    said.reasoning += delta.get("reasoning", "")
    for call in delta.get("tool_calls", ()):
        if "id" in call:
            assert call["index"] == len(said.calls), "calls begin in order, without a gap"
            said.calls.append([call["function"]["name"], ""])
        said.calls[call["index"]][1] += call["function"]["arguments"]


def of_completion_body(body: dict[str, Any]) -> Normal:
    found = Normal(usage=body["usage"])
    for choice in body["choices"]:
        found.choices[choice["index"]] = _of_completion(choice)
    return found


def of_completion_stream(events: Sequence[Any]) -> Normal:
    found = Normal()
    assert events[-1] == DONE and DONE not in events[:-1]
    for event in events[:-1]:
        if not event["choices"]:
            found.usage = event["usage"]
            continue
        (choice,) = event["choices"]
        more = _of_completion(choice)
        said = found.choices.setdefault(choice["index"], Said(""))
        assert said.finish is None, "nothing comes after the end"
        said.content = (said.content or "") + (more.content or "")
        said.finish = more.finish
        said.logprobs += more.logprobs
        said.token_ids += more.token_ids
    return found


def _of_completion(choice: dict[str, Any]) -> Said:
    names = ("text_offset", "tokens", "token_logprobs", "top_logprobs")
    lists = choice["logprobs"] or dict.fromkeys(names, ())
    logprobs = [list(row) for row in zip(*(lists[name] for name in names), strict=True)]
    return Said(
        choice["text"], finish=choice["finish_reason"], logprobs=logprobs, token_ids=choice.get("token_ids", [])
    )
