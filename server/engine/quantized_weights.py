"""A model's linear layers in 8 bits, in the compressed-tensors format that vLLM's CPU backend computes with (W8A8).

Weights per output channel, symmetric; activations per token, when they are used. Embeddings and the head, which may be
one matrix, stay bf16, and so do the projections down from the MLP: their inputs have outliers that 8 bits per token do
not hold.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Precision = Literal["bf16", "int8"]

LINEAR = re.compile(r"model\.layers\.\d+\.(self_attn|mlp)\.(?!down)\w+_proj\.weight")
LEFT = ["lm_head", "re:.*down_proj"]  # the same, as compressed-tensors says it
_PER_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_PER_CHANNEL = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
_CONFIG: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": _PER_CHANNEL, "input_activations": _PER_TOKEN},
    },
    "ignore": LEFT,
}


def to_int8(source: Path, target: Path) -> None:
    """`target` exists and is empty; it gets everything of `source` but the manifest."""
    from safetensors.torch import load_file, save_file

    weights: dict[str, Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if LINEAR.fullmatch(name):
            weights |= {f"{name.removesuffix('weight')}{part}": value for part, value in _quantized(tensor).items()}
        else:
            weights[name] = tensor
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    for file in source.iterdir():
        if file.name not in ("model.safetensors", "config.json", "model.json"):
            shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = _CONFIG
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _quantized(weight: Tensor) -> dict[str, Tensor]:
    """Rows are output channels."""
    import torch

    scale = (weight.float().abs().amax(dim=1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return {
        "weight": (weight.float() / scale).round().clamp(-127, 127).to(torch.int8),
        "weight_scale": scale,
    }
