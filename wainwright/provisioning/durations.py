"""Durations as NodePools and NodeClaims write them (`720h`, `1h30m`, `Never`). Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|h|m|s)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> timedelta | None:
    """None for `Never` and for what is no duration (validation has told the user about that)."""
    if not _PART.match(text) or _PART.sub("", text):
        return None
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))
