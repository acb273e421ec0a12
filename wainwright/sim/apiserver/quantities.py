"""Quantities in the one text that Kubernetes writes for each: `1000m` is `1`, `0.5` is `500m`, `1.5Gi` is `1536Mi`."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from wainwright.sim.apiserver.errors import bad_request

_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])?)$")
_DECIMAL: dict[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_NANO = Decimal("1e-9")
_LARGEST = Decimal(2**63 - 1)


@lru_cache(maxsize=8192)
def amount(text: str) -> Decimal:
    """The number a quantity stands for. Raises ApiError 400 for a text that is none."""
    match = _PATTERN.match(text)
    if match is None:
        raise bad_request("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, exponent, suffix = match.groups()
    if exponent:
        if len(exponent) > 4:
            raise bad_request("unable to parse quantity's suffix")
        return Decimal(number + exponent)
    if suffix in _BINARY:
        return Decimal(number) * Decimal(1024 ** _BINARY[suffix])
    return Decimal(number).scaleb(_DECIMAL[suffix or ""])


@lru_cache(maxsize=8192)
def canonical(text: str) -> str:
    """Raises ApiError 400 for a text that is no quantity."""
    text = text.strip()
    value = amount(text)
    if value == 0:
        return "0"
    match = _PATTERN.match(text)
    assert match is not None
    sign, size = ("-", -value) if value < 0 else ("", value)
    if size % _NANO:
        size = size.quantize(_NANO, rounding=ROUND_CEILING)
    if not match[2]:
        size = min(size, _LARGEST)
    if match[3] in _BINARY and size >= 1024 and size == size.to_integral_value():
        whole, power = int(size), 0
        while whole % 1024 == 0 and power < 6:
            whole, power = whole // 1024, power + 1
        return f"{sign}{whole}{['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'][power]}"
    exponent = -9
    whole = int(size.scaleb(9))
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
