"""The keys in force, and which of them a request shows.

A presented key is looked up by an HMAC of its SHA-256 under a secret of this process. How long that takes depends on
the HMAC alone, which nobody outside can foresee: it tells nothing of any key, and is the same for one as for thousands.
"""

import asyncio
import hmac
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes

import structlog

from server.config import ConfigError, KeySettings
from server.ingress import key_file
from server.ingress.key import Key
from server.ingress.key_file import DEFAULT, KeyFileError, digest_of

MAX_SECRET_BYTES = 512
RELOAD_S = 1.0

_log = structlog.get_logger(__name__)

_Stamp = tuple[int, int, int, int] | None
_NEVER_READ = (0, 0, 0, 0)


class KeyRing:
    """The key of `keys.api_key` and those of `keys.file`, which is read again when it has changed.

    The file is looked at by a task of its own, from `start` to `close`: no request waits for it. Raises ConfigError.
    """

    def __init__(self, settings: KeySettings) -> None:
        self._file = settings.file
        self._salt = token_bytes(32)
        self._fixed = [_default_key(settings.api_key.get_secret_value())] if settings.api_key is not None else []
        self._stamp: _Stamp = _NEVER_READ
        self._keys: dict[bytes, Key] = {}
        self._task: asyncio.Task[None] | None = None
        self._take(self._read() or [])

    @property
    def required(self) -> bool:
        """Whether a request needs a key: also while the file has none."""
        return self._file is not None or bool(self._fixed)

    def find(self, secret: bytes) -> Key | None:
        """The key whose text is `secret`; None for one that is unknown, or too long to be hashed."""
        if len(secret) > MAX_SECRET_BYTES:
            return None
        return self._keys.get(self._tag(sha256(secret).digest()))

    def start(self) -> None:
        if self._file is not None:
            self._task = asyncio.create_task(self._watch(), name="key-file")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
            self._task = None

    async def reload(self) -> None:
        """Take over a changed file; one that cannot be used changes nothing but the log, once."""
        try:
            keys = await asyncio.to_thread(self._read)
        except KeyFileError as error:
            _log.error("keys_not_reloaded", problem=str(error))
            return
        if keys is not None:
            self._take(keys)
            _log.info("keys_reloaded", keys=len(keys))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            await self.reload()

    def _read(self) -> list[Key] | None:
        """The file's keys; None where it is as it was. Raises KeyFileError once for each state of the file."""
        if self._file is None:
            return None
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return None
        self._stamp = stamp  # before reading: a file that changes meanwhile is read again
        return [entry.key for entry in key_file.read(self._file)]

    def _take(self, keys: list[Key]) -> None:
        self._keys = {self._tag(bytes.fromhex(key.digest)): key for key in (*self._fixed, *keys)}

    def _tag(self, digest: bytes) -> bytes:
        return hmac.digest(self._salt, digest, "sha256")


def _stamp(path: Path) -> _Stamp:
    """Another after every change, also of who may read it; None for a file that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _default_key(secret: str) -> Key:
    if not (secret.isascii() and secret.isprintable() and 0 < len(secret.replace(" ", "")) == len(secret)):
        raise ConfigError("keys.api_key: expected visible ASCII characters without blanks")
    if len(secret) > MAX_SECRET_BYTES:
        raise ConfigError(f"keys.api_key: longer than {MAX_SECRET_BYTES} characters")
    return Key(DEFAULT, digest_of(secret.encode()))
