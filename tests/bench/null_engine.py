"""`python -m tests.bench.null_engine MODEL_DIR`: vLLM's engine over the null executor, in one process, on one batch.

The KV cache is too small for the batch and the step too small for a prompt, so that requests are preempted and
prompts are cut. Prints one JSON line.
"""

import json
import sys

PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS = 8, 100, 60


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    llm = LLM(
        model=sys.argv[1],
        distributed_executor_backend="bench.null_executor.NullExecutor",
        skip_tokenizer_init=True,
        max_model_len=256,
        max_num_batched_tokens=64,
        max_num_seqs=PROMPTS,
        kv_cache_memory_bytes=150_000,
        block_size=32,
        enable_prefix_caching=False,
        disable_log_stats=False,
    )
    prompts = [TokensPrompt(prompt_token_ids=[10 + number] * PROMPT_TOKENS) for number in range(PROMPTS)]
    params = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, temperature=0.0, detokenize=False)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    preemptions = next(metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")
    print(json.dumps({"outputs": [one.outputs[0].token_ids for one in outputs], "preemptions": preemptions}))


if __name__ == "__main__":
    main()
