"""Observers that keep what they are told."""

from server.ledger import Meters
from server.stages import Stage


class Kept:
    def __init__(self) -> None:
        self.ns: list[int] = []

    def observe(self, ns: int) -> None:
        self.ns.append(ns)


class KeptMeters:
    """Meters of a process nobody else is in."""

    def __init__(self) -> None:
        self.stages = [Kept() for _ in Stage]
        self.gap = Kept()

    @property
    def meters(self) -> Meters:
        return Meters(self.stages, self.gap)
