"""A model's linear layers in 8 or 4 bits, in the compressed-tensors format that vLLM's CPU backend computes with.

int8: weights per output channel, symmetric; activations per token, when they are used (W8A8).
int4: weights in groups of 32 with a zero point, as fine as the Q4_1 that the default model is published in; activations
stay bf16 (W4A16).
Embeddings and the head, which may be one matrix, stay bf16.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Precision = Literal["bf16", "int8", "int4"]

GROUP = 32
LINEAR = re.compile(r"model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight")
_NO_ACTIVATIONS = None
_PER_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_PER_CHANNEL = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
_PER_GROUP = {
    "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": GROUP, "dynamic": False
}  # fmt: skip
_FORMATS: dict[Precision, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "int8": ("int-quantized", _PER_CHANNEL, _PER_TOKEN),
    "int4": ("pack-quantized", _PER_GROUP, _NO_ACTIVATIONS),
}


def quantize_folder(source: Path, target: Path, precision: Precision) -> None:
    """`target` exists and is empty; it gets everything but the manifest. Raises KeyError for bf16."""
    from safetensors.torch import load_file, save_file

    quantize = {"int8": _to_int8, "int4": _to_int4}[precision]
    weights: dict[str, Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if LINEAR.fullmatch(name):
            weights |= {f"{name.removesuffix('weight')}{part}": value for part, value in quantize(tensor).items()}
        else:
            weights[name] = tensor
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    for file in source.iterdir():
        if file.name not in ("model.safetensors", "config.json", "model.json"):
            shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = _config(precision)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _config(precision: Precision) -> dict[str, Any]:
    form, weights, activations = _FORMATS[precision]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def _to_int8(weight: Tensor) -> dict[str, Tensor]:
    """Rows are output channels."""
    import torch

    scale = (weight.float().abs().amax(dim=1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return {
        "weight": (weight.float() / scale).round().clamp(-127, 127).to(torch.int8),
        "weight_scale": scale,
    }


def _to_int4(weight: Tensor) -> dict[str, Tensor]:
    """Unsigned values 0 … 15 in the library's packing: eight to an int32, along the inputs."""
    import torch
    from compressed_tensors.compressors import pack_to_int32

    rows, columns = weight.shape
    groups = weight.float().reshape(rows, columns // GROUP, GROUP)
    # The range of a group holds zero, so that the zero point is one of its values.
    low = groups.amin(dim=2).clamp(max=0)
    high = groups.amax(dim=2).clamp(min=0)
    scale = ((high - low) / 15).clamp(min=torch.finfo(torch.bfloat16).tiny).bfloat16()
    zero = (-low / scale.float()).round().clamp(0, 15)
    values = (groups / scale.float()[..., None]).round() + zero[..., None]
    signed = (values.clamp(0, 15) - 8).to(torch.int8).reshape(rows, columns)
    return {
        "weight_packed": pack_to_int32(signed, 4),
        "weight_scale": scale,
        "weight_zero_point": pack_to_int32((zero - 8).to(torch.int8), 4, packed_dim=0).contiguous(),
        "weight_shape": torch.tensor([rows, columns]),
    }
