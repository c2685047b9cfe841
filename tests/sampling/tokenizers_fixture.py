"""Small real tokenizers, one for each way of decoding, so poor in words that most scripts fall apart into bytes."""

import json
from collections.abc import Sequence
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIALS = ["<unk>", "<s>", "</s>"]

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox goes on.",
    "A stream of tokens becomes a stream of text, a piece at a time; the text never changes behind a reader's back.",
    "한국어는 교착어이다. 한국어를 배우는 사람이 많다.",
    "नमस्ते दुनिया, नमस्ते दोस्त",
    "Grüße aus Köln – 你好,世界 🙂🙂",
]

# Scripts a reply may be in, most of them unknown to the vocabularies above.
SCRIPTS = [
    "plain English text, with  two spaces and\n\ta new line",
    "한국어로 대답하겠습니다",
    "مرحبا بالعالم، كيف حالك؟",
    "नमस्ते, क्षत्रिय स्त्री",
    "สวัสดีชาวโลก น้ำ",
    "漢字かな交じり文、龜龜",
    "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🫠 🥹 🌶️",
    "e\u0301 n\u0303 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324",
    "Ελληνικά, русский, עברית",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff",
    "a legitimate \ufffd in the text, and one at the end \ufffd",
]


@cache
def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3 and Qwen: the vocabulary's tokens are runs of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIALS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Added tokens are spelt as text; whether `é` is one character or a byte is up to the decoder.
    tokenizer.add_tokens(["wörld 你", "éè", AddedToken("<think>", special=False)])
    return tokenizer


@cache
def llama() -> Tokenizer:
    """As Llama 2 and Mistral: unknown characters become byte tokens, and the text's first space goes."""
    return _sentencepiece([decoders.Strip(" ", 1, 0)])


@cache
def gemma() -> Tokenizer:
    """As llama, but the first space stays."""
    return _sentencepiece([])


@cache
def unusual() -> Tokenizer:
    """Byte tokens below a decoder that no popular model has, so that nothing is known of it."""
    tokenizer = _sentencepiece([])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    return tokenizer


@cache
def metaspace() -> Tokenizer:
    """As T5: whole characters only, the first space goes."""
    tokenizer = _sentencepiece([])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@cache
def wordpiece() -> Tokenizer:
    """As BERT: a token's text depends on whether it is the first."""
    words = ["the", "fox", "jump", "##s", "##ing", ".", ",", "do", "n't", "한국어", "🙂"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate([*SPECIALS, *words])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


@cache
def undecorated() -> Tokenizer:
    """No decoder: tokens are joined with spaces."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*SPECIALS, "the", "fox"])}, "<unk>"))
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def one_shot(tokenizer: Tokenizer, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
    return tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)


def ids_of_bytes(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    spell = _byte_level_char if tokenizer is byte_level() else "<0x{:02X}>".format
    return [id_of(tokenizer, spell(byte)) for byte in data]


def id_of(tokenizer: Tokenizer, token: str) -> int:
    token_id = tokenizer.token_to_id(token)
    assert token_id is not None, f"the vocabulary has no {token!r}"
    return token_id


def _byte_level_char(byte: int) -> str:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return chr(byte) if byte in shown else chr(0x100 + byte - sum(other < byte for other in shown))


def _sentencepiece(ending: list[decoders.Decoder]) -> Tokenizer:
    tokenizer = Tokenizer(_model_with_byte_tokens())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ending]
    )
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def _model_with_byte_tokens() -> models.BPE:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=SPECIALS, show_progress=False)
    trained.train_from_iterator([*CORPUS[:2], "▁▁▁ ▁▁"], trainer)
    model = json.loads(trained.to_str())["model"]
    vocab: dict[str, int] = model["vocab"]
    merges = [(left, right) for left, right in model["merges"]]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    return models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
