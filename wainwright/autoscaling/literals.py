"""Numbers, truth values and durations as Go spells them: Knative's settings are read by Go's parsers.

Every parser raises LiteralError with a problem that can be shown to the user. NaN and infinities are refused.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

MAX_INT32: Final = 2**31 - 1
MIN_INT32: Final = -(2**31)
SECOND_NS: Final = 1_000_000_000

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NON_FINITE: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
}
_LONGEST_NUMBER: Final = 400
"""Longer texts are refused unread: Python limits the digits of an integer, and nobody means such a number."""


class LiteralError(ValueError):
    """The text is not such a literal; the message says what it should be."""


def parse_bool(text: str) -> bool:
    """Go's strconv.ParseBool: 1, t, T, true, TRUE, True, 0, f, F, false, FALSE, False."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise LiteralError("must be true or false")


def parse_int32(text: str) -> int:
    """A decimal whole number in int32; a sign is allowed, blanks are not."""
    if len(text) > _LONGEST_NUMBER or not _INTEGER.fullmatch(text):
        raise LiteralError("must be a whole number")
    number = int(text)
    if not MIN_INT32 <= number <= MAX_INT32:
        raise LiteralError(f"must be in [{MIN_INT32}, {MAX_INT32}]")
    return number


def parse_float(text: str) -> float:
    """A finite decimal number; exponents are allowed, blanks are not. Go would also take NaN, Inf and hexadecimal."""
    if _NON_FINITE.fullmatch(text):
        raise LiteralError("must be a finite number")
    if len(text) > _LONGEST_NUMBER or not _FLOAT.fullmatch(text):
        raise LiteralError("must be a number")
    number = float(text)
    if math.isinf(number):
        raise LiteralError("must be a finite number")
    return number


def parse_duration_ns(text: str) -> int:
    """Nanoseconds in Go's spelling: 90s, 1m30s, 1.5h, -2ms. A unit is required; only "0" may go without."""
    problem = "must be a duration with a unit, such as 60s or 1m30s"
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if not rest or len(rest) > _LONGEST_NUMBER:
        raise LiteralError(problem)
    total, position = 0, 0
    while position < len(rest):
        part = _DURATION_PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            raise LiteralError(problem)
        unit = _UNIT_NS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        position = part.end()
    if total >= 2**63:
        raise LiteralError("must be a duration below 292 years")
    return sign * total


def duration(nanoseconds: int) -> timedelta:
    """As a timedelta, which counts microseconds: rounded up, so that what is positive stays so."""
    return timedelta(microseconds=-(-nanoseconds // 1000))
