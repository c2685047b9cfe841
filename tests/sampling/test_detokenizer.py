"""What a reader gets piece by piece is what a one-shot decode of all ids gives."""

import itertools
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from sampling.detokenizer import Detokenizer
from tests.sampling.tokenizers_fixture import (
    SCRIPTS,
    SPECIALS,
    byte_level,
    gemma,
    id_of,
    ids_of_bytes,
    llama,
    metaspace,
    one_shot,
    undecorated,
    unusual,
    wordpiece,
)

Build = Callable[[], Tokenizer]

JOINING_BYTES = [byte_level, llama, gemma]
FALLING_BACK = [llama, gemma]
WINDOWED = [unusual, metaspace, wordpiece, undecorated]
EVERY = [*JOINING_BYTES, *WINDOWED]

UNFINISHED_BYTES = 3

# The machine may be busy: no example is timed.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Bytes at which UTF-8's rules change: the first and last of each kind of lead and continuation.
BORDER_BYTES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bb bd bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


def stream(tokenizer: Tokenizer, pieces: Iterable[Sequence[int]], prompt: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.push(piece) for piece in pieces), detokenizer.flush()]


def singly(token_ids: Iterable[int]) -> list[list[int]]:
    return [[token_id] for token_id in token_ids]


def cut(token_ids: Sequence[int], cuts: Iterable[int]) -> list[Sequence[int]]:
    borders = [0, *sorted(cuts), len(token_ids)]
    return [token_ids[a:b] for a, b in itertools.pairwise(borders)]


@st.composite
def splits(draw: st.DrawFn, token_ids: st.SearchStrategy[list[int]]) -> list[Sequence[int]]:
    drawn = draw(token_ids)
    return cut(drawn, draw(st.lists(st.integers(0, len(drawn)), max_size=8)))


def any_ids(tokenizer: Tokenizer, max_size: int = 24) -> st.SearchStrategy[list[int]]:
    """Any of the vocabulary, a few ids beyond it, and often such that form no UTF-8."""
    some_byte = st.sampled_from(BORDER_BYTES).map(lambda byte: ids_of_bytes(tokenizer, bytes([byte]))[0])
    return st.lists(st.integers(0, tokenizer.get_vocab_size() + 3) | some_byte, max_size=max_size)


def text_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    texts = st.sampled_from(SCRIPTS) | st.text(max_size=20) | st.lists(st.sampled_from(SCRIPTS)).map(" ".join)
    return texts.map(lambda text: tokenizer.encode(text).ids)


# ---- equal to one-shot decoding, however the ids arrive


@relaxed
@given(splits(any_ids(byte_level())))
def test_any_byte_level_ids_in_any_split_give_the_one_shot_text(pieces: list[Sequence[int]]) -> None:
    assert "".join(stream(byte_level(), pieces)) == one_shot(byte_level(), list(itertools.chain(*pieces)))


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_text_of_any_script_in_any_split_gives_the_one_shot_text(build: Build) -> None:
    tokenizer = build()

    @relaxed
    @given(splits(text_ids(tokenizer)))
    def check(pieces: list[Sequence[int]]) -> None:
        assert "".join(stream(tokenizer, pieces)) == one_shot(tokenizer, list(itertools.chain(*pieces)))

    check()


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_output_after_a_prompt_is_the_whole_text_less_the_prompts(build: Build) -> None:
    tokenizer = build()

    @relaxed
    @given(text_ids(tokenizer), splits(text_ids(tokenizer)))
    def check(prompt: list[int], pieces: list[Sequence[int]]) -> None:
        whole = one_shot(tokenizer, [*prompt, *itertools.chain(*pieces)])
        assert one_shot(tokenizer, prompt) + "".join(stream(tokenizer, pieces, prompt)) == whole

    check()


@pytest.mark.parametrize("build", JOINING_BYTES)
@pytest.mark.parametrize("text", SCRIPTS)
def test_a_text_cut_in_two_at_any_id_comes_out_whole(build: Build, text: str) -> None:
    token_ids = build().encode(text).ids
    for position in range(len(token_ids) + 1):
        assert "".join(stream(build(), cut(token_ids, [position]))) == one_shot(build(), token_ids)


@pytest.mark.parametrize("build", [metaspace, wordpiece, undecorated])
def test_decoders_that_look_at_neighbours_give_the_one_shot_text(build: Build) -> None:
    tokenizer = build()
    known = st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=40)

    @relaxed
    @given(splits(known))
    def check(pieces: list[Sequence[int]]) -> None:
        assert "".join(stream(tokenizer, pieces)) == one_shot(tokenizer, list(itertools.chain(*pieces)))

    check()


@pytest.mark.parametrize("text", SCRIPTS)
def test_an_unknown_decoder_over_byte_tokens_gives_the_one_shot_text(text: str) -> None:
    token_ids = unusual().encode(text).ids
    assert "".join(stream(unusual(), singly(token_ids))) == one_shot(unusual(), token_ids)


