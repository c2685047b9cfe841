"""On what terms a request is served: whose it is, how long it may take, what it may ask of the engine."""

from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from starlette.requests import Request

from sampling.params import SamplingParams
from server.api.services import caller_of, services
from server.errors import InvalidRequest
from server.request import Caller

TIMEOUT = "X-Request-Timeout-Ms"
DEGRADED = "Streamgauge-Degraded"


class Terms(NamedTuple):
    caller: Caller
    timeout: float | None  # seconds for queue and generation; None: the server's own
    shortened_to: int | None  # tokens of each answer, under pressure

    def salt(self, given: str | None) -> str | None:
        """The engine's cache salt: callers with keys share no cached prefixes, whatever salt they choose.

        A cached prefix is answered faster, which would tell what others have asked (CVE-2025-46570).
        """
        if self.caller.owner is None:
            return given
        return sha256(f"{self.caller.owner}\n{given or ''}".encode()).hexdigest()

    def shortens(self, params: SamplingParams) -> bool:
        return self.shortened_to is not None and params.max_tokens > self.shortened_to

    def limit(self, params: SamplingParams) -> SamplingParams:
        if self.shortened_to is None or not self.shortens(params):
            return params
        return replace(params, max_tokens=self.shortened_to, min_tokens=min(params.min_tokens, self.shortened_to))


def terms_of(request: Request) -> Terms:
    """Raises InvalidRequest for a time that is none."""
    site, caller = services(request), caller_of(request)
    longest = site.settings.admission.request_timeout
    asked = _asked_timeout(request) or caller.timeout
    degrade = site.settings.admission.degrade.max_tokens
    return Terms(
        caller,
        min(asked, longest) if asked is not None else None,
        degrade if site.admission.pressure(caller) else None,
    )


def _asked_timeout(request: Request) -> float | None:
    text = request.headers.get(TIMEOUT)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) > 0):
        raise InvalidRequest(f"{TIMEOUT}: expected milliseconds, a whole number above 0.", param=TIMEOUT)
    return int(text) / 1e3
