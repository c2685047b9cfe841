"""What a token costs does not grow: neither with the text, nor with the prompt, nor with ids that show nothing."""

import gc
import random
from collections.abc import Iterable, Sequence
from typing import overload

import pytest
from tokenizers import Tokenizer

from sampling.detokenizer import MAX_WINDOW, Detokenizer
from tests.sampling.test_detokenizer import EVERY, JOINING_BYTES, UNFINISHED_BYTES, Build, singly, stream
from tests.sampling.tokenizers_fixture import SCRIPTS, id_of, ids_of_bytes, llama, one_shot, unusual


def held_while_streaming(tokenizer: Tokenizer, token_ids: Iterable[int]) -> tuple[int, str]:
    detokenizer = Detokenizer(tokenizer, tokenizer.encode("the").ids)
    most, shown = 0, []
    for token_id in token_ids:
        shown.append(detokenizer.push([token_id]))
        most = max(most, detokenizer.held)
    return most, "".join([*shown, detokenizer.flush()])


@pytest.mark.parametrize("build", JOINING_BYTES)
@pytest.mark.parametrize("data", [b"\xff", b"\x80", b"\xf0", b"\xf0\x9f\x8c", b"\xe0\x80", b"\xed\xa0\x80"])
def test_bytes_that_never_form_a_character_hold_three_bytes_at_most(build: Build, data: bytes) -> None:
    endless = data * (8192 // len(data))
    most, text = held_while_streaming(build(), ids_of_bytes(build(), endless))
    assert most <= UNFINISHED_BYTES
    assert text == endless.decode(errors="replace")


@pytest.mark.parametrize("build", EVERY)
def test_skipped_and_unknown_ids_do_not_pile_up(build: Build) -> None:
    fox = build().encode("fox").ids
    specials, unknown = [id_of(build(), "</s>")] * 8192, [build().get_vocab_size() + 1] * 8192
    most, text = held_while_streaming(build(), [*specials, *fox, *specials, *fox, *unknown, *fox])
    the = build().encode("the").ids
    assert most <= MAX_WINDOW
    assert one_shot(build(), the) + text == one_shot(build(), the + fox * 3)


def test_an_unknown_decoder_holds_a_bounded_window_and_shows_every_invalid_byte() -> None:
    most, text = held_while_streaming(unusual(), ids_of_bytes(unusual(), b"\xff" * 8192))
    assert most <= MAX_WINDOW
    assert text == "\ufffd" * 8192


def test_a_sequence_does_not_grow_with_its_text() -> None:
    detokenizer = Detokenizer(llama(), [])
    token_ids = llama().encode(" ".join(SCRIPTS)).ids
    detokenizer.push(token_ids)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        detokenizer.push(token_ids)
    assert len(gc.get_objects()) - before < 50
    assert detokenizer.held <= UNFINISHED_BYTES


class CountingPrompt(Sequence[int]):
    """A prompt that counts the ids looked at."""

    def __init__(self, token_ids: list[int]) -> None:
        self.looked_at = 0
        self._token_ids = token_ids

    def __len__(self) -> int:
        return len(self._token_ids)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found = self._token_ids[index]
        self.looked_at += len(found) if isinstance(found, list) else 1
        return found


@pytest.mark.parametrize("build", EVERY)
def test_of_a_long_prompt_only_the_ends_are_looked_at(build: Build) -> None:
    prompt = CountingPrompt([random.Random(7).randrange(build().get_vocab_size()) for _ in range(100_000)])
    stream(build(), singly(build().encode("the fox").ids), prompt)
    assert prompt.looked_at <= 200
