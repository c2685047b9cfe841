"""Token ids of one sequence → text, a piece at a time.

How depends on the tokenizer's decoder, looked at once per tokenizer:

- ByteLevel (GPT-2, Llama 3, Qwen, …) and Replace → ByteFallback → Fuse (→ Strip) (Llama 2, Mistral, Gemma, …) only
  join the bytes of the tokens. `_ByteText` does the same with a table of those bytes: a sequence owns at most the
  three bytes of an unfinished character, so neither the prompt, nor the length, nor ids that never form UTF-8 can
  cost anything.
- Any other decoder may look at neighbouring tokens. `_IdWindow` asks tokenizers' DecodeStream and keeps its window
  short.
"""

import json
import re
from codecs import utf_8_decode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
PROMPT_TAIL = 32  # ids looked at, at either end of the prompt
MAX_WINDOW = 32  # ids an _IdWindow lets wait for a text
CONTEXT = 4  # ids kept before a new window, so that a decoder sees that it isn't at the beginning
CACHED_TOKENIZERS = 8

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Detokenizer:
    """Joined, `push` and `flush` give what `decode` makes of prompt and output, less what it makes of the prompt.

    A character that the prompt leaves unfinished belongs to the output only if the output's first byte continues it.
    Tables are shared between the sequences of a tokenizer, which therefore mustn't change once it is in use.
    """

    __slots__ = ("_text",)

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool = True
    ) -> None:
        pieces = _pieces(tokenizer, skip_special_tokens)
        self._text: _ByteText | _IdWindow
        if pieces is not None:
            self._text = _ByteText(pieces, prompt_token_ids)
        else:
            self._text = _IdWindow(tokenizer, prompt_token_ids, skip_special_tokens)

    def push(self, token_ids: Sequence[int]) -> str:
        """The text these ids complete; empty while a character is unfinished."""
        return self._text.push(token_ids)

    def flush(self) -> str:
        """What is still held; bytes that never became a character as U+FFFD."""
        return self._text.flush()

    @property
    def held(self) -> int:
        """How much waits for its continuation: bytes (3 at most) or, in a window, ids (MAX_WINDOW at most)."""
        return self._text.held


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """What a token adds to a text, special ones too; where a decoder looks at neighbours, as if it stood alone."""
    pieces = _pieces(tokenizer, False)
    if pieces is None:
        return str(tokenizer.decode([token_id], skip_special_tokens=False)).encode()
    return pieces.join((token_id,))


# ---- decoders that only join bytes


class _Spelling(NamedTuple):
    """What a decoder does: bytes of each token, then up to `strip` times `blank` taken off the very beginning."""

    spell: Callable[[str], bytes]
    blank: str = " "
    strip: int = 0


class _Pieces(dict[int, str | bytes]):
    """What each id adds to the text, learnt as ids are met: str if whole characters, bytes if it cuts one."""

    def __init__(self, tokenizer: Tokenizer, spelling: _Spelling, skipped: frozenset[int]) -> None:
        super().__init__()
        self.spelling = spelling
        self._tokenizer = tokenizer
        self._skipped = skipped

    def __missing__(self, token_id: int) -> str | bytes:
        token = self._tokenizer.id_to_token(token_id)
        if token is None:  # models pad their vocabulary beyond the tokenizer's; decode() skips such ids too
            return ""
        spelt = b"" if token_id in self._skipped else self.spelling.spell(token)
        self[token_id] = piece = _whole(spelt)
        return piece

    def join(self, token_ids: Sequence[int]) -> bytes:
        pieces = [self[token_id] for token_id in token_ids]
        return b"".join([piece if isinstance(piece, bytes) else piece.encode() for piece in pieces])


class _ByteText:
    """UTF-8 across tokens. Invalid bytes become U+FFFD by maximal subparts, as in a one-shot byte-level decode."""

    __slots__ = ("_pieces", "_plain", "_rest", "_rest_is_prompts", "_strip")

    def __init__(self, pieces: _Pieces, prompt: Sequence[int]) -> None:
        self._pieces = pieces
        self._rest = _unfinished(pieces.join(prompt[-PROMPT_TAIL:]))
        self._rest_is_prompts = bool(self._rest)
        self._strip = _strip_left_over(pieces, prompt)
        self._plain = not (self._rest or self._strip)

    def push(self, token_ids: Sequence[int]) -> str:
        if len(token_ids) != 1:
            return self._push_bytes(self._pieces.join(token_ids))
        piece = self._pieces[token_ids[0]]
        if isinstance(piece, bytes):
            return self._push_bytes(piece)
        return piece if self._plain else self._push_bytes(piece.encode())

    def flush(self) -> str:
        rest = b"" if self._rest_is_prompts else self._rest
        self._rest, self._rest_is_prompts = b"", False
        return rest.decode(errors="replace")

    @property
    def held(self) -> int:
        return len(self._rest)

    def _push_bytes(self, data: bytes) -> str:
        if self._rest_is_prompts and data:
            self._rest_is_prompts = False
            if not _continues(self._rest, data):
                self._rest = b""
        data = self._rest + data
        text, used = utf_8_decode(data, "replace", False)
        self._rest = data[used:]
        if self._strip:
            text = self._stripped(text)
        self._plain = not (self._rest or self._strip)
        return text

    def _stripped(self, text: str) -> str:
        while self._strip and text.startswith(self._pieces.spelling.blank):
            text = text[1:]
            self._strip -= 1
        if text:
            self._strip = 0
        return text


