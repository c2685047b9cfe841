"""What is said: conversations of known lengths, the same for the same seed, whoever asks and however often."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from bench.bodies import WORDS
from bench.run import prompt_files
from bench.run.prompt_files import Message
from bench.run.spec import Lengths, Prompts, Spec, SpecError
from bench.run.traces import BLOCK_TOKENS, Recorded

# One token each even without a blank before them; the others of WORDS need one.
FIRST_WORDS = ("river", "stone", "winter", "market")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user adds to the conversation, and how many tokens the answer may have."""

    messages: Sequence[Message]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: Sequence[Turn]


def conversations(spec: Spec, trace: Sequence[Recorded] = ()) -> Iterator[Conversation]:
    """Endless, but for a trace's, whose lengths they take; a file's come round again, in an order of the seed's.

    The template a server puts around messages is not part of the lengths. Raises SpecError.
    """
    _check(spec, trace)
    if trace:
        return (_recorded(spec.seed, number, one) for number, one in enumerate(trace))
    if spec.prompts.kind == "synthetic":
        return (_synthetic(spec, number) for number in count())
    return _from_file(spec)


def take(found: Iterable[Conversation], turns: int) -> list[Conversation]:
    """Conversations that have so many turns in all; the last one may lose its end."""
    taken: list[Conversation] = []
    if not turns:
        return taken
    for conversation in found:
        taken.append(Conversation(conversation.turns[:turns]))
        turns -= len(taken[-1].turns)
        if not turns:
            break
    return taken


def draw(lengths: Lengths, rng: random.Random) -> int:
    """A number of tokens."""
    match lengths.kind:
        case "fixed":
            drawn = float(lengths.mean)
        case "normal":
            drawn = rng.gauss(lengths.mean, lengths.spread)
        case "lognormal":
            drawn = lengths.mean * rng.lognormvariate(0, lengths.spread)
    return min(max(round(drawn), lengths.least), lengths.most)


def words(rng: random.Random, tokens: int, *, first: bool = True) -> str:
    """A text of so many tokens to the tokenizers of the known models; one that follows another begins with a blank."""
    if not first:
        return " " + " ".join(rng.choices(WORDS, k=tokens))
    return " ".join([rng.choice(FIRST_WORDS), *rng.choices(WORDS, k=tokens - 1)])


def _synthetic(spec: Spec, number: int) -> Conversation:
    # A generator of its own, so that each conversation is the same whichever others are made.
    rng = random.Random(f"{spec.seed}/conversation/{number}")
    turns = []
    for index in range(spec.prompts.turns):
        tokens = draw(spec.prompts.lengths, rng)
        text = words(rng, tokens) if index else _opening(spec.prompts, spec.seed, tokens, rng)
        turns.append(Turn([_user(text)], draw(spec.output, rng)))
    return Conversation(turns)


def _opening(prompts: Prompts, seed: int, tokens: int, rng: random.Random) -> str:
    """The first thing said; it has at least one token beside the prefix that it shares."""
    if not prompts.prefix_tokens:
        return words(rng, tokens)
    shared = random.Random(f"{seed}/prefix/{rng.randrange(prompts.prefixes)}")
    return words(shared, prompts.prefix_tokens) + words(rng, max(tokens - prompts.prefix_tokens, 1), first=False)


def _recorded(seed: int, number: int, one: Recorded) -> Conversation:
    """Of the recorded length, and with blocks of text that are equal where the recorded ones were."""
    texts: list[str] = []
    left = one.prompt_tokens
    for block in one.blocks[: -(-left // BLOCK_TOKENS)]:
        size = min(left, BLOCK_TOKENS)
        texts.append(words(random.Random(f"{seed}/block/{block}"), size, first=not texts))
        left -= size
    if left:
        texts.append(words(random.Random(f"{seed}/recorded/{number}"), left, first=not texts))
    return Conversation([Turn([_user("".join(texts))], one.output_tokens)])


def _from_file(spec: Spec) -> Iterator[Conversation]:
    assert spec.prompts.kind != "synthetic" and spec.prompts.path is not None
    scripts = prompt_files.read(spec.prompts.kind, spec.prompts.path, spec.prompts.turns)
    order = list(range(len(scripts)))
    random.Random(f"{spec.seed}/order").shuffle(order)
    rng = random.Random(f"{spec.seed}/output")
    while True:
        for index in order:
            script = scripts[index]
            yield Conversation(
                [Turn(messages, script.output_tokens or draw(spec.output, rng)) for messages in script.turns]
            )


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _check(spec: Spec, trace: Sequence[Recorded]) -> None:
    prompts = spec.prompts
    _at_least(1, {"turns": prompts.turns, "prefixes": prompts.prefixes})
    _at_least(0, {"prefix_tokens": prompts.prefix_tokens})
    for lengths in (prompts.lengths, spec.output):
        _at_least(1, {"a length": lengths.mean, "the least length": lengths.least, "the most": lengths.most})
        _at_least(0, {"the spread of lengths": lengths.spread})
        if lengths.least > lengths.most:
            raise SpecError(f"no length is at least {lengths.least} and at most {lengths.most}")
    if prompts.kind != "synthetic" and prompts.path is None:
        raise SpecError(f"{prompts.kind} prompts need a file")
    if trace and (prompts.kind != "synthetic" or prompts.turns > 1):
        raise SpecError("a trace has requests of its own lengths: prompts of a file and several turns don't go with it")


def _at_least(bound: float, values: dict[str, float]) -> None:
    for name, value in values.items():
        if not value >= bound:
            raise SpecError(f"{name} must be at least {bound}, not {value}")
