"""One sequence in vLLM: takes what comes of it, in place of the RequestOutputCollector that AsyncLLM would make."""

from collections.abc import Callable
from dataclasses import dataclass

from vllm.outputs import RequestOutput
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.exceptions import EngineDeadError

from server.engine.guard import push, release
from server.engine.protocol import OnReleased, OnStep
from server.engine.vllm_params import prompt_logprobs, sample_logprobs
from server.errors import EngineDied, EngineFailed, InvalidRequest, ServeError
from server.request import EngineRequest, FinishReason, TokenDelta


@dataclass(slots=True)
class Arrival:
    """Of the engine's latest step, in ns: when it reached this process, the end of `transfer`; how long it sampled."""

    received_ns: int = 0
    sample_ns: int = 0


class Sink:
    """Receives one request's outputs; is its Handle. `send_abort` has the engine forget it, then calls `release`."""

    def __init__(
        self,
        request: EngineRequest,
        on_step: OnStep,
        on_released: OnReleased,
        send_abort: Callable[["Sink"], None],
        latest: Arrival,
    ) -> None:
        self.request = request
        self.request_id = request.id  # becomes vLLM's internal id once added
        self.prepared: EngineCoreRequest | None = None
        self._running = False
        self.ended = False
        self.aborted = False
        self._on_step = on_step
        self._on_released: OnReleased | None = on_released
        self._send_abort = send_abort
        self._latest = latest

    def abort(self) -> None:
        if not self.ended:
            self.ended = self.aborted = True
            self._send_abort(self)

    def take(self, delta: TokenDelta) -> None:
        """The middle of an answer."""
        if not self.ended:
            push(self._on_step, delta, self.abort)

    def put(self, output: RequestOutput | Exception) -> None:
        """vLLM's side: called for each other step of this request, and once with an exception when the engine dies."""
        if self.ended:
            return
        delta = self._failure(output) if isinstance(output, Exception) else self._delta(output)
        if delta.error is not None or delta.finish_reason is not None:
            self.ended = True
        push(self._on_step, delta, self.abort)
        if self.ended and not self.aborted:
            self.release()

    def release(self) -> None:
        """The engine has nothing of the request any more; once."""
        on_released, self._on_released = self._on_released, None
        if on_released is not None:
            release(on_released)

    def close(self) -> None:
        """vLLM's side: nothing of ours to release."""

    def fail(self, error: ServeError) -> None:
        """The request never reached the engine."""
        if not self.ended:
            self.ended = True
            push(self._on_step, TokenDelta((), error=error), self.abort)
        self.release()

    def _delta(self, output: RequestOutput) -> TokenDelta:
        completion = output.outputs[0]
        stats = output.metrics
        delta = TokenDelta(
            completion.token_ids,
            received_ns=self._latest.received_ns,
            scheduled_ns=int(stats.scheduled_ts * 1e9) if stats is not None else 0,
            sampled_ns=int(stats.last_token_ts * 1e9) if stats is not None else 0,
            sample_ns=self._latest.sample_ns,
        )
        if completion.logprobs:
            delta.logprobs = sample_logprobs(completion.logprobs)
        if output.prompt_logprobs:
            delta.prompt_logprobs = prompt_logprobs(output.prompt_logprobs, output.prompt_token_ids or ())
        delta.cached_tokens = output.num_cached_tokens or 0
        match completion.finish_reason:
            case None:
                pass
            case "stop":
                delta.finish_reason = FinishReason.STOP
                delta.stop_token = True  # stop strings are ours, so vLLM stops at a token only
            case "length":
                delta.finish_reason = FinishReason.LENGTH
            case _:  # "error", "abort", "repetition": not by our asking
                delta.error = EngineFailed() if self._running else self._never_ran()
        self._running = True
        return delta

    def _never_ran(self) -> ServeError:
        """A constraint that looked well to vLLM's check may still fail to compile in the engine."""
        return refusal(self) if self.request.params.structured is not None else EngineFailed()

    def _failure(self, error: Exception) -> TokenDelta:
        return TokenDelta((), error=EngineDied() if isinstance(error, EngineDeadError) else EngineFailed())


def refusal(sink: Sink) -> InvalidRequest:
    if sink.request.params.structured is not None:
        return InvalidRequest(
            "The engine cannot use this schema, regex or grammar: it is malformed or asks for something not supported.",
            code="invalid_constraint",
        )
    return InvalidRequest("The engine refuses this combination of parameters.")
