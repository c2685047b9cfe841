"""One sequence of a request: its token ids on the way to text that may be shown."""

from collections.abc import Callable

import tokenizers

from sampling.detokenizer import Detokenizer
from sampling.stop import StopMatcher
from server.ledger import EventTrack, Ledger
from server.request import EngineRequest, FinishReason, TokenDelta


class Choice:
    """Detokenizer, stop matcher and counts of choice `index`. `abort` is set once the engine has the sequence."""

    def __init__(self, index: int, sequence: EngineRequest, tokenizer: tokenizers.Tokenizer, ledger: Ledger) -> None:
        params = sequence.params
        self.index = index
        self.sequence = sequence
        self.track = EventTrack(ledger)
        self.abort: Callable[[], None] = _nothing_to_abort

        # Text state
        self._detokenizer = Detokenizer(
            tokenizer, sequence.prompt_token_ids, skip_special_tokens=params.skip_special_tokens
        )
        self._stops = StopMatcher(params.stop, include_stop=params.include_stop) if params.stop else None
        self._min_tokens = params.min_tokens

        # Answer state
        self.output_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.text: list[str] = []
        self.opened = False  # its first event has been encoded
        self.held: list[bytes] = []  # events that wait for an earlier choice to appear first

    def detokenize(self, delta: TokenDelta) -> list[str]:
        """The delta's text: one piece per token where stop strings need to know which token completes one.

        A stop token is counted by `postprocess` and has no text; an unfinished character is flushed at the end.
        """
        ids = delta.token_ids[:-1] if delta.stop_token else delta.token_ids
        if self._stops is None:
            pieces = [self._detokenizer.push(ids)] if ids else []
        else:
            pieces = [self._detokenizer.push((token_id,)) for token_id in ids]
        if delta.finish_reason is not None:
            tail = self._detokenizer.flush()
            if pieces:
                pieces[-1] += tail
            elif tail:
                pieces.append(tail)
        return pieces

    def postprocess(self, pieces: list[str], delta: TokenDelta) -> str:
        """Text to show now; ends the choice on a finish reason or at the token that completes a stop string."""
        if self._stops is None:
            self.output_tokens += len(delta.token_ids)
            text = pieces[0] if pieces else ""
        else:
            text = self._match_stops(self._stops, pieces, delta)
        if self.finish_reason is None and delta.finish_reason is not None:
            self.finish_reason = delta.finish_reason
            if self._stops is not None:
                text += self._stops.flush()
        if text:
            self.text.append(text)
        return text

    def _match_stops(self, stops: StopMatcher, pieces: list[str], delta: TokenDelta) -> str:
        shown: list[str] = []
        for piece in pieces:
            self.output_tokens += 1
            if self.output_tokens <= self._min_tokens:  # too early for a stop to count
                shown.append(piece)
                continue
            shown.append(stops.push(piece))
            if stops.matched is not None:
                self.finish_reason = FinishReason.STOP
                return "".join(shown)
        # A stop token, or a flush without ids, has no piece of its own.
        self.output_tokens += len(delta.token_ids) - len(pieces)
        return "".join(shown)


def _nothing_to_abort() -> None:
    pass
