import json
import os
import subprocess
import sys
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.bench.null_engine import OUTPUT_TOKENS, PROMPTS

CHECKOUT = Path(__file__).resolve().parents[2]
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.mark.engine
def test_a_real_engine_gets_the_canned_ids_through_cut_prompts_and_preemptions(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    env = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "STREAMGAUGE_NULL_STEP_MS": "1",
        "STREAMGAUGE_NULL_IDS": "5,6,7",
    }
    argv = [sys.executable, "-m", "tests.bench.null_engine", str(tmp_path)]
    done = subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert result["outputs"] == [list(islice(cycle([5, 6, 7]), OUTPUT_TOKENS))] * PROMPTS
    assert result["preemptions"] > 0
