"""How deep a JSON text nests, found before anything parses it: parsers recurse, each with a limit of its own."""

from itertools import accumulate

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: +1 and -1
_MEANINGLESS = bytes(set(range(256)) - set(b'[{]}"'))


def deeper_than(limit: int, text: bytes) -> bool:
    """Whether brackets stand within more than `limit - 1` others; those in strings are none. Wants valid JSON."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = unescaped.translate(_STEPS, _MEANINGLESS).replace(b'""', b"")  # strings without brackets
    steps = b"".join(marks.split(b'"')[::2])
    inner = steps.replace(b"\x01\xff", b"")  # without the innermost brackets: one level less at every peak
    return max(accumulate(memoryview(inner).cast("b")), default=0) >= limit
