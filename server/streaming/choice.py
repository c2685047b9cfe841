"""One sequence of a request: its token ids on the way to parts of an answer that may be shown."""

from collections.abc import Callable, Sequence

import structlog
import tokenizers

from sampling.detokenizer import Detokenizer
from sampling.logprobs import Released, TokenLog, TokenLogprob
from sampling.parts import Part
from server.ledger import EventTrack, Ledger
from server.request import PLAIN, EngineRequest, FinishReason, Reading, TokenDelta
from server.streaming.answer import Answer
from server.streaming.reader import Reader

_log = structlog.get_logger(__name__)


class Choice:
    """Detokenizer, reader and counts of choice `index`. `abort` is set once the engine has the sequence."""

    def __init__(
        self,
        index: int,
        sequence: EngineRequest,
        tokenizer: tokenizers.Tokenizer,
        ledger: Ledger,
        reading: Reading = PLAIN,
    ) -> None:
        params = sequence.params
        self.index = index
        self.sequence = sequence
        self.track = EventTrack(ledger)
        self.abort: Callable[[], None] = _nothing_to_abort

        # Text state
        self._detokenizer = Detokenizer(
            tokenizer, sequence.prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        self._reader = Reader(params, reading)
        self._log = TokenLog() if params.logprobs is not None or reading.return_token_ids else None
        self._piecewise = self._log is not None or not self._reader.idle
        self._min_tokens = params.min_tokens
        self._before_answer = 0  # tokens before the first that is no thought

        # Answer state
        self.output_tokens = 0
        self.cached_tokens = 0
        self.prompt_logprobs: Sequence[TokenLogprob | None] | None = None
        self.finish_reason: FinishReason | None = None
        self.answer = Answer()  # what has been told
        self.released = Released()  # tokens that the next event takes along
        self.opened = False  # its first event has been encoded
        self.held: list[bytes] = []  # events that wait for an earlier choice to appear first

    def let_go(self) -> None:
        """Have the engine forget the sequence; harmless after its end. One that cannot be let go of stops no other."""
        try:
            self.abort()
        except Exception:
            _log.exception("abort_failed", sequence=self.sequence.id)

    @property
    def reasoning_tokens(self) -> int:
        return self._before_answer if self._reader.thought else 0

    @property
    def stop_string(self) -> str | None:
        """The one that ended the answer."""
        return self._reader.stop_string

    def detokenize(self, delta: TokenDelta) -> list[str]:
        """The delta's text: one piece per token where it matters which token completes what.

        A stop token is counted by `postprocess` and has no text; an unfinished character is flushed at the end.
        """
        ids = delta.token_ids[:-1] if delta.stop_token else delta.token_ids
        if self._piecewise:
            pieces = [self._detokenizer.push((token_id,)) for token_id in ids]
        else:
            pieces = [self._detokenizer.push(ids)] if ids else []
        if delta.finish_reason is not None:
            tail = self._detokenizer.flush()
            if pieces:
                pieces[-1] += tail
            elif tail:
                pieces.append(tail)
        return pieces

    def postprocess(self, pieces: list[str], delta: TokenDelta) -> list[Part]:
        """What may be shown now; ends the choice on a finish reason or at the token that completes a stop string.

        Raises RunawayOutput.
        """
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs
        if delta.cached_tokens:
            self.cached_tokens = delta.cached_tokens
        if self._piecewise:
            parts = self._read(pieces, delta)
        else:
            self.output_tokens += len(delta.token_ids)
            parts = [piece for piece in pieces if piece]
            self.finish_reason = delta.finish_reason
        return parts

    def tell(self, parts: Sequence[Part]) -> None:
        """The parts are about to leave, or to be collected."""
        for part in parts:
            self.answer.add(part)

    def _read(self, pieces: list[str], delta: TokenDelta) -> list[Part]:
        ids = delta.token_ids[:-1] if delta.stop_token else delta.token_ids
        reader = self._reader
        parts: list[Part] = []
        for position, piece in enumerate(pieces):
            if position < len(ids):
                self._count(ids[position], delta.logprobs[position] if delta.logprobs else None, piece)
            elif self._log is not None:  # a flush: the text of ids that came before
                self._log.complete(len(piece))
            if piece:
                parts += reader.push(piece, stoppable=self._stoppable)
            self._before_answer += reader.thinking and position < len(ids)
            if reader.ended:
                self._end(FinishReason.STOP, ())
                return parts
        silent = delta.token_ids[len(ids) :]
        self.output_tokens += len(silent)
        if delta.finish_reason is not None:
            parts += reader.flush(stoppable=self._stoppable)
            self._end(FinishReason.STOP if reader.ended else delta.finish_reason, silent)
        elif self._log is not None:
            self._release(self._log.release(reader.held))
        return parts

    @property
    def _stoppable(self) -> bool:
        return self.output_tokens > self._min_tokens

    def _count(self, token_id: int, logprob: TokenLogprob | None, piece: str) -> None:
        self.output_tokens += 1
        if self._log is not None:
            self._log.add(token_id, logprob, len(piece))

    def _end(self, reason: FinishReason, silent: Sequence[int]) -> None:
        self.finish_reason = reason
        if self._log is not None:
            self._release(self._log.close(self._reader.held, silent))

    def _release(self, released: Released) -> None:
        self.released.extend(released)
        self.answer.tokens.extend(released)


def _nothing_to_abort() -> None:
    pass
