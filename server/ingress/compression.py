"""Answers that are compressed where the client asks for it, and streams that never are."""

from starlette.types import ASGIApp
from starlette_compress import CompressMiddleware, remove_compress_type

MINIMUM_BYTES = 1024
remove_compress_type("text/event-stream")  # proxies and clients buffer what they must inflate; try_write bypasses ASGI


def compressing(app: ASGIApp) -> ASGIApp:
    """`app` with zstd, br or gzip, at the levels that hold the loop up least."""
    return CompressMiddleware(app, minimum_size=MINIMUM_BYTES, zstd_level=1, brotli_quality=1, gzip_level=1)
