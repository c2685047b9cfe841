"""Which web pages of other origins a browser lets read our answers."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS = ("GET", "POST", "DELETE", "OPTIONS")
READABLE = (
    "X-Request-Id",
    "Streamgauge-Request-Id",
    "Streamgauge-Degraded",
    "Server-Timing",
    "Retry-After",
    *(f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
)


def open_to(origins: tuple[str, ...], app: ASGIApp) -> ASGIApp:
    """`app`, for pages of `origins` too; outermost, so that they can read errors as well.

    Credentials are never allowed: an API key travels in a header that the page sets itself. So any header is (SDKs add
    a dozen of their own), and `*` as an origin gives away nothing that a program could not fetch.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=METHODS, allow_headers=("*",), expose_headers=READABLE
    )
