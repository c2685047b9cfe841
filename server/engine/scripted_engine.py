"""An engine that plays given token ids in the time a cost model says; for tests and benches, chosen explicitly.

One step takes `step_ms + token_us · n` for the n tokens in it: a running sequence adds one, a starting one its whole
prompt. At most `max_num_seqs` sequences run at once; the others wait in arrival order, as in a real engine.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from time import monotonic_ns

from server.config import ScriptedSettings
from server.engine.guard import push, release
from server.engine.protocol import ModelInfo, OnReleased, OnStep
from server.engine.tokenizer import FolderTokenizer
from server.errors import EngineDied, EngineFailed, NotReady
from server.request import EngineRequest, FinishReason, TokenDelta


@dataclass(slots=True, eq=False)
class _Sequence:
    request: EngineRequest
    on_step: OnStep
    on_released: OnReleased
    scheduled_ns: int = 0
    produced: int = 0
    ended: bool = False

    def abort(self) -> None:
        self.ended = True


class ScriptedEngine:
    """Plays `settings.token_ids` over and over, and ends a sequence where `settings.stop_after` says."""

    def __init__(self, settings: ScriptedSettings, model: str, name: str | None = None) -> None:
        self._settings = settings
        self._source = model
        self._name = name or model
        self._model: ModelInfo | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._wake = asyncio.Event()
        self._dead = False
        self.steps = 0
        self.last_step_ns = 0

    @property
    def model(self) -> ModelInfo:
        if self._model is None:
            raise NotReady
        return self._model

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._dead

    @property
    def in_flight(self) -> int:
        """Sequences waiting or running that nobody has aborted."""
        return sum(not s.ended for s in (*self._waiting, *self._running))

    async def start(self) -> None:
        tokenizer = await asyncio.to_thread(FolderTokenizer, self._source)
        if self._settings.load_s:
            await asyncio.sleep(self._settings.load_s)
        self._model = ModelInfo(
            name=self._name,
            root=self._source,
            max_model_len=self._settings.max_model_len,
            vocab_size=tokenizer.backend.get_vocab_size(),
            tokenizer=tokenizer,
            max_num_seqs=self._settings.max_num_seqs,
        )
        self._task = asyncio.create_task(self._run(), name="scripted-engine")

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> _Sequence:
        if self._dead:
            raise EngineDied
        if self._task is None:
            raise NotReady
        sequence = _Sequence(request, on_step, on_released)
        self._waiting.append(sequence)
        self._wake.set()
        return sequence

    def kill(self) -> None:
        """Die as an engine process dies: every open sequence learns of it, none comes in any more."""
        self._dead = True
        for sequence in (*self._running, *self._waiting):
            self._push(sequence, TokenDelta((), error=EngineDied()))
        self._drop_ended()

    async def close(self) -> None:
        self._dead = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=5)
        for sequence in (*self._running, *self._waiting):
            sequence.abort()
        self._drop_ended()

    async def _run(self) -> None:
        while True:
            self._drop_ended()
            if not self._running and not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            await self._step()

    async def _step(self) -> None:
        """Schedule, compute, hand out: one token for each running sequence."""
        scheduled = self._schedule()
        tokens = len(self._running) - len(scheduled) + sum(len(s.request.prompt_token_ids) for s in scheduled)
        await asyncio.sleep((self._settings.step_ms + self._settings.token_us * tokens / 1e3) / 1e3)
        self.steps += 1
        sampled_ns = monotonic_ns()
        if self._settings.transfer_ms:
            await asyncio.sleep(self._settings.transfer_ms / 1e3)
        self.last_step_ns = received_ns = monotonic_ns()
        for sequence in self._running:
            if not sequence.ended:
                self._push(sequence, self._delta(sequence, sampled_ns, received_ns))
        self._drop_ended()

    def _schedule(self) -> list[_Sequence]:
        """Move waiting sequences into free slots; returns those that start with this step."""
        now = monotonic_ns()
        started: list[_Sequence] = []
        while self._waiting and len(self._running) < self._settings.max_num_seqs:
            sequence = self._waiting.popleft()
            if sequence.ended:
                release(sequence.on_released)
                continue
            sequence.scheduled_ns = now
            self._running.append(sequence)
            started.append(sequence)
        return started

    def _delta(self, sequence: _Sequence, sampled_ns: int, received_ns: int) -> TokenDelta:
        settings, params = self._settings, sequence.request.params
        sequence.produced += 1
        delta = TokenDelta(
            (settings.token_ids[(sequence.produced - 1) % len(settings.token_ids)],),
            scheduled_ns=sequence.scheduled_ns,
            sampled_ns=sampled_ns,
            received_ns=received_ns,
        )
        if settings.fail_after and sequence.produced > settings.fail_after:
            delta.error = EngineFailed()
        elif settings.stop_after and sequence.produced > settings.stop_after and not params.ignore_eos:
            delta.finish_reason, delta.stop_token = FinishReason.STOP, True
        elif sequence.produced >= params.max_tokens:
            delta.finish_reason = FinishReason.LENGTH
        return delta

    def _push(self, sequence: _Sequence, delta: TokenDelta) -> None:
        if sequence.ended:
            return
        sequence.ended = delta.finish_reason is not None or delta.error is not None
        push(sequence.on_step, delta, sequence.abort)

    def _drop_ended(self) -> None:
        ended = [s for s in (*self._running, *self._waiting) if s.ended]
        if not ended:
            return
        self._running = [s for s in self._running if not s.ended]
        self._waiting = deque(s for s in self._waiting if not s.ended)
        for sequence in ended:
            release(sequence.on_released)
