"""The probe in the scheduling loop: how long scheduling and bookkeeping take, and what lies between two steps.

It wraps five methods of vLLM's scheduler and loop, on their classes, before the one object of each is made.
"""

from dataclasses import dataclass
from functools import wraps
from time import monotonic_ns
from typing import Any

from sampling.probe.harmless import harmless
from sampling.probe.records import STEP, CoreRecord
from sampling.probe.ring import RingWriter


@dataclass(slots=True)
class _Open:
    """A step that was scheduled and is not over."""

    began: int
    scheduled: int
    schedule: int  # ns, grammar masks included
    running: int
    waiting: int
    prefill_tokens: int
    decode_tokens: int


class CoreProbe:
    """Takes the moments of the loop and writes a `CoreRecord` per step. Stamps are monotonic ns."""

    def __init__(self, ring: RingWriter) -> None:
        self.off = False
        self._ring = ring
        self._step = 0
        self._open: dict[int, _Open] = {}  # more than one under asynchronous scheduling alone
        self._ended = 0  # when the last step did, before the first one when the loop began: loading is no gap
        self._idle = self._intake = 0  # since the last step ended

    @harmless
    def scheduled(self, scheduler: Any, output: Any, began: int) -> None:
        """Scheduling is done; an output without tokens is no step."""
        if not output.total_num_scheduled_tokens:
            return
        now = monotonic_ns()
        self._step += 1
        setattr(output, STEP, self._step)
        prefill = _prefill_tokens(output)
        self._open[self._step] = _Open(
            began=began,
            scheduled=now,
            schedule=now - began,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            prefill_tokens=prefill,
            decode_tokens=output.total_num_scheduled_tokens - prefill,
        )

    @harmless
    def masked(self, output: Any, began: int) -> None:
        """The scheduler has filled the grammars' masks."""
        step = self._open.get(getattr(output, STEP, 0))
        if step is not None:
            step.schedule += monotonic_ns() - began

    @harmless
    def updated(self, scheduler: Any, output: Any, outputs: dict[int, Any], began: int) -> None:
        """The step is over. Its record must be there before its outputs leave the process."""
        number = getattr(output, STEP, 0)
        step = self._open.pop(number, None)
        if step is None:
            return
        now = monotonic_ns()
        overlapped = bool(self._open) or step.began < self._ended
        masks = step.schedule - (step.scheduled - step.began)
        self._ring.write(
            *CoreRecord(
                step=number,
                stamp=int(max((each.timestamp for each in outputs.values()), default=0.0) * 1e9),
                ended=now,
                wall=now - (self._ended or step.began),
                schedule=step.schedule,
                execute=0 if overlapped else began - step.scheduled - masks,
                update=now - began,
                idle=self._idle,
                intake=self._intake,
                running=step.running,
                room=scheduler.max_num_running_reqs,
                waiting=step.waiting,
                prefill_tokens=step.prefill_tokens,
                decode_tokens=step.decode_tokens,
                kv_usage_ppm=int(scheduler.kv_cache_manager.usage * 1e6),
                overlapped=int(overlapped),
            )
        )
        self._ended, self._idle, self._intake = now, 0, 0

    @harmless
    def took_in(self, began: int) -> None:
        """A message of a client was handled."""
        self._intake += monotonic_ns() - began

    @harmless
    def polled(self, had_work: bool, began: int, intake_before: int) -> None:
        """The loop looked for messages; without work it waited for one."""
        self._ended = self._ended or began
        if not had_work:
            self._idle += monotonic_ns() - began - (self._intake - intake_before)

    @property
    def intake(self) -> int:
        return self._intake


def _prefill_tokens(output: Any) -> int:
    """Tokens of sequences that have no output yet; chunks of a prompt are among the cached requests."""
    tokens: dict[str, int] = output.num_scheduled_tokens
    cached = output.scheduled_cached_reqs
    first = sum(tokens[request.req_id] for request in output.scheduled_new_reqs)
    return first + sum(
        tokens[name] for name, done in zip(cached.req_ids, cached.num_output_tokens, strict=True) if not done
    )


def install(probe: CoreProbe, scheduler: Any, loop: Any) -> None:
    """Wrap the classes: vLLM's Scheduler and EngineCoreProc."""
    schedule, masks, update = scheduler.schedule, scheduler.get_grammar_bitmask, scheduler.update_from_output
    poll, handle = loop._process_input_queue, loop._handle_client_request

    @wraps(schedule)
    def scheduling(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = monotonic_ns()
        output = schedule(self, *args, **kwargs)
        probe.scheduled(self, output, began)
        return output

    @wraps(masks)
    def masking(self: Any, output: Any) -> Any:
        began = monotonic_ns()
        result = masks(self, output)
        probe.masked(output, began)
        return result

    @wraps(update)
    def updating(self: Any, output: Any, result: Any) -> Any:
        began = monotonic_ns()
        outputs = update(self, output, result)
        probe.updated(self, output, outputs, began)
        return outputs

    @wraps(poll)
    def polling(self: Any) -> None:
        had_work, intake, began = self.has_work(), probe.intake, monotonic_ns()
        poll(self)
        probe.polled(had_work, began, intake)

    @wraps(handle)
    def handling(self: Any, *args: Any) -> None:
        began = monotonic_ns()
        handle(self, *args)
        probe.took_in(began)

    scheduler.schedule, scheduler.get_grammar_bitmask, scheduler.update_from_output = scheduling, masking, updating
    loop._process_input_queue, loop._handle_client_request = polling, handling