@pytest.mark.parametrize("build", EVERY)
def test_the_split_never_changes_the_text(build: Build) -> None:
    tokenizer = build()
    ids = st.lists(st.integers(0, tokenizer.get_vocab_size() + 3), max_size=60)

    @relaxed
    @given(ids, splits(ids))
    def check(prompt: list[int], pieces: list[Sequence[int]]) -> None:
        token_ids = list(itertools.chain(*pieces))
        text = "".join(stream(tokenizer, pieces, prompt))
        assert text == "".join(stream(tokenizer, singly(token_ids), prompt))
        assert text == "".join(stream(tokenizer, [token_ids], prompt))

    check()


def test_special_tokens_are_shown_if_asked_for() -> None:
    token_ids = byte_level().encode("<s>fox</s>").ids
    detokenizer = Detokenizer(byte_level(), [], skip_special_tokens=False)
    assert [detokenizer.push([token_id]) for token_id in token_ids if token_id < len(SPECIALS)] == ["<s>", "</s>"]
    assert "".join(stream(byte_level(), singly(token_ids))) == "fox"


@pytest.mark.parametrize("build", EVERY)
def test_each_id_alone_gives_what_it_decodes_to(build: Build) -> None:
    for token_id in range(build().get_vocab_size()):
        assert "".join(stream(build(), [[token_id]])) == one_shot(build(), [token_id])


@pytest.mark.parametrize("build", EVERY)
def test_an_id_beyond_the_vocabulary_shows_nothing_and_disturbs_nothing(build: Build) -> None:
    token_ids, beyond = build().encode("the fox").ids, build().get_vocab_size() + 7
    padded = [beyond, *itertools.chain(*((token_id, beyond) for token_id in token_ids))]
    assert "".join(stream(build(), singly(padded))) == one_shot(build(), token_ids)


def test_sequences_do_not_disturb_each_other() -> None:
    one, other = Detokenizer(byte_level(), []), Detokenizer(byte_level(), [])
    emoji, hangul = ids_of_bytes(byte_level(), "🫠".encode()), ids_of_bytes(byte_level(), "한국".encode())
    shown = [(one.push([a]), other.push([b])) for a, b in itertools.zip_longest(emoji, hangul, fillvalue=hangul[0])]
    assert "".join(text for text, _ in shown).startswith("🫠")
    assert "".join(text for _, text in shown) == "한국"


# ---- characters in several tokens


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_an_emoji_split_over_four_tokens_comes_out_whole(build: Build) -> None:
    assert stream(build(), singly(ids_of_bytes(build(), "🌶".encode()))) == ["", "", "", "🌶", ""]


@pytest.mark.parametrize("build", [*JOINING_BYTES, unusual])
@pytest.mark.parametrize("text", [text for text in SCRIPTS if "\ufffd" not in text])
def test_no_replacement_character_is_shown_in_a_text_that_has_none(build: Build, text: str) -> None:
    for token_ids in (build().encode(text).ids, ids_of_bytes(build(), text.encode())):
        shown = stream(build(), singly(token_ids))
        assert "\ufffd" not in "".join(shown)
        assert shown[-1] == "", "nothing of a finished text is held back"


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_an_unfinished_character_at_the_end_becomes_one_replacement_character(build: Build) -> None:
    token_ids = ids_of_bytes(build(), "ok🌶".encode()[:-1])
    assert stream(build(), singly(token_ids)) == ["o", "k", "", "", "", "\ufffd"]


@pytest.mark.parametrize("build", [*JOINING_BYTES, unusual])
def test_a_replacement_character_that_is_meant_is_neither_lost_nor_doubled(build: Build) -> None:
    token_ids = ids_of_bytes(build(), "a\ufffd\ufffdb\ufffd".encode())
    assert "".join(stream(build(), singly(token_ids))) == "a\ufffd\ufffdb\ufffd"


@pytest.mark.parametrize("build", EVERY)
def test_flushing_twice_gives_the_text_once(build: Build) -> None:
    detokenizer = Detokenizer(build(), [])
    detokenizer.push(build().encode("the fox").ids)
    detokenizer.flush()
    assert detokenizer.flush() == ""


# ---- the beginning of the text


def test_the_first_space_is_dropped_only_at_the_beginning_of_the_text() -> None:
    fox = [id_of(llama(), "▁"), *llama().encode("fox").ids]
    assert "".join(stream(llama(), singly(fox))) == " fox"
    assert "".join(stream(gemma(), singly(fox))) == "  fox"


@pytest.mark.parametrize("build", [llama, metaspace])
@pytest.mark.parametrize("prompt", ["", "<s>", "the", "the ", "<s>the</s>"])
def test_a_prompt_decides_whether_the_first_space_shows(build: Build, prompt: str) -> None:
    before, output = build().encode(prompt).ids, build().encode(" the fox").ids
    whole = one_shot(build(), before + output)
    assert one_shot(build(), before) + "".join(stream(build(), singly(output), before)) == whole


