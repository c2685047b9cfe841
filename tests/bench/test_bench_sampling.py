import json
import warnings
from pathlib import Path

import pytest
import torch

with warnings.catch_warnings():  # vLLM's imports warn of each other
    warnings.simplefilter("ignore")
    from vllm.platforms import current_platform

    from bench.micro import bench_sampling
    from sampling.processors.chain import SAMPLERS

DEVICE = torch.device(current_platform.device_type)
SHORT = ["--devices", DEVICE.type, "--vocabularies", "600", "--batches", "1", "3", "--rounds", "1", "--seconds", "0"]


def test_every_arm_is_measured_at_every_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sampling.json"
    bench_sampling.main([*SHORT, "--output", str(path)])
    costs = json.loads(path.read_text())["costs"]
    arms = {name for name, _ in bench_sampling.steps(1, 600, DEVICE)}
    assert {f"vLLM {name}" for name in ("greedy", "temperature", "top-k", "top-p", "min-p")} < arms
    assert sorted((cost["arm"], cost["where"]) for cost in costs) == sorted(
        (arm, f"{DEVICE.type} peaked 600 × {batch}") for arm in arms for batch in (1, 3)
    )
    assert all(0 < cost["least"] <= cost["us"] <= cost["most"] for cost in costs)
    assert capsys.readouterr().out.count("\n") == 2 + len(arms)


def test_arms_and_logits_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    bench_sampling.main([*SHORT, "--logits", "flat", "--arms", "greedy", "min-p"])
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert f"{DEVICE.type} flat 600 × 1 | {DEVICE.type} flat 600 × 3" in head
    assert [line.split(" | ")[0] for line in lines] == ["| vLLM greedy", "| vLLM min-p"]


@pytest.mark.parametrize("name", [type(sampler).__name__ for sampler in SAMPLERS])
def test_what_is_measured_of_a_processor_is_work(name: str) -> None:
    logits = bench_sampling.peaked(3, 600).to(DEVICE)
    step = dict(bench_sampling.steps(3, 600, DEVICE))[name]
    shaped = [step(logits.clone()) for _ in range(10)]
    assert any(isinstance(found, torch.Tensor) and not torch.equal(found, logits) for found in shaped)
