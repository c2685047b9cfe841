"""What shapes a distribution beyond the engine's own samplers: the engine-neutral record of one request."""

from array import array
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain, islice
from typing import Any

SHARED_BREAKERS = 16  # sets of breakers kept for the next requests that have the same


@dataclass(frozen=True, slots=True)
class Shaping:
    """Checked values; the defaults change nothing. Names and meanings are llama.cpp's, see sampling/processors/.

    `dry_sequence_breakers` holds each breaker as token ids: a sequence of one or more that ends a repetition.
    """

    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_sequence_breakers: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram_size: int = 0  # 0: off
    top_n_sigma: float = 0.0  # 0: off
    typical_p: float = 1.0  # 1: off
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0  # 0: off
    dynatemp_exponent: float = 1.0
    mirostat: int = 0  # 0: off, 2: Mirostat 2.0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1

    @property
    def active(self) -> bool:
        """Whether it changes any distribution."""
        return bool(
            self.dry_multiplier
            or self.no_repeat_ngram_size
            or self.top_n_sigma
            or self.typical_p < 1
            or (self.xtc_probability and self.xtc_threshold <= 0.5)
            or self.dynatemp_range
            or self.mirostat
        )

    def to_wire(self) -> dict[str, Any]:
        """For the engine's processes: what differs from the defaults, in types that every encoding has."""
        values = {name: value for name in _DEFAULTS if (value := getattr(self, name)) != _DEFAULTS[name]}
        if self.dry_sequence_breakers:
            values["dry_sequence_breakers"] = _packed(self.dry_sequence_breakers)
        return values

    @classmethod
    def from_wire(cls, values: dict[str, Any]) -> "Shaping":
        packed = values.get("dry_sequence_breakers", b"")
        return cls(**{**values, "dry_sequence_breakers": _unpacked(packed)})


_DEFAULTS = {field.name: field.default for field in fields(Shaping)}


@lru_cache(maxsize=SHARED_BREAKERS)
def _packed(sequences: tuple[tuple[int, ...], ...]) -> bytes:
    """Each sequence after its length, in 32 bits: thousands are one value for whoever checks or encodes it."""
    return array("i", chain.from_iterable((len(sequence), *sequence) for sequence in sequences)).tobytes()


@lru_cache(maxsize=SHARED_BREAKERS)
def _unpacked(packed: bytes) -> tuple[tuple[int, ...], ...]:
    numbers = iter(array("i", packed))
    return tuple([tuple(islice(numbers, length)) for length in numbers])
