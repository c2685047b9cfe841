"""A server under test, cheap to start: `python fake_server.py PORT [stubborn] [dies]`."""

import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.bench.bytes import DONE, SSE_HEAD, chat_event, chunked, usage_event


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data":[{"id":"fake"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(SSE_HEAD + chunked(chat_event("a"), chat_event("b"), usage_event(2), DONE))

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    if "dies" in sys.argv:
        sys.exit("no such model")
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # A worker of the same group that ignores SIGTERM as well.
        subprocess.Popen(["sleep", "600"])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
