"""A breaker is found in every way in which tokens may spell it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from sampling.breakers import DEFAULT_BREAKERS, LONGEST_TAIL, breaker_sequences
from sampling.detokenizer import token_bytes
from tests.sampling.test_detokenizer import EVERY, JOINING_BYTES, Build
from tests.sampling.tokenizers_fixture import SCRIPTS, byte_level, gemma, id_of, ids_of_bytes, llama

relaxed = settings(deadline=None)


def spelling(vocabulary: list[str], merges: list[tuple[str, str]]) -> Tokenizer:
    """Tokens of plain text, their ids by place; an encoder knows the merges alone."""
    tokenizer = Tokenizer(models.BPE({token: token_id for token_id, token in enumerate(vocabulary)}, merges))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def text_of(tokenizer: Tokenizer, token_ids: tuple[int, ...]) -> bytes:
    return b"".join(token_bytes(tokenizer, token_id) for token_id in token_ids)


# ---- by hand


def test_a_token_that_holds_the_breaker_is_one_alone_and_one_that_begins_it_needs_the_rest() -> None:
    vocabulary = ["a", "b", "c", "x", "bc", "xa", "ab", "xabcx"]
    tokenizer = spelling(vocabulary, [("b", "c")])
    a, _, c, _, bc, xa, ab, xabcx = range(8)
    assert set(breaker_sequences(tokenizer, ["abc"])) == {(xabcx,), (a, bc), (xa, bc), (ab, c)}


def test_a_token_that_ends_with_two_beginnings_has_a_rest_for_each() -> None:
    tokenizer = spelling(["a", "b", "aa"], [])
    a, b, aa = range(3)
    assert set(breaker_sequences(tokenizer, ["aab"])) == {(a, a, b), (aa, a, b), (aa, b)}


def test_a_rest_has_no_more_ids_than_llama_cpp_looks_at() -> None:
    tokenizer = spelling(["a", "b"], [])
    assert breaker_sequences(tokenizer, ["a" + "b" * 30]) == ((0, *[1] * LONGEST_TAIL),)


def test_a_rest_that_the_vocabulary_cannot_spell_makes_no_breaker_of_its_beginning() -> None:
    tokenizer = spelling(["a", "b"], [])
    assert breaker_sequences(tokenizer, ["az"]) == ()


def test_several_breakers_come_together_and_each_sequence_once() -> None:
    tokenizer = spelling(["a", "b", "ab"], [])
    assert breaker_sequences(tokenizer, ["a", "b"]) == ((0,), (2,), (1,))
    assert breaker_sequences(tokenizer, []) == ()


def test_special_tokens_hold_breakers_too() -> None:
    assert (id_of(byte_level(), "<think>"),) in breaker_sequences(byte_level(), ["think"])


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_a_character_that_the_vocabulary_lacks_is_found_in_its_bytes(build: Build) -> None:
    character = "。".encode()
    assert tuple(ids_of_bytes(build(), character)) in breaker_sequences(build(), ["。"])


@pytest.mark.parametrize("build", [llama, gemma])
def test_the_rest_has_no_space_before_it_where_an_encoder_would_put_one(build: Build) -> None:
    ends = [sequence for sequence in breaker_sequences(build(), ["\nx"]) if len(sequence) == 2]
    assert (id_of(build(), "<0x0A>"), id_of(build(), "x")) in ends


def test_the_same_breakers_of_a_tokenizer_are_the_same_object() -> None:
    first = breaker_sequences(byte_level(), list(DEFAULT_BREAKERS))
    assert breaker_sequences(byte_level(), DEFAULT_BREAKERS) is first


# ---- every token of real vocabularies


@pytest.mark.parametrize("build", EVERY)
def test_the_usual_breakers_are_all_tokens_that_hold_one(build: Build) -> None:
    texts = {token_id: token_bytes(build(), token_id) for token_id in build().get_vocab().values()}
    holding = {(i,) for i, text in texts.items() if any(breaker.encode() in text for breaker in DEFAULT_BREAKERS)}
    assert set(breaker_sequences(build(), DEFAULT_BREAKERS)) == holding


# The llamas' mark for a space is a character that they can't spell.
CHARACTERS = st.characters(codec="utf-8", exclude_characters="▁")
BREAKERS = st.text(CHARACTERS, min_size=1, max_size=6) | st.sampled_from(["the", ". T", "\n\n", "fox ", "한국", "🙂🙂"])


@relaxed
@example(byte_level, "\x80" + "\U00010000" * 5)  # 22 bytes, each a token: the rest of the first is cut off
@given(st.sampled_from(JOINING_BYTES), BREAKERS | st.sampled_from(SCRIPTS).map(lambda text: text[:5]))
def test_a_sequence_spells_the_breaker_and_every_token_that_begins_or_holds_it_has_one(
    build: Build, breaker: str
) -> None:
    tokenizer, text = build(), breaker.encode()
    sequences = breaker_sequences(tokenizer, [breaker])
    beginnings = tuple(text[:cut] for cut in range(1, len(text)))
    assert len(set(sequences)) == len(sequences)
    for head, *tail in sequences:
        spelled = text_of(tokenizer, (head, *tail))
        cut_off = len(tail) == LONGEST_TAIL  # each of its ids has a byte of the breaker at least, and so has the head
        ends = tuple(text[:cut] for cut in range(LONGEST_TAIL + 1, len(text) + 1)) if cut_off else text
        assert spelled.endswith(ends) if tail else text in spelled
    for token_id in tokenizer.get_vocab().values():
        own = token_bytes(tokenizer, token_id)
        lengths = {len(sequence) == 1 for sequence in sequences if sequence[0] == token_id}
        assert lengths == ({True} if text in own else {False} if own.endswith(beginnings) else set())
