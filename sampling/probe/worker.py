"""The probe in the model runner: what a step's batch, forward, sampling and bookkeeping cost.

It wraps methods of the one worker object, after its device is initialized, and reads the moments in between from places
that vLLM already names: V1's profiling scopes, V2's `step_timing`. V2 and device events have not been run here.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from time import monotonic_ns
from types import TracebackType
from typing import Any

from sampling.probe.harmless import harmless
from sampling.probe.marks import DeviceTimer, HostTimer, Marks, Place, Timer
from sampling.probe.records import STEP, WorkerRecord
from sampling.probe.ring import RingWriter


class _Open:
    """A step in this process."""

    def __init__(self, number: int, marks: Marks) -> None:
        self.number = number
        self.marks = marks
        self.began = monotonic_ns()
        self.forward = 0  # when the host came to the forward
        self.host = 0  # ns that the host was in it


class WorkerProbe:
    """Takes the moments of the model runner and writes a `WorkerRecord` per step, before its outputs leave."""

    def __init__(self, ring: RingWriter, timer: Timer) -> None:
        self.off = False
        self._ring = ring
        self._timer = timer
        self._open: _Open | None = None
        self._before: Marks | None = None  # of the step before, kept for the gap between the two

    @harmless
    def begin(self, number: int) -> None:
        self._open = _Open(number, self._timer.marks())

    @harmless
    def mark(self, place: Place) -> None:
        """Between steps (warm-up, graph capture) it marks nothing."""
        if self._open is not None:
            if place is Place.FORWARD:
                self._open.forward = monotonic_ns()
            self._open.marks.mark(place)

    @harmless
    def executed(self, over: bool) -> None:
        """The forward is under way; `over`: nothing will be sampled."""
        if self._open is not None:
            self._open.host = monotonic_ns() - self._open.began
        if over:
            self._open = None

    @harmless
    def sampled(self, result: Any, began: int) -> None:
        """What sampling returned: ids, or a promise of them under asynchronous scheduling."""
        step, self._open = self._open, None
        if step is None:
            return
        step.host += monotonic_ns() - began
        if hasattr(result, "get_output"):
            setattr(result, STEP, step)
        else:
            self.finish(step)

    @harmless
    def finish(self, step: _Open) -> None:
        """The ids are on the host, so the device has passed all of the step's moments."""
        marks = step.marks
        prepare = step.forward - step.began
        forward = marks.between(Place.FORWARD, Place.FORWARD_END) + marks.between(Place.LOGITS, Place.SAMPLE)
        sample = marks.between(Place.SAMPLE, Place.SAMPLE_END)
        finalize = max(step.host - prepare - forward - sample, 0)
        self._ring.write(
            *WorkerRecord(step.number, prepare, forward, sample, finalize, device_gap=marks.since(self._before))
        )
        if self._before is not None:
            self._timer.release(self._before)
        self._before = marks


def install(ring: RingWriter, worker: Any) -> None:
    """Wrap a vLLM worker whose device is initialized. Only the first one of the ranks is looked at."""
    if worker.rank != 0:
        return
    probe = WorkerProbe(ring, _timer(worker.device))
    runner = worker.model_runner
    v2 = bool(getattr(worker, "use_v2_model_runner", False))
    if v2:
        _install_v2(probe, runner)
    else:
        _install_v1(probe)
    execute, sample = worker.execute_model, worker.sample_tokens

    @wraps(execute)
    def executing(output: Any, *args: Any, **kwargs: Any) -> Any:
        number = getattr(output, STEP, None)
        if number is None:
            return execute(output, *args, **kwargs)
        probe.begin(number)
        result = execute(output, *args, **kwargs)
        if v2:
            probe.mark(Place.FORWARD_END)
        probe.executed(over=result is not None)
        return result

    @wraps(sample)
    def sampling(*args: Any, **kwargs: Any) -> Any:
        began = monotonic_ns()
        if not v2:
            probe.mark(Place.SAMPLE)
        result = sample(*args, **kwargs)
        probe.sampled(result, began)
        return result

    worker.execute_model, worker.sample_tokens = executing, sampling


def _timer(device: Any) -> Timer:
    if device.type != "cuda":
        return HostTimer()
    import torch

    return DeviceTimer(partial(torch.cuda.Event, enable_timing=True))


# ---- V1


class _Scope:
    """Stands for one of the runner's profiling scopes."""

    def __init__(self, probe: WorkerProbe, entered: Place | None, left: Place | None) -> None:
        self._probe, self._entered, self._left = probe, entered, left

    def __enter__(self) -> None:
        if self._entered is not None:
            self._probe.mark(self._entered)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._left is not None:
            self._probe.mark(self._left)


def _install_v1(probe: WorkerProbe) -> None:
    import vllm.v1.utils as utils
    from vllm.v1.worker.gpu_model_runner import AsyncGPUModelRunnerOutput

    scopes: dict[str, AbstractContextManager[None]] = {
        "gpu_model_runner: forward": _Scope(probe, Place.FORWARD, None),
        "gpu_model_runner: postprocess": _Scope(probe, None, Place.FORWARD_END),
        "gpu_model_runner: sample": _Scope(probe, None, Place.SAMPLE_END),
    }
    nothing = nullcontext()
    utils._PROFILER_FUNC = lambda name: scopes.get(name, nothing)  # type: ignore[assignment]
    _install_promise(probe, AsyncGPUModelRunnerOutput)


# ---- V2


def _install_v2(probe: WorkerProbe, runner: Any) -> None:
    from vllm.v1.worker.gpu.async_utils import AsyncOutput
    from vllm.v1.worker.gpu.sample.sampler import Sampler

    start, sample, call = runner.step_timing.forward_start, runner.sample, Sampler.__call__

    @wraps(start)
    def starting() -> None:
        start()
        probe.mark(Place.FORWARD)

    @wraps(sample)
    def sampling(*args: Any, **kwargs: Any) -> Any:
        probe.mark(Place.LOGITS)
        return sample(*args, **kwargs)

    @wraps(call)
    def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
        probe.mark(Place.SAMPLE)
        result = call(self, *args, **kwargs)
        probe.mark(Place.SAMPLE_END)
        return result

    runner.step_timing.forward_start, runner.sample = starting, sampling
    Sampler.__call__ = calling  # type: ignore[method-assign]
    _install_promise(probe, AsyncOutput)


def _install_promise(probe: WorkerProbe, promise: Any) -> None:
    """Asynchronous scheduling: whoever takes the ids out has waited for the device."""
    get = promise.get_output

    @wraps(get)
    def getting(self: Any) -> Any:
        result = get(self)
        step = getattr(self, STEP, None)
        if step is not None:
            probe.finish(step)
        return result

    promise.get_output = getting
