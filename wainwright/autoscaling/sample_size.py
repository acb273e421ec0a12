"""How many pods of a population are asked for their load."""

from __future__ import annotations

import math
from typing import Final

_ALL_UP_TO: Final = 3
_ENOUGH: Final = 1.96 * 1.96 * 10.0 * 10.0 / (5.0 * 5.0)
"""Sample of an endless population: 95 % confidence (1.96), deviation 10, margin of error 5: 15.3664 pods."""


def sample_size(population: int) -> int:
    """Pods to ask out of `population` ready ones: all of up to 3, else n·X / (n + X - 1) rounded up, at most 16.

    Source: the finite-population sample size that Knative's scraper uses (pkg/autoscaler/metrics/sample_size.go).
    """
    if population <= _ALL_UP_TO:
        return max(0, population)
    return math.ceil(population * _ENOUGH / (population + _ENOUGH - 1))
