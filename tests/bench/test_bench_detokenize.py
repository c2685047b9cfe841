import json
import warnings
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.sampling.tokenizers_fixture import byte_level, llama, one_shot

with warnings.catch_warnings():  # vLLM's imports warn of each other
    warnings.simplefilter("ignore")
    from bench.micro import bench_detokenize


def test_every_arm_is_measured_at_every_position(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    output = tmp_path / "detokenize.json"
    options = ["--positions", "0", "40", "--rounds", "1", "--window", "4", "--output", str(output)]
    bench_detokenize.main(["--tokenizer", str(tmp_path), *options])
    costs = json.loads(output.read_text())["costs"]
    assert [(cost["where"], cost["arm"]) for cost in costs] == [
        (where, arm) for where in ("after 0", "after 40") for arm in ("ours", "vLLM fast", "vLLM slow", "anew")
    ]
    assert all(cost["us"] > 0 for cost in costs)


@pytest.mark.parametrize("arm", list(bench_detokenize.ARMS))
@pytest.mark.parametrize("tokenizer", [byte_level(), llama()], ids=["byte level", "byte fallback"])
def test_the_arms_do_the_same_work(tokenizer: Tokenizer, arm: str) -> None:
    answer = tokenizer.encode(bench_detokenize.TEXT, add_special_tokens=False).ids
    push = bench_detokenize.ARMS[arm](tokenizer, tokenizer.encode("Hello", add_special_tokens=False).ids, [])
    assert "".join(push(token) for token in answer).strip() == one_shot(tokenizer, answer).strip()
