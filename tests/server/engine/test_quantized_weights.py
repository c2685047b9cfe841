"""Weights in fewer bits say nearly what they said, and are packed as vLLM's reader expects."""

import json
from pathlib import Path

import pytest
import torch
from compressed_tensors.compressors import unpack_from_int32
from safetensors.torch import load_file, save_file

from server.engine.quantized_weights import GROUP, quantize_folder

PREFIX = "model.layers.0.mlp.up_proj."


def folder(path: Path, **weights: torch.Tensor) -> Path:
    path.mkdir()
    save_file({name.replace("__", "."): tensor for name, tensor in weights.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.json").write_text("{}")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    up = torch.randn(48, 64) * torch.rand(48, 1)
    up[3] = 0  # a row without a range
    up[5] = up[5].abs() + 1  # one whose range would not hold zero
    weights = {"model__layers__0__mlp__up_proj__weight": up.bfloat16(), "model__norm__weight": torch.ones(64)}
    return folder(tmp_path / "source", model__embed_tokens__weight=torch.randn(8, 64).bfloat16(), **weights)


def quantized(source: Path, precision: str) -> dict[str, torch.Tensor]:
    target = source.parent / precision
    target.mkdir()
    quantize_folder(source, target, precision)  # type: ignore[arg-type]
    return load_file(target / "model.safetensors")


def original(source: Path) -> torch.Tensor:
    return load_file(source / "model.safetensors")[f"{PREFIX}weight"].float()


def test_eight_bits_are_within_half_a_step_of_each_row(source: Path) -> None:
    found = quantized(source, "int8")
    weight, scale = found[f"{PREFIX}weight"], found[f"{PREFIX}weight_scale"]
    assert weight.dtype is torch.int8
    assert scale.shape == (48, 1)
    wanted = original(source)
    assert ((weight.float() * scale - wanted).abs() <= 0.501 * scale).all()
    assert (weight[3] == 0).all()


def test_four_bits_are_within_a_step_of_each_group(source: Path) -> None:
    found = quantized(source, "int4")
    assert found[f"{PREFIX}weight_shape"].tolist() == [48, 64]
    values = unpack_from_int32(found[f"{PREFIX}weight_packed"], 4, torch.Size((48, 64)))
    zero = unpack_from_int32(found[f"{PREFIX}weight_zero_point"], 4, torch.Size((48, 64 // GROUP)), packed_dim=0)
    scale = found[f"{PREFIX}weight_scale"].float()
    said = (values.float().reshape(48, -1, GROUP) - zero.float()[..., None]) * scale[..., None]
    wanted = original(source).reshape(48, -1, GROUP)
    # Half a step of rounding, and what the zero point's own rounding and a scale in bf16 cut off at the ends.
    assert ((said - wanted).abs() <= 1.1 * scale[..., None]).all()
    assert (said[3] == 0).all()
    error = ((said - wanted) ** 2).mean() / (wanted**2).mean()
    assert error < 0.01


@pytest.mark.parametrize(("precision", "form", "bits"), [("int8", "int-quantized", 8), ("int4", "pack-quantized", 4)])
def test_all_else_is_as_it_was_and_the_configuration_says_how_to_read_it(
    source: Path, precision: str, form: str, bits: int
) -> None:
    found = quantized(source, precision)
    before = load_file(source / "model.safetensors")
    for name in ("model.embed_tokens.weight", "model.norm.weight"):
        assert torch.equal(found[name], before[name])
    target = source.parent / precision
    config = json.loads((target / "config.json").read_text())
    assert config["hidden_size"] == 64
    assert config["quantization_config"]["format"] == form
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] == bits
    assert (target / "tokenizer.json").exists()
    assert not (target / "model.json").exists(), "the manifest is the store's"