def test_the_first_space_shows_after_a_long_prompt_that_ends_in_special_tokens() -> None:
    prompt = [*llama().encode("the").ids, *[id_of(llama(), "</s>")] * 1000]
    assert "".join(stream(llama(), singly(llama().encode("fox").ids), prompt)) == " fox"


# ---- prompts that end inside a character


@pytest.mark.parametrize("build", JOINING_BYTES)
@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_character_begun_in_the_prompt_is_finished_without_showing_the_prompt(build: Build, known: int) -> None:
    emoji = ids_of_bytes(build(), "🌶".encode())
    prompt = [*build().encode("Hello world ").ids, *emoji[:known]]
    output = [*emoji[known:], *ids_of_bytes(build(), b"!")]
    assert "".join(stream(build(), singly(output), prompt)) == "🌶!"
    assert "".join(stream(build(), [output], prompt)) == "🌶!"


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_a_character_the_output_does_not_continue_stays_the_prompts(build: Build) -> None:
    prompt = ids_of_bytes(build(), "你🌶".encode()[:-2])
    for output in (b"", b"!", "🌶".encode(), b"\xff"):
        expected = output.decode(errors="replace")
        assert "".join(stream(build(), singly(ids_of_bytes(build(), output)), prompt)) == expected


@pytest.mark.parametrize("build", JOINING_BYTES)
def test_a_character_the_output_continues_but_never_finishes_is_one_replacement_character(build: Build) -> None:
    broken = "🌶".encode()
    prompt = ids_of_bytes(build(), b"Hello " + broken[:2])
    assert "".join(stream(build(), singly(ids_of_bytes(build(), broken[2:3])), prompt)) == "\ufffd"
    assert "".join(stream(build(), singly(ids_of_bytes(build(), broken[2:3] + b"a")), prompt)) == "\ufffda"


@pytest.mark.parametrize("build", [*JOINING_BYTES, unusual])
def test_a_replacement_character_that_ends_the_prompt_is_not_repeated(build: Build) -> None:
    prompt = ids_of_bytes(build(), "Hello \ufffd".encode())
    assert "".join(stream(build(), singly(ids_of_bytes(build(), b"abc")), prompt)) == "abc"


def test_any_byte_level_prompt_and_output_give_the_whole_less_the_prompt() -> None:
    tokenizer = byte_level()

    @relaxed
    @given(any_ids(tokenizer, 60), any_ids(tokenizer))
    def check(prompt: list[int], output: list[int]) -> None:
        before, whole = one_shot(tokenizer, prompt), one_shot(tokenizer, prompt + output)
        text = "".join(stream(tokenizer, singly(output), prompt))
        # A last character of the prompt that the output continues is the output's.
        assert before + text == whole or (before[-1:] == "\ufffd" and before[:-1] + text == whole)

    check()


@pytest.mark.parametrize("prompt", [b"\xf0\x9f", "你".encode() + b"\xf0\x9f", b"\xff" * 40])
def test_an_unknown_decoder_never_shows_a_prompt_that_ends_inside_a_character(prompt: bytes) -> None:
    before = [*unusual().encode("Hello").ids, *ids_of_bytes(unusual(), prompt)]
    output = [*ids_of_bytes(unusual(), b"\x8c\xb6"), *unusual().encode("fox").ids]
    text = "".join(stream(unusual(), singly(output), before))
    assert text.endswith(" fox")
    assert set(text.removesuffix(" fox")) <= {"🌶", "\ufffd"}


# ---- bytes that are no text


@pytest.mark.parametrize("build", FALLING_BACK)
@relaxed
@given(data=st.lists(st.sampled_from(BORDER_BYTES), max_size=24).map(bytes))
def test_ill_formed_byte_tokens_lose_only_what_is_ill_formed(build: Build, data: bytes) -> None:
    tokenizer, start = build(), ids_of_bytes(build(), b"|")
    text = "".join(stream(tokenizer, singly(ids_of_bytes(tokenizer, data)), start))
    assert text == data.decode(errors="replace")


def test_the_error_of_decode_stream_never_escapes() -> None:
    you, fox = ids_of_bytes(unusual(), "你".encode()), unusual().encode("fox").ids
    token_ids = [*you, *ids_of_bytes(unusual(), b"\xff"), *fox, *you]
    raw = DecodeStream(skip_special_tokens=True)
    with pytest.raises(Exception, match="Invalid prefix"):
        for token_id in token_ids:
            raw.step(unusual(), token_id)
    assert "".join(stream(unusual(), singly(token_ids))) == "你\ufffd fox你"


def test_any_byte_tokens_under_an_unknown_decoder_keep_the_valid_text_around_them() -> None:
    tokenizer = unusual()

    @relaxed
    @given(any_ids(tokenizer, 60), st.binary(min_size=1, max_size=100))
    def check(prompt: list[int], data: bytes) -> None:
        fox = tokenizer.encode("fox").ids
        detokenizer = Detokenizer(tokenizer, prompt)
        text = detokenizer.push([*fox, *ids_of_bytes(tokenizer, data), *fox]) + detokenizer.flush()
        assert text.count("fox") == 2 + data.count(b"fox")

    check()
