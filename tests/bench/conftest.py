"""What tests of whole commands share."""

from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from threading import Thread

import pytest

from tests.bench.fake_server import Handler


@pytest.fixture
def url() -> Iterator[str]:
    """Of a server whose every answer has two tokens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
