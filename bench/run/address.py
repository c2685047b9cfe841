"""Where the server under load is, and short questions to it that are no part of the load."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from bench.run.spec import Spec, SpecError

CONNECT_DEADLINE_S = 10.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
API = "/v1"


@dataclass(frozen=True, slots=True)
class Address:
    """`name` is the host as it was given, `host` what connections are made to; paths of the API follow `root` + /v1."""

    name: str
    host: str
    port: int
    root: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spec: Spec) -> "Address":
        """Raises SpecError for a URL that this client can't call."""
        parts = _split(spec.url)
        port = parts.port or 80
        host = parts.hostname or ""
        headers = {"Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
        if spec.api_key is not None:
            if not spec.api_key.isascii() or not spec.api_key.isprintable():
                raise SpecError("the API key has characters that no header can carry")
            headers["Authorization"] = f"Bearer {spec.api_key}"
        return cls(host, host, port, parts.path.rstrip("/").removesuffix(API).rstrip("/"), headers)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise SpecError(f"not a URL: {url!r}") from None
    if parts.scheme != "http":
        raise SpecError(f"only http://HOST:PORT can be put under load, not {url!r}")
    if not complete or parts.query or parts.fragment or parts.username:
        raise SpecError(f"not the URL of a server: {url!r}")
    return parts


async def reach(address: Address) -> Address:
    """With a host that needs no look-up: one per connection would be the client's own time.

    Raises SpecError when nobody listens.
    """
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError) as error:
        raise SpecError(f"no server at {address.headers['Host']}: {str(error) or 'no answer'}") from None
    peer = writer.get_extra_info("peername")
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    return replace(address, host=peer[0])


async def get(address: Address, path: str, deadline_s: float) -> bytes | None:
    """The body of what is below the server's root; None for anything but a 200.

    Raises OSError, and TimeoutError after `deadline_s`.
    """
    async with asyncio.timeout(deadline_s):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            fields = "".join(f"{name}: {value}\r\n" for name, value in address.headers.items())
            # HTTP/1.0: the answer is neither chunked nor kept alive.
            writer.write(f"GET {address.root}{path} HTTP/1.0\r\n{fields}\r\n".encode("latin-1"))
            head, _, body = (await _all(reader)).partition(b"\r\n\r\n")
            return body if head.split(maxsplit=2)[1:2] == [b"200"] else None
        finally:
            writer.transport.abort()


async def _all(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise OSError("an answer without end")
    return b"".join(parts)
