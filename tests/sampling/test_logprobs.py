"""Tokens leave in order, each with the text it made, and none before that text is decided upon."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sampling.logprobs import Released, TokenLog, TokenLogprob


@dataclass
class Token:
    """`start` and `end` are of the text that it completes alone or together with those before it."""

    id: int
    start: int = 0
    end: int = 0


def logprob(token_id: int) -> TokenLogprob:
    return TokenLogprob(token_id, -0.5, 1)


def spans(sizes: list[int]) -> list[Token]:
    """Tokens of so many characters; where there are none, those of the next that has some."""
    tokens = [Token(i) for i in range(len(sizes))]
    length, waiting = 0, 0
    for position, size in enumerate(sizes):
        if size:
            for token in tokens[waiting : position + 1]:
                token.start, token.end = length, length + size
            length, waiting = length + size, position + 1
    for token in tokens[waiting:]:
        token.start = length
    return tokens


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=25)  # characters, held


@given(STEPS)
def test_a_token_leaves_exactly_when_its_text_is_decided_upon(steps: list[tuple[int, int]]) -> None:
    log, sizes, released = TokenLog(), [], Released()
    decided = 0
    for token_id, (size, held) in enumerate(steps):
        sizes.append(size)
        log.add(token_id, logprob(token_id), size)
        held = min(held, sum(sizes))
        decided = max(decided, sum(sizes) - held)
        released.extend(log.release(held))
        ready = [token for token in spans(sizes) if 0 < token.end <= decided]
        assert released.ids == [token.id for token in ready]
        assert [entry.token_id for entry in released.logprobs] == released.ids
        assert released.offsets == [token.start for token in ready]


@given(STEPS, st.integers(0, 8), st.lists(st.integers(100, 102), max_size=2))
def test_at_the_end_nothing_is_lost_and_what_is_hidden_has_no_log_probability(
    steps: list[tuple[int, int]], hidden: int, silent: list[int]
) -> None:
    log, released = TokenLog(), Released()
    hidden = min(hidden, sum(size for size, _ in steps))
    for token_id, (size, _) in enumerate(steps):
        log.add(token_id, logprob(token_id), size)
        released.extend(log.release(max(hidden, sum(size for size, _ in steps))))  # nothing is decided upon yet
    released.extend(log.close(hidden, silent))
    tokens = spans([size for size, _ in steps])
    visible = sum(size for size, _ in steps) - hidden
    assert released.ids == [*range(len(steps)), *silent]
    shown = [token for token in tokens if token.start < visible or not hidden]
    assert [entry.token_id for entry in released.logprobs] == [token.id for token in shown]
    assert released.offsets == [token.start for token in shown]
    assert log.close(0) == Released()


def test_tokens_without_log_probabilities_leave_all_the_same() -> None:
    log = TokenLog()
    log.add(1, None, 2)
    log.add(2, None, 0)
    assert log.release(0) == Released([1])
    assert log.close(0, (3,)) == Released([2, 3])


def test_text_that_comes_after_its_tokens_completes_them() -> None:
    log = TokenLog()
    log.add(1, logprob(1), 0)
    assert log.release(0) == Released()
    log.complete(1)
    assert log.release(0) == Released([1], [logprob(1)], [0])
