"""What the rings hold, and a whole step made of it. Durations and stamps in monotonic ns."""

from dataclasses import dataclass
from typing import NamedTuple

CORE_RING, WORKER_RING = "core.ring", "worker.ring"

STEP = "streamgauge_step"  # the attribute of a SchedulerOutput that numbers its step, in each process it travels to


class CoreRecord(NamedTuple):
    """The scheduling loop's side of a step."""

    step: int
    stamp: int  # of the step's outputs: EngineCoreOutputs.timestamp
    ended: int
    wall: int  # since the step before ended
    schedule: int
    execute: int  # between scheduling and update: the worker's work and the way to it and back; 0 when overlapped
    update: int
    idle: int  # waited for a request, with none to run
    intake: int  # took in requests, aborts and calls
    running: int
    room: int  # most that may run: max_num_seqs
    waiting: int
    prefill_tokens: int
    decode_tokens: int
    kv_usage_ppm: int
    overlapped: int  # 1: another step was under way at the same time (asynchronous scheduling)


class WorkerRecord(NamedTuple):
    """The model runner's side of a step."""

    step: int
    prepare: int
    forward: int
    sample: int
    finalize: int
    device_gap: int  # the device had nothing of ours to do before this step's forward; 0 on a CPU


NO_WORKER = WorkerRecord(0, 0, 0, 0, 0, 0)

PARTS = ("schedule", "prepare", "forward", "sample", "finalize", "update", "idle", "rpc", "overhead")
"""Of a step's wall time, in its order; the last three are the gap between the parts' work.

`prepare`: the batch's inputs. `forward`: the model, logits included. `sample`: logits → token ids. `finalize`: ids to
the host, bookkeeping. `update`: their requests' states. `rpc`: between the processes. `overhead`: the rest of the loop.
"""

GAP = ("idle", "rpc", "overhead")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine. Unless `overlapped`, its parts add up to `wall`, the time since the step before."""

    number: int
    stamp: int
    ended: int
    wall: int
    schedule: int
    prepare: int
    forward: int
    sample: int
    finalize: int
    update: int
    idle: int
    rpc: int
    overhead: int
    running: int
    room: int
    waiting: int
    prefill_tokens: int
    decode_tokens: int
    kv_usage: float
    overlapped: bool

    @property
    def busy(self) -> int:
        """The model at work: what effective utilization counts."""
        return self.forward + self.sample


def joined(core: CoreRecord, worker: WorkerRecord) -> Step:
    """The two sides of one step; `NO_WORKER` where the worker's is not known: its time counts as `rpc` then."""
    work = worker.prepare + worker.forward + worker.sample + worker.finalize
    if core.overlapped:
        rpc, overhead = 0, max(worker.device_gap - core.idle, 0)
    else:
        rpc = core.intake + max(core.execute - work, 0)
        overhead = max(core.wall - core.idle - rpc - work - core.schedule - core.update, 0)
    return Step(
        number=core.step,
        stamp=core.stamp,
        ended=core.ended,
        wall=core.wall,
        schedule=core.schedule,
        prepare=worker.prepare,
        forward=worker.forward,
        sample=worker.sample,
        finalize=worker.finalize,
        update=core.update,
        idle=core.idle,
        rpc=rpc,
        overhead=overhead,
        running=core.running,
        room=core.room,
        waiting=core.waiting,
        prefill_tokens=core.prefill_tokens,
        decode_tokens=core.decode_tokens,
        kv_usage=core.kv_usage_ppm / 1e6,
        overlapped=bool(core.overlapped),
    )
