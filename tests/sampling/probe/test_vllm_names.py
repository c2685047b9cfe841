"""What the probe leans on in the pinned vLLM, looked up in its source: importing it all would take a GPU."""

import importlib.util
from pathlib import Path

import pytest

NAMES = {
    "vllm.v1.core.sched.scheduler": (
        "class Scheduler(",
        "def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:",
        "def get_grammar_bitmask(\n        self, scheduler_output: SchedulerOutput\n    )",
        "def update_from_output(\n        self,\n        scheduler_output: SchedulerOutput,\n"
        "        model_runner_output: ModelRunnerOutput,\n    ) -> dict[int, EngineCoreOutputs]:",
        "self.max_num_running_reqs = ",
    ),
    "vllm.v1.engine.core": (
        "self.scheduler.get_grammar_bitmask(scheduler_output)",
        "self.scheduler.update_from_output(\n            scheduler_output, model_output\n        )",
        "def _process_input_queue(self):",
        "self._handle_client_request(*req)",
    ),
    "vllm.v1.worker.worker_base": ("def init_device(self):", "return self.worker.execute_model(scheduler_output)"),
    "vllm.v1.worker.gpu_worker": ("def sample_tokens(", "self.use_v2_model_runner"),
    "vllm.v1.worker.gpu_model_runner": (
        'record_function_or_nullcontext("gpu_model_runner: forward")',
        'with record_function_or_nullcontext("gpu_model_runner: postprocess"):',
        'with record_function_or_nullcontext("gpu_model_runner: sample"):',
        "class AsyncGPUModelRunnerOutput(AsyncModelRunnerOutput):",
    ),
    "vllm.v1.utils": ("if _PROFILER_FUNC is not None:\n        return _PROFILER_FUNC(name)",),
    "vllm.v1.worker.gpu.model_runner": (
        "self.step_timing = StepTimingCollector()",
        "self.step_timing.forward_start()",
        "= self.sample(\n            hidden_states, input_batch, grammar_output\n        )",
    ),
    "vllm.v1.worker.gpu.sample.sampler": ("class Sampler", "    def __call__("),
    "vllm.v1.worker.gpu.async_utils": ("class AsyncOutput(AsyncModelRunnerOutput):", "def get_output(self)"),
}


@pytest.mark.parametrize("module", NAMES)
def test_it_is_still_there(module: str) -> None:
    top = importlib.util.find_spec("vllm")  # finding a submodule would import its parents
    assert top is not None
    assert top.submodule_search_locations is not None
    path = Path(top.submodule_search_locations[0], *module.split(".")[1:])
    source = path.with_suffix(".py").read_text()
    for name in NAMES[module]:
        assert name in source, name
