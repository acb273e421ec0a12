"""What is wrong with a setting, in a form that a condition, an event and an exception can all show."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """key: the setting as the user wrote it; value: its text; problem: the bound that does not hold."""

    key: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value!r}: {self.problem}"


class InvalidSettings(ValueError):
    """Settings refused as a whole; `faults` holds every fault found, not the first only."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in self.faults))
