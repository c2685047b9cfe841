"""Engines as in tests/server; what stands between client and server is real here."""

from tests.server.conftest import (
    engine,
    garbage_stays_collectable,
    model,
    pytest_asyncio_loop_factories,
    scripted,
    source,
    tokenizer,
)

__all__ = [
    "engine",
    "garbage_stays_collectable",
    "model",
    "pytest_asyncio_loop_factories",
    "scripted",
    "source",
    "tokenizer",
]
