"""Weights in 8 bits say nearly what they said, and are written as vLLM's reader expects."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from server.engine.quantized_weights import to_int8

UP = "model.layers.0.mlp.up_proj."
AS_THEY_WERE = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.down_proj.weight")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    up = torch.randn(48, 64) * torch.rand(48, 1)
    up[3] = 0  # a row without a range
    up[5] = up[5].abs() + 1  # one whose range would not hold zero
    folder = tmp_path / "source"
    folder.mkdir()
    weights = {f"{UP}weight": up.bfloat16(), **{name: torch.randn(8, 64).bfloat16() for name in AS_THEY_WERE}}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.json").write_text("{}")
    return folder


@pytest.fixture
def target(source: Path) -> Path:
    folder = source.parent / "target"
    folder.mkdir()
    to_int8(source, folder)
    return folder


def test_eight_bits_are_within_half_a_step_of_each_row(source: Path, target: Path) -> None:
    found = load_file(target / "model.safetensors")
    weight, scale = found[f"{UP}weight"], found[f"{UP}weight_scale"]
    assert weight.dtype is torch.int8
    assert scale.shape == (48, 1)
    wanted = load_file(source / "model.safetensors")[f"{UP}weight"].float()
    assert ((weight.float() * scale - wanted).abs() <= 0.501 * scale).all()
    assert (weight[3] == 0).all()


def test_all_else_is_as_it_was_and_the_configuration_says_how_to_read_it(source: Path, target: Path) -> None:
    found, before = (load_file(folder / "model.safetensors") for folder in (target, source))
    for name in AS_THEY_WERE:
        assert torch.equal(found[name], before[name])
    config = json.loads((target / "config.json").read_text())
    assert config["hidden_size"] == 64
    quantization = config["quantization_config"]
    assert quantization["format"] == "int-quantized"
    assert quantization["config_groups"]["group_0"]["weights"]["num_bits"] == 8
    assert "re:.*down_proj" in quantization["ignore"]
    assert (target / "tokenizer.json").exists()
    assert not (target / "model.json").exists(), "the manifest is the store's"
