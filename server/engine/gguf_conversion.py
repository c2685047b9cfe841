"""A Llama-family GGUF as a plain Hugging Face folder: bf16 weights, tokenizer, chat template, generation defaults.

The libraries that this takes are heavy, so they are imported when it runs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

CONTROL_TOKEN = 3  # among tokenizer.ggml.token_type


def convert_gguf(gguf: Path, folder: Path, generation: Mapping[str, float]) -> None:
    from gguf import GGUFReader

    fields = {name: field.contents() for name, field in GGUFReader(gguf).fields.items()}
    save_weights(gguf, folder)
    save_tokenizer(fields, folder)
    defaults = {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        **generation,
    }
    (folder / "generation_config.json").write_text(json.dumps(defaults, indent=2) + "\n")


def save_weights(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    with redirect_stderr(io.StringIO()):  # progress bars
        loaded = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
        # What was loaded counts as quantized and refuses to save; its float32 weights in a plain model do not.
        dropped = ("quantization_config", "_model_name_or_path")
        settings = {key: value for key, value in loaded.config.to_dict().items() if key not in dropped}
        model = LlamaForCausalLM(LlamaConfig(**settings))
        model.load_state_dict(loaded.state_dict())
        model.bfloat16().save_pretrained(folder)


def save_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """Byte-level BPE as the GGUF's `smollm` pre-tokenizer means it: digits one by one, then GPT-2's splitting."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if (pre := fields["tokenizer.ggml.pre"]) != "smollm":
        raise ValueError(f"cannot convert a tokenizer with pre-tokenizer {pre!r}")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    special = [
        token for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == CONTROL_TOKEN
    ]
    bpe = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(special)
    PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        model_max_length=fields["llama.context_length"],
        chat_template=fields["tokenizer.chat_template"],
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
