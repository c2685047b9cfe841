"""A connection whose application reads whole requests; test_protocol.py has one of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.server.ingress.wire import LIMITS, Reader, Wire
from tests.support.waiting import turns


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def wire(reader: Reader) -> AsyncIterator[Wire]:
    wire = Wire(reader, **LIMITS)
    yield wire
    wire.protocol.connection_lost(None)
    await turns()
