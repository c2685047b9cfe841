"""A stop ends the text before it shows, and nothing else is held back."""

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.stop import StopMatcher, _Trie

# The machine may be busy: no example is timed.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def naive(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text before the first stop to be completed, and that stop; the longest, if several end there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


def held_by(text: str, stops: Sequence[str]) -> str:
    """The longest end of the text that begins a stop."""
    beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
    return next((text[i:] for i in range(len(text)) if text[i:] in beginnings), "")


def stream(stops: Sequence[str], pieces: Iterable[str], *, include_stop: bool = False) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops, include_stop=include_stop)
    return [*(matcher.push(piece) for piece in pieces), matcher.flush()], matcher.matched


# Few letters, so that stops overlap, nest and repeat; é and an emoji, so that characters aren't all of one width.
WORDS = (
    st.text("ab", min_size=1, max_size=6)
    | st.text("abc", min_size=1, max_size=4)
    | st.text("aé🙂", min_size=1, max_size=3)
)
STOPS = st.lists(WORDS, max_size=5)
PIECES = st.lists(st.text("abcé🙂", max_size=6), max_size=16)


@relaxed
@given(STOPS, PIECES)
def test_any_text_in_any_split_ends_where_the_naive_search_ends_it(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    before, stop = naive(text, stops)
    for split in (pieces, [text], list(text)):
        shown, matched = stream(stops, split)
        assert ("".join(shown), matched) == (before, stop)


@relaxed
@given(STOPS, PIECES)
def test_any_text_runs_through_the_stop_if_that_is_asked_for(stops: list[str], pieces: list[str]) -> None:
    before, stop = naive("".join(pieces), stops)
    shown, matched = stream(stops, pieces, include_stop=True)
    assert ("".join(shown), matched) == (before + (stop or ""), stop)


@relaxed
@given(STOPS, PIECES)
def test_exactly_the_longest_end_that_begins_a_stop_is_held_back(stops: list[str], pieces: list[str]) -> None:
    matcher, text, shown = StopMatcher(stops), "", ""
    for piece in pieces:
        text, shown = text + piece, shown + matcher.push(piece)
        if matcher.matched:
            break
        assert shown + held_by(text, stops) == text


@pytest.mark.parametrize("size", range(1, 12))
def test_nothing_of_a_stop_leaks_whatever_the_size_of_the_pieces(size: int) -> None:
    text = "the English alphabet: ABCDEFGHIJKLMNO"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert stream(["DEFGHIJ"], pieces)[1] == "DEFGHIJ"
    assert "".join(stream(["DEFGHIJ"], pieces)[0]) == "the English alphabet: ABC"


def test_every_cut_in_three_gives_the_same() -> None:
    text, stops = "aabaabaaab|aab", ["abaaa", "aaab|", "baa|"]
    for first, second in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        shown, matched = stream(stops, [text[:first], text[first:second], text[second:]])
        assert ("".join(shown), matched) == naive(text, stops)


def test_text_that_begins_no_stop_is_shown_at_once() -> None:
    never = "<" + "x" * 63
    pieces = ["one ", "two ", "three"]
    assert stream([never], pieces) == ([*pieces, ""], None)


def test_a_beginning_that_turns_out_to_be_none_is_shown_with_what_follows() -> None:
    assert stream(["\n\nHuman:"], ["a\n", "\n", "Hum", "ble"]) == (["a", "", "", "\n\nHumble", ""], None)


def test_a_held_beginning_is_shown_when_the_sequence_ends() -> None:
    assert stream(["<|end|>"], ["so <|e", "nd"]) == (["so ", "", "<|end"], None)


def test_only_as_much_stays_held_as_can_still_become_a_stop() -> None:
    assert stream(["aab"], ["aa", "a", "a", "b"]) == (["", "a", "a", "", ""], "aab")


def test_the_stop_completed_first_wins_over_the_one_begun_first() -> None:
    assert stream(["bcdef", "cd"], ["abcdefg"]) == (["ab", ""], "cd")


def test_of_stops_that_end_together_the_longest_wins() -> None:
    for stops in itertools.permutations(["d", "cd", "abcd", "bcd"]):
        assert stream(stops, ["xab", "cde"]) == (["x", "", ""], "abcd")


def test_a_stop_inside_a_longer_one_ends_the_text_and_frees_what_the_longer_one_held() -> None:
    assert stream(["abcde", "c"], ["xab", "cde"]) == (["x", "ab", ""], "c")


def test_a_stop_inside_a_stop_inside_a_stop_ends_the_text_the_first_time_it_shows() -> None:
    assert stream(["xabz", "aby", "b"], ["xab"]) == (["xa", ""], "b")


def test_a_stop_that_begins_another_always_ends_the_text() -> None:
    assert stream(["end of text", "end"], ["the end of text"]) == (["the ", ""], "end")


def test_a_repeated_character_matches_where_it_is_first_complete() -> None:
    assert stream(["aaa"], ["baa", "aaaa"]) == (["b", "", ""], "aaa")


def test_text_after_a_stop_is_discarded_and_later_pushes_show_nothing() -> None:
    assert stream(["7"], ["5, 6, 7, 8", " 9", "7"]) == (["5, 6, ", "", "", ""], "7")
    assert stream(["7"], ["5, 6, 7, 8", " 9"], include_stop=True) == (["5, 6, 7", "", ""], "7")


def test_a_stop_may_be_any_character_and_be_given_twice() -> None:
    for stop in ("\0", "\ufffd", "🙂", "\ud800", "[^]", "\n"):
        assert stream([stop, stop], ["a", f"b{stop}c"]) == (["a", "b", ""], stop)


def test_without_stops_every_text_is_shown_at_once() -> None:
    assert stream([], ["any", "", "thing"]) == (["any", "", "thing", ""], None)


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


# ---- the work is linear


class CountingTrie(_Trie):
    """Counts the nodes looked at, those of failure links included."""

    steps = 0

    def child(self, node: int, char: str) -> int | None:
        self.steps += 1
        return super().child(node, char)


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (["a" * 20_000 + "b"], "a" * 60_000),
        (["ab" * 10_000 + "c"], "ab" * 30_000),
        (["a" * length + "b" for length in range(1, 150)], "a" * 20_000),
        (["x" + "a" * 20_000 + "b", "a" * 20_000 + "c"], ("x" + "a" * 19_990) * 3),
        (["<|end|>", "\n\n"], "no stop in here\n" * 2000),
    ],
)
def test_each_character_costs_a_few_steps_however_long_stops_and_text_are(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    matcher._trie = trie = CountingTrie(stops)
    trie.steps = 0
    shown = [matcher.push(text[i : i + 4]) for i in range(0, len(text), 4)]
    assert "".join([*shown, matcher.flush()]) == text
    assert trie.steps <= 6 * len(text)


def test_a_stop_of_a_million_characters_is_found_and_its_beginning_held() -> None:
    stop = "ab" * 500_000
    shown, matched = stream([stop], ["xab", *[stop[:1000]] * 1001])
    assert ("".join(shown), matched) == ("x", stop)
    assert stream([stop], ["xab", stop[2:-1], "c"]) == (["x", "", stop[:-1] + "c", ""], None)
