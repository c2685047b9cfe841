"""What an API key allows. The key itself is never kept: only its SHA-256, which is enough for 256 random bits."""

from dataclasses import dataclass, field
from enum import StrEnum

from server.request import HIGH, NORMAL, Caller


class Scope(StrEnum):
    """What a key may call: generation and all it needs, metrics and ledgers, or everything."""

    INFER = "infer"
    METRICS = "metrics"
    ADMIN = "admin"


EVERYTHING = frozenset(Scope)


class Priority(StrEnum):
    """The priority classes, by rank: server.request.HIGH, NORMAL, LOW."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return list(Priority).index(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may use in a minute and at once; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """`name` is unique and may be logged; `digest` is the SHA-256 of the key, in hex.

    `rank` is the priority class (server.request.HIGH, NORMAL, LOW), `timeout` the seconds a request of it may take.
    """

    name: str
    digest: str
    scopes: frozenset[Scope] = EVERYTHING
    rank: int = NORMAL
    timeout: float | None = None
    limits: Limits = field(default=Limits())

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


class KeyHolder(Caller):
    """Whoever shows `key`. Only `high` may ask to go before others: a lower engine priority goes first."""

    def __init__(self, key: Key) -> None:
        self.owner = key.name
        self.rank = key.rank
        self.timeout = key.timeout

    def clamp(self, priority: int) -> int:
        return priority if self.rank == HIGH else max(priority, self.rank - NORMAL)
