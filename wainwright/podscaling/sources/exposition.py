"""Prometheus text: the values of named metrics, summed over their label sets. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_LABELS: Final = rb'(?:\{(?:[^"{}\n]|"(?:[^"\\\n]|\\.)*")*\})?'


@lru_cache(maxsize=256)
def _pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    alternatives = b"|".join(re.escape(name).encode() for name in names)
    return re.compile(rb"^(" + alternatives + rb")" + _LABELS + rb"[ \t]+([^ \t\r\n]+)", re.MULTILINE)


def read_metrics(text: bytes, names: Sequence[str]) -> dict[str, float]:
    """Sum by name of the metrics that are there. Raises ValueError for a value that is no number."""
    found: dict[str, float] = {}
    for name, value in _pattern(tuple(names)).findall(text):
        key = name.decode()
        found[key] = found.get(key, 0.0) + float(value)
    return found