@lru_cache(maxsize=CACHED_TOKENIZERS)
def _pieces(tokenizer: Tokenizer, skip_special_tokens: bool) -> _Pieces | None:
    spelling = _spelling(_steps(tokenizer))
    return spelling and _Pieces(tokenizer, spelling, _skipped_ids(tokenizer, skip_special_tokens))


@lru_cache(maxsize=CACHED_TOKENIZERS)
def _skipped_ids(tokenizer: Tokenizer, skip_special_tokens: bool) -> frozenset[int]:
    added = tokenizer.get_added_tokens_decoder() if skip_special_tokens else {}
    return frozenset(token_id for token_id, token in added.items() if token.special)


def _steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The decoder's steps as tokenizer.json has them; none for a decoder that can't be described."""
    try:
        described = json.loads(tokenizer.decoder.__getstate__())
    except Exception:  # no decoder at all, or one written in Python: tokenizers raises a bare Exception
        return []
    steps: list[dict[str, Any]] = described.get("decoders", [described])
    return steps


def _spelling(steps: list[dict[str, Any]]) -> _Spelling | None:
    match steps:
        case [{"type": "ByteLevel"}]:
            return _Spelling(_spell_byte_level)
        case [
            {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(space)},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *strip,
        ]:
            return _fallback_spelling(mark, space, strip)
    return None


def _fallback_spelling(mark: str, space: str, strip: list[dict[str, Any]]) -> _Spelling | None:
    def spell(token: str) -> bytes:
        text = token.replace(mark, space)
        byte = _BYTE_TOKEN.fullmatch(text)
        return bytes.fromhex(byte[1]) if byte else text.encode()

    match strip:
        case []:
            return _Spelling(spell)
        case [{"type": "Strip", "content": str(blank), "start": int(start), "stop": 0}]:
            return _Spelling(spell, blank, start)
    return None


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's: printable Latin-1 stands for itself, the other bytes for U+0100 onwards, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_level_alphabet()


def _spell_byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:  # an added token, spelt as plain text
        return token.encode()


def _whole(piece: bytes) -> str | bytes:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return piece


def _unfinished(data: bytes) -> bytes:
    """The bytes at the end that the next ones could still complete to a character."""
    return data[utf_8_decode(data, "replace", False)[1] :]


def _continues(unfinished: bytes, data: bytes) -> bool:
    try:
        utf_8_decode(unfinished + data[:1], "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def _strip_left_over(pieces: _Pieces, prompt: Sequence[int]) -> int:
    """How many blanks the output still loses at its beginning: none once the prompt has shown any other character."""
    _, blank, strip = pieces.spelling
    if not strip:
        return 0
    ends = prompt if len(prompt) <= PROMPT_TAIL else [*prompt[:PROMPT_TAIL], *prompt[-PROMPT_TAIL:]]
    text = pieces.join(ends).decode(errors="replace")
    return 0 if text.strip(blank) else max(0, strip - len(text))


# ---- all other decoders


class _IdWindow:
    """DecodeStream with a window that is begun anew whenever too many ids wait in it, or it refuses one.

    DecodeStream alone decodes its whole window again with each id that completes no text, fails once later ids change
    the text of earlier ones ("Invalid prefix"), and repeats what it was primed with if that ends in U+FFFD.
    """

    __slots__ = (
        "_context",
        "_pending",
        "_repeats_context",
        "_skip_special_tokens",
        "_skipped",
        "_stream",
        "_tokenizer",
    )

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._skipped = _skipped_ids(tokenizer, skip_special_tokens)
        self._begin(self._kept(prompt[-PROMPT_TAIL:])[-CONTEXT:])

    def push(self, token_ids: Sequence[int]) -> str:
        return "".join([self._step(token_id) for token_id in self._kept(token_ids)])

    def flush(self) -> str:
        return self._settle() if self._pending else ""

    @property
    def held(self) -> int:
        return len(self._pending)

    def _kept(self, token_ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in token_ids if token_id not in self._skipped]

    def _begin(self, context: list[int]) -> None:
        self._context = context
        self._pending: list[int] = []
        self._stream = DecodeStream(ids=context, skip_special_tokens=self._skip_special_tokens)
        self._repeats_context = self._decode(context).endswith(REPLACEMENT)

    def _step(self, token_id: int) -> str:
        self._pending.append(token_id)
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception:  # "Invalid prefix" comes as a bare Exception
            return self._settle()
        if text is None:
            return self._settle() if len(self._pending) >= MAX_WINDOW else ""
        if self._repeats_context:
            return self._settle()
        self._context, self._pending = self._pending, []
        return text

    def _settle(self) -> str:
        """Gives out what the pending ids say, finished or not, and begins a new window behind them."""
        before, after = self._decode(self._context), self._decode(self._context + self._pending)
        text = after.removeprefix(before) if after.startswith(before) else self._decode(self._pending)
        self._begin((self._context + self._pending)[-CONTEXT:] if text else self._context)
        return text

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special_tokens)
