"""What one run at one rate says of the edge."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """`rate` in requests/s; `met` is whether the run met every objective. `stopped` says why it was cut short.

    A run that was cut short had missed already, or was about to.
    """

    rate: float
    seed: int
    met: bool
    stopped: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)
