"""Quantities in the one text that Kubernetes writes for each: `1000m` is `1`, `0.5` is `500m`, `1.5Gi` is `1536Mi`."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from wainwright.sim.apiserver.errors import bad_request

_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])?)$")
_DECIMAL: dict[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_MOST_DIGITS = 99
_LARGEST = 2**63 - 1


@lru_cache(maxsize=8192)
def amount(text: str) -> Fraction:
    """The number a quantity stands for. Raises ApiError 400 for a text that is none."""
    match = _PATTERN.match(text)
    if match is None:
        raise bad_request("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, exponent, suffix = match.groups()
    if len(number) > _MOST_DIGITS or (exponent and abs(int(exponent[1:])) > _MOST_DIGITS):
        raise bad_request("unable to parse quantity's suffix")
    if exponent:
        return Fraction(number) * _power_of_ten(int(exponent[1:]))
    if suffix in _BINARY:
        return Fraction(number) * Fraction(1 << 10 * _BINARY[suffix])
    return Fraction(number) * _power_of_ten(_DECIMAL[suffix or ""])


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """Raises ApiError 400 for a text that is no quantity."""
    text = text.strip()
    value = amount(text)
    if value == 0:
        return "0"
    match = _PATTERN.match(text)
    assert match is not None
    sign, nano = "-" if value < 0 else "", ceil(abs(value) * 10**9)
    if not match[2]:
        nano = min(nano, _LARGEST * 10**9)
    if match[3] in _BINARY and nano >= 1024 * 10**9 and nano % 10**9 == 0:
        whole, power = nano // 10**9, 0
        while whole % 1024 == 0 and power < 6:
            whole, power = whole // 1024, power + 1
        return f"{sign}{whole}{['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'][power]}"
    whole, exponent = nano, -9
    while whole % 1000 == 0 and exponent < 18:
        whole, exponent = whole // 1000, exponent + 3
    if match[2]:
        return f"{sign}{whole}e{exponent}" if exponent else f"{sign}{whole}"
    return f"{sign}{whole}{_DECIMAL_SUFFIX[exponent]}"


def normalised(value: Any) -> str:
    """The same for what JSON may hold instead of a text: a number."""
    if isinstance(value, str):
        return canonical(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return canonical(str(value))
    raise bad_request(f"quantities must be text or a number, not {value!r}")
