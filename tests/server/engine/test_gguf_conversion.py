"""The conversion on a GGUF of a few kilobytes: its tokenizer, its weights, its configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from server.engine.gguf_conversion import convert_gguf, save_tokenizer

WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer_fields() -> dict[str, Any]:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = sorted(ByteLevel.alphabet())
    tokens = [*WORDS, *alphabet, "12", "ab", "Ġa"]
    return {
        "llama.context_length": 64,
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(WORDS) + [1] * (len(tokens) - len(WORDS)),
        "tokenizer.ggml.merges": ["1 2", "a b", "Ġ a"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }


def test_the_tokenizer_splits_digits_and_round_trips_any_script(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(tokenizer_fields(), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("ab12 a") == ["ab", "1", "2", "Ġa"]
    for text in ("a  b\n\t12", "héllo 日本語", "العربية 🙂"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    assert [step["type"] for step in saved["pre_tokenizer"]["pretokenizers"]] == ["Digits", "ByteLevel"]
    assert saved["decoder"]["type"] == "ByteLevel"
    assert tokenizer.model_max_length == 64
    assert (tmp_path / "chat_template.jinja").is_file()


def test_only_the_control_tokens_of_the_gguf_are_special(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(tokenizer_fields(), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.encode("ab<|im_end|>ab")
    assert ids[1] == tokenizer.eos_token_id == 2
    assert tokenizer.decode(ids, skip_special_tokens=True) == "abab"
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    assert [(token["content"], token["special"]) for token in saved["added_tokens"]] == [(word, True) for word in WORDS]


def write_tiny_gguf(path: Path) -> None:
    """One Llama layer, quantized to Q4_1, with a complete tokenizer."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    fields = tokenizer_fields()
    vocab, hidden, inner = len(fields["tokenizer.ggml.tokens"]), 64, 96
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(32)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(fields["tokenizer.ggml.tokens"])
    writer.add_token_types(fields["tokenizer.ggml.token_type"])
    writer.add_token_merges(fields["tokenizer.ggml.merges"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(fields["tokenizer.chat_template"])
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (vocab, hidden),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (hidden // 2, hidden),
        "blk.0.attn_v": (hidden // 2, hidden),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (inner, hidden),
        "blk.0.ffn_up": (inner, hidden),
        "blk.0.ffn_down": (hidden, inner),
    }
    for name, shape in shapes.items():
        kind = GGMLQuantizationType.Q4_1
        writer.add_tensor(
            f"{name}.weight", quantize(random.normal(size=shape).astype(np.float32), kind), raw_dtype=kind
        )
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_becomes_a_plain_bfloat16_model_with_the_same_weights(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    gguf, folder = tmp_path / "tiny.gguf", tmp_path / "converted"
    generation = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
    folder.mkdir()
    write_tiny_gguf(gguf)
    convert_gguf(gguf, folder, generation)
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert config["eos_token_id"] == 2
    assert config["max_position_embeddings"] == 64
    assert config["tie_word_embeddings"] is True
    assert "quantization_config" not in config
    defaults = json.loads((folder / "generation_config.json").read_text())
    assert defaults == generation | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    converted = AutoModelForCausalLM.from_pretrained(folder)
    assert converted.dtype == torch.bfloat16
    for name, weights in original.state_dict().items():
        assert torch.equal(weights.to(torch.bfloat16), converted.state_dict()[name]), name


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'llama-bpe'"):
        save_tokenizer(tokenizer_fields() | {"tokenizer.ggml.pre": "llama-bpe"}, tmp_path)
