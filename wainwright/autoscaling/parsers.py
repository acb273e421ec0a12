"""Literals within bounds, and a reader that notes every fault instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.literals import SECOND_NS, LiteralError, duration, parse_duration_ns, parse_float

UNLIMITED: Final = -1.0
"""Target burst capacity: endless."""
TARGET_MIN: Final = 0.01
"""Smallest target per pod: below it, the count of pods would only follow noise."""
MINUTE_NS: Final = 60 * SECOND_NS
HOUR_NS: Final = 60 * MINUTE_NS

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)


def at_least(parse: Callable[[str], _N], low: float) -> Callable[[str], _N]:
    def parsed(text: str) -> _N:
        value = parse(text)
        if value < low:
            raise LiteralError(f"must be at least {low:g}")
        return value

    return parsed


def above(parse: Callable[[str], _N], low: float) -> Callable[[str], _N]:
    def parsed(text: str) -> _N:
        value = parse(text)
        if value <= low:
            raise LiteralError(f"must be greater than {low:g}")
        return value

    return parsed


def between(parse: Callable[[str], _N], low: float, high: float) -> Callable[[str], _N]:
    def parsed(text: str) -> _N:
        value = parse(text)
        if not low <= value <= high:
            raise LiteralError(f"must be in [{low:g}, {high:g}]")
        return value

    return parsed


def _duration(text: str, low_ns: int, high_ns: int | None, problem: str, *, whole: bool) -> timedelta:
    nanoseconds = parse_duration_ns(text)
    if nanoseconds < low_ns or (high_ns is not None and nanoseconds > high_ns):
        raise LiteralError(problem)
    if whole and nanoseconds % SECOND_NS:
        raise LiteralError("must be whole seconds")
    return duration(nanoseconds)


def window(text: str) -> timedelta:
    """A stable window: 6 s to 1 h, whole seconds."""
    return _duration(text, 6 * SECOND_NS, HOUR_NS, "must be in [6s, 1h]", whole=True)


def duration_from_zero(text: str) -> timedelta:
    return _duration(text, 0, None, "must not be negative", whole=False)


def positive_duration(text: str) -> timedelta:
    return _duration(text, 1, None, "must be positive", whole=False)


def seconds_from_zero(text: str) -> timedelta:
    return _duration(text, 0, None, "must not be negative", whole=True)


def positive_seconds(text: str) -> timedelta:
    return _duration(text, 1, None, "must be positive", whole=True)


def duration_up_to_an_hour(text: str) -> timedelta:
    return _duration(text, 0, HOUR_NS, "must be in [0s, 1h]", whole=False)


def seconds_up_to_an_hour(text: str) -> timedelta:
    return _duration(text, 0, HOUR_NS, "must be in [0s, 1h]", whole=True)


def burst_capacity(text: str) -> float:
    """0 or more, or -1 for endless."""
    value = parse_float(text)
    if value < 0 and value != UNLIMITED:
        raise LiteralError("must be at least 0, or -1 for unlimited")
    return value


def fraction(text: str) -> float:
    """A percentage or a fraction, as a fraction above 0 up to 1. Above 1 it was meant in percent, so 1 is 100 % and
    1.1 is 1.1 %.
    """
    value = parse_float(text)
    value = value / 100 if value > 1 else value
    if not 0 < value <= 1:
        raise LiteralError("must be above 0 and at most 100")
    return value


class SettingsReader:
    """Reads one map of texts. `faults` grows by each value that is none."""

    def __init__(self, texts: Mapping[str, str], *, prefix: str = "", aliases: Mapping[str, str] | None = None) -> None:
        self._texts = texts
        self._prefix = prefix
        self._aliases = aliases or {}
        self.faults: list[Fault] = []

    def text(self, name: str) -> tuple[str, str | None]:
        """The key as the user wrote it, and its text, None when absent. A second spelling only counts alone."""
        key = self._prefix + name
        alias = self._aliases.get(name)
        if key not in self._texts and alias is not None and self._prefix + alias in self._texts:
            key = self._prefix + alias
        return key, self._texts.get(key)

    def refuse(self, name: str, problem: str) -> None:
        key, text = self.text(name)
        self.faults.append(Fault(key, text or "", problem))

    def value(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        """The parsed value; None when it is absent or was refused."""
        _, text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except LiteralError as error:
            self.refuse(name, str(error))
            return None
