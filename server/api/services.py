"""What routes work with. Built in app.py, found at `request.app.state.services`."""

from dataclasses import dataclass, field
from time import monotonic_ns, time

from starlette.requests import Request

from server.admission.admission import Admission
from server.admission.gate import caller_in
from server.api.parsers import AnswerParsers
from server.api.responses_store import ResponseStore
from server.config import Settings
from server.engine.protocol import Engine
from server.engine.tokenizer_pool import TokenizerPool
from server.errors import EngineDied, EngineStalled, NotReady, ShuttingDown
from server.ledger import Ledger
from server.pipeline import Pipeline
from server.request import Caller
from server.telemetry.metrics import Metrics
from server.telemetry.records import Records


@dataclass(slots=True)
class Services:
    """`ready` turns true once the engine has generated, `draining` on the way out."""

    settings: Settings
    engine: Engine
    pipeline: Pipeline
    tokenizers: TokenizerPool
    metrics: Metrics
    records: Records
    responses: ResponseStore
    ready: bool = False
    draining: bool = False
    started_at: float = field(default_factory=time)
    _parsers: AnswerParsers | None = None

    @property
    def parsers(self) -> AnswerParsers:
        """Of the loaded model; raises ValueError for a parser there is none of."""
        if self._parsers is None:
            self._parsers = AnswerParsers(self.settings.chat, self.engine.model.tokenizer)
        return self._parsers

    @property
    def admission(self) -> Admission:
        return self.pipeline.admission

    @property
    def step_age(self) -> float | None:
        """Seconds since the engine's last step, or since it got something to do; None while it has nothing to do."""
        if not self.admission.slots.in_use:
            return None
        return (monotonic_ns() - max(self.engine.last_step_ns, self.admission.busy_since_ns)) / 1e9

    def check_ready(self) -> None:
        """Raises ShuttingDown, NotReady, EngineDied or EngineStalled."""
        if self.draining:
            raise ShuttingDown
        if not self.ready:
            raise NotReady
        if not self.engine.alive:
            raise EngineDied
        age = self.step_age
        if age is not None and age > self.settings.engine.stall_s:
            raise EngineStalled(figures={"last_step_age_s": round(age, 1)})


def services(request: Request) -> Services:
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


def caller_of(request: Request) -> Caller:
    return caller_in(request.scope)


def ledger_of(request: Request) -> Ledger:
    """The request's ledger, which LedgerMiddleware opened; one of its own elsewhere."""
    found = request.scope["state"].get("ledger")
    return found if isinstance(found, Ledger) else Ledger(id="unmeasured")
