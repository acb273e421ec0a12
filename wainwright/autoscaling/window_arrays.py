"""The windows of a whole shard as arrays: one average per autoscaler and window, computed together.

Equal to `buckets` bit for bit under linear averaging, and to a relative 1e-12 or so under weighted averaging.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from wainwright.autoscaling.buckets import PRECISION, Aggregation, Buckets, smoothing_coefficient

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WHOLE: Final = 2.0**52
_CHUNK: Final = 256
"""Seconds read at once: with the smallest coefficient, 0.2, what is older weighs 1e-25 together."""
_NEGLIGIBLE: Final = 1e-13
"""Share of a weighted average that may be left out: a thousand times finer than maths libraries agree on."""


def round_averages(values: Floats) -> Floats:
    """`buckets.round_average`, elementwise."""
    scaled = values * PRECISION
    whole = np.trunc(scaled)
    whole += np.where(np.abs(scaled - whole) >= 0.5, np.copysign(1.0, scaled), 0.0)
    rounded = np.where(np.abs(scaled) < _WHOLE, whole, scaled) / PRECISION
    return np.where(np.isfinite(scaled), rounded, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketArrays:
    """Windows of one length and one way of averaging.

    rows: place of each in the shard. values: one row per second of the window, oldest first, one column per
    autoscaler; the last row belongs to its last_s. peak: the largest of them, by size. All but values have one item
    per autoscaler.
    """

    length: int
    aggregation: Aggregation
    rows: Ints
    written: Bools
    first_s: Ints
    last_s: Ints
    total: Floats
    peak: Floats
    values: Floats

    @classmethod
    def of(cls, buckets: Sequence[Buckets], rows: Sequence[int]) -> BucketArrays:
        length = buckets[0].length
        by_autoscaler = np.zeros((len(buckets), length))
        for line, one in zip(by_autoscaler, buckets, strict=True):
            if one.values:
                line[-len(one.values) :] = one.values
        return cls(
            length=length,
            aggregation=buckets[0].aggregation,
            rows=np.array(rows, dtype=np.int64),
            written=np.array([bool(one.values) for one in buckets]),
            first_s=np.array([one.first_s for one in buckets], dtype=np.int64),
            last_s=np.array([one.last_s for one in buckets], dtype=np.int64),
            total=np.array([one.total for one in buckets]),
            peak=np.abs(by_autoscaler).max(axis=1),
            values=np.ascontiguousarray(by_autoscaler.T),
        )

    def are_empty(self, second: int) -> Bools:
        return ~self.written | (second - self.last_s > self.length)

    @np.errstate(over="ignore", invalid="ignore")  # absurd loads end as the largest wish, as in the scalar version
    def averages(self, second: int) -> Floats:
        """One average per autoscaler, in the order of `rows`."""
        missing = np.maximum(0, second - self.last_s)
        alive = self.written & (missing < self.length)
        missing = np.where(alive, missing, 0)
        return np.where(alive, self._over_the_rest(missing), 0.0)

    def _over_the_rest(self, missing: Ints) -> Floats:
        match self.aggregation:
            case Aggregation.LINEAR:
                return self._linear(missing)
            case Aggregation.WEIGHTED_EXPONENTIAL:
                return self._weighted(missing)

    def _linear(self, missing: Ints) -> Floats:
        """The oldest seconds leave the running total in the order in which the scalar version takes them out."""
        total = self.total.copy()
        late = np.flatnonzero(missing)
        for place in range(int(missing.max(initial=0))):
            late = late[missing[late] > place]
            total[late] -= self.values[place, late]
        span = np.minimum(self.last_s - self.first_s + 1, self.length - missing)
        return round_averages(total / np.maximum(span, 1))

    def _weighted(self, missing: Ints) -> Floats:
        """Each second older weighs (1 - coefficient) less, so most columns are settled by their newest seconds: only
        where the older ones could still matter are they read.
        """
        coefficient = smoothing_coefficient(self.length)
        decay = np.full(self.length, 1 - coefficient)
        decay[0] = coefficient
        weights = np.multiply.accumulate(decay)[::-1]
        averages = np.zeros(len(missing))
        for lag in np.unique(missing).tolist():
            members = np.flatnonzero(missing == lag)
            upper = self.length
            while members.size and upper > lag:
                lower = max(lag, upper - _CHUNK)
                every = members.size == len(missing)
                block = self.values[lower:upper] if every else self.values[lower:upper, members]
                averages[members] += weights[lower:upper] @ block
                rest = self.peak[members] * (1 - coefficient) ** (self.length - lower)
                members = members[rest > _NEGLIGIBLE * np.abs(averages[members])]
                upper = lower
        return averages * np.power(1 - coefficient, missing)


def grouped(buckets: Sequence[Buckets]) -> list[BucketArrays]:
    """A shard's windows, those of one length and one way of averaging together."""
    places: defaultdict[tuple[int, Aggregation], list[int]] = defaultdict(list)
    for place, one in enumerate(buckets):
        places[one.length, one.aggregation].append(place)
    return [BucketArrays.of([buckets[place] for place in rows], rows) for rows in places.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowArrays:
    """Stable and panic windows of `count` autoscalers."""

    count: int
    stable: Sequence[BucketArrays]
    panic: Sequence[BucketArrays]

    @classmethod
    def of(cls, stable: Sequence[Buckets], panic: Sequence[Buckets]) -> WindowArrays:
        return cls(count=len(stable), stable=grouped(stable), panic=grouped(panic))

    def averages(self, second: int) -> tuple[Floats, Floats, Bools]:
        """Stable average, panic average (0 where there is no data), and whether there is data."""
        stable, panic = np.zeros(self.count), np.zeros(self.count)
        known = np.zeros(self.count, dtype=np.bool_)
        for group in self.stable:
            stable[group.rows] = group.averages(second)
            known[group.rows] = ~group.are_empty(second)
        for group in self.panic:
            panic[group.rows] = group.averages(second)
        return np.where(known, stable, 0.0), np.where(known, panic, 0.0), known
