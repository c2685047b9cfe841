"""What one request may use of its key's limits: a slot while it lasts, one of the minute's requests, and tokens."""

import time
from dataclasses import dataclass, field

from server.errors import MAX_RETRY_AFTER_S, RateLimited
from server.ingress.key import Limits
from server.ingress.limit_headers import Standing, limit_headers, standing
from server.ingress.limit_store import LimitStore
from server.ingress.windows import Level
from server.request import Caller

REQUESTS, TOKENS, CONCURRENT = "requests", "tokens", "concurrent_requests"


@dataclass(slots=True)
class Usage:
    """Of one key in this server, between its requests. `mean_s`: how long they take, the recent ones above all."""

    held: int = 0
    mean_s: float = 1.0
    spent: Level = field(default=Level())  # the requests' level when there was no room left,
    spent_at: float = 0.0  # and when that was


class Account(Caller):
    """One request's, of `caller`. `enter` and `leave` frame its ASGI call, `reserve` and `settle` its generation."""

    def __init__(self, caller: Caller, limits: Limits, store: LimitStore, usage: Usage) -> None:
        self.owner, self.rank, self.timeout = caller.owner, caller.rank, caller.timeout
        self._caller = caller
        self.limits = limits
        self._store = store
        self._usage = usage
        self._entered = 0.0
        self._standings: dict[str, Standing] = {}
        self._reserved: list[tuple[int, int | None]] = []  # tokens, and the window they are counted in, if they are
        self._hopeless = False

    def clamp(self, priority: int) -> int:
        return self._caller.clamp(priority)

    async def enter(self) -> None:
        """Take a slot and count a request; raises RateLimited or LimitsUnavailable."""
        usage, most = self._usage, self.limits.concurrent_requests
        if most is not None and usage.held >= most:
            raise _refused(CONCURRENT, most, 0, usage.mean_s / most)
        usage.held += 1
        self._entered = time.monotonic()
        try:
            await self._count_request()
        except BaseException:
            usage.held -= 1
            raise

    def leave(self) -> None:
        self._usage.held -= 1
        self._usage.mean_s += 0.2 * (time.monotonic() - self._entered - self._usage.mean_s)

    async def reserve(self, tokens: int) -> None:
        limit = self.limits.tokens_per_minute
        if limit is None:
            return
        if tokens > limit:
            self._hopeless = True
            raise RateLimited(
                f"This request may use {tokens} tokens, and its API key {limit} in a minute: it can never be served. "
                "Shorten the prompt, or ask for fewer output tokens or choices.",
                retry_after=MAX_RETRY_AFTER_S,
                figures={"reason": TOKENS, "limit": limit, "requested": tokens},
            )
        taking = await self._store.take(self._key(TOKENS), limit, tokens)
        if taking is not None:
            stands = self._standings[TOKENS] = standing(limit, taking.level)
            if not taking.granted:
                raise _refused(TOKENS, limit, stands.remaining, taking.level.wait(limit, tokens))
        self._reserved.append((tokens, taking.window if taking is not None else None))

    async def settle(self, reserved: int, used: int) -> None:
        found = next((each for each in self._reserved if each[0] == reserved), None)
        if found is None:
            return
        self._reserved.remove(found)
        window = found[1]
        surplus = reserved - used if window is not None else -used  # what could not be counted then is counted now
        if surplus:
            await self._store.settle(self._key(TOKENS), window or 0, surplus)

    async def headers(self) -> dict[str, str]:
        """How the limits stand, for the response; never raises. Nothing of what the storage cannot tell."""
        headers: dict[str, str] = {}
        limits = {REQUESTS: self.limits.requests_per_minute, TOKENS: self.limits.tokens_per_minute}
        for kind, limit in limits.items():
            if limit is not None and (stands := await self._standing(kind, limit)) is not None:
                headers |= limit_headers(kind, stands)
        if self._hopeless:
            headers["x-should-retry"] = "false"  # OpenAI's and Anthropic's SDKs heed it
        return headers

    async def _count_request(self) -> None:
        limit = self.limits.requests_per_minute
        if limit is None:
            return
        # Requests are never given back: once there was no room, there is none until it has faded, and a client that
        # keeps knocking costs the storage nothing.
        usage, now = self._usage, time.monotonic()
        level = usage.spent.after(now - usage.spent_at)
        if level.used < limit:
            taking = await self._store.take(self._key(REQUESTS), limit, 1)
            if taking is None:
                return
            level = taking.level
            if not taking.granted:
                usage.spent, usage.spent_at = level, now
            self._standings[REQUESTS] = standing(limit, level)
            if taking.granted:
                return
        stands = self._standings[REQUESTS] = standing(limit, level)
        raise _refused(REQUESTS, limit, stands.remaining, level.wait(limit, 1))

    async def _standing(self, kind: str, limit: int) -> Standing | None:
        if kind not in self._standings and (taking := await self._store.look(self._key(kind), limit)) is not None:
            return standing(limit, taking.level)
        return self._standings.get(kind)

    def _key(self, kind: str) -> str:
        return f"{kind}/{self.name}"


def _refused(reason: str, limit: int, remaining: int, reset_s: float) -> RateLimited:
    """`reset_s`: until there is room for this request, when nobody else takes it."""
    unit = reason.replace("_", " ") + ("" if reason == CONCURRENT else " in a minute")
    return RateLimited(
        f"This API key has reached its limit of {limit} {unit}.",
        retry_after=reset_s,
        figures={"reason": reason, "limit": limit, "remaining": remaining, "reset_s": round(reset_s, 3)},
    )
