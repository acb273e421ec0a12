"""Time buckets: load per second over a window, and its average. Frozen values; every change is a new value.

Source: Knative Serving, pkg/autoscaler/aggregation (bucketing.go), whose answers the golden vectors record.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

PRECISION: Final = 1e6
"""Linear averages are rounded to 6 decimals: load below 5e-7 is none, so rounding noise keeps no pod alive."""
_WHOLE: Final = 2.0**52
"""Floats from here on are whole numbers: nothing to round."""
_SWAMPS: Final = 1e9
"""A value from here on leaves rounding errors of the running sum behind that could look like load."""
_FLOOR_COEFFICIENT: Final = 0.2
_REST: Final = 0.0001
"""Weight that the whole window leaves unspent: a long steady load reads as 99.99 % of itself."""


class Aggregation(enum.StrEnum):
    """LINEAR: every second counts alike. WEIGHTED_EXPONENTIAL: the newest second counts most."""

    LINEAR = "linear"
    WEIGHTED_EXPONENTIAL = "weighted-exponential"


def smoothing_coefficient(length: int) -> float:
    """Share of the newest second in a weighted average over `length` seconds: 0.7846 for 6 s, 0.2 from 42 s on."""
    return max(_FLOOR_COEFFICIENT, 1 - math.pow(_REST, 1 / length))


def round_average(value: float) -> float:
    """Rounded to 6 decimals, half away from zero."""
    scaled = value * PRECISION
    if not abs(scaled) < _WHOLE:
        return value if math.isinf(scaled) else scaled / PRECISION
    whole = float(math.trunc(scaled))
    if abs(scaled - whole) >= 0.5:
        whole += math.copysign(1.0, scaled)
    return whole / PRECISION


def _sum(values: Iterable[float]) -> float:
    """In the order given. Not sum(): from Python 3.12 on it compensates, and the last bit would depend on that."""
    total = 0.0
    for value in values:
        total += value
    return total


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """Load per second over the last `length` seconds up to the newest write.

    values: one per second, oldest first; the last one belongs to second last_s. Seconds of the window that lie
    before them hold zero. No values: never written, and first_s and last_s mean nothing.
    first_s: where the window began to fill; a young window averages only what it has.
    total: running sum of the values. It is kept, not summed anew, so that a linear average costs the same for any
    length and rounds as upstream's does: a tie at the sixth decimal falls by the last bit of this sum.
    """

    length: int
    aggregation: Aggregation = Aggregation.LINEAR
    first_s: int = 0
    last_s: int = 0
    total: float = 0.0
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.length >= 1 or len(self.values) > self.length:
            raise ValueError(f"{len(self.values)} values in a window of {self.length} s")

    def record(self, second: int, value: float) -> Buckets:
        """With value added to the second it was measured in; samples of one second add up.

        A newer second moves the window, and the seconds between hold zero; one a whole window or more after the
        last write starts anew. An older second is added where it belongs while the window still covers it, and
        dropped when not. Raises ValueError unless the value and the sum are finite.
        """
        return self._written(second, value, replace=False)

    def put(self, second: int, value: float) -> Buckets:
        """Like `record`, but value replaces what the second held: writing the same sample twice changes nothing."""
        return self._written(second, value, replace=True)

    def extended(self, values: Sequence[float]) -> Buckets:
        """With these values in the seconds that follow the newest: the same as a `put` for each, to the last bit, for
        the price of one. Raises ValueError as `put`.
        """
        if not self.values or len(values) >= self.length:
            return self._one_by_one(values)
        together = (*self.values, *values)
        length, total = self.length, self.total
        gone = len(self.values) + 1 - length
        for value in values:
            if gone > 0:
                oldest = together[gone - 1]
                if not -_SWAMPS < oldest < _SWAMPS:
                    return self._one_by_one(values)
                total -= oldest
            total += value
            gone += 1
        if not math.isfinite(total):
            return self._one_by_one(values)
        return Buckets(
            length=length,
            aggregation=self.aggregation,
            first_s=self.first_s,
            last_s=self.last_s + len(values),
            total=total,
            values=together[-length:],
        )

    def _one_by_one(self, values: Sequence[float]) -> Buckets:
        written = self
        for value in values:
            written = written.put(written.last_s + 1, value)
        return written

    def _written(self, second: int, value: float, *, replace: bool) -> Buckets:
        ahead = second - self.last_s
        if not self.values or ahead >= self.length:
            written = msgspec.structs.replace(self, first_s=second, last_s=second, total=0.0 + value, values=(value,))
        elif ahead > 0:
            gone = max(0, len(self.values) + ahead - self.length)
            total = self.total
            for old in self.values[:gone]:
                total -= old
            values = (*self.values[gone:], *(0.0,) * (ahead - 1), value)
            if any(abs(old) >= _SWAMPS for old in self.values[:gone]):
                total = _sum(values[:-1])
            written = msgspec.structs.replace(self, last_s=second, total=total + value, values=values)
        elif ahead <= -self.length:
            return self
        else:
            missing = max(0, 1 - ahead - len(self.values))
            filled = [*(0.0,) * missing, *self.values]
            place = ahead - 1
            if replace and not missing and filled[place] == value:
                return self  # (total - value) + value may differ from total in the last bit
            total = self.total - filled[place] if replace else self.total
            filled[place] = value if replace else filled[place] + value
            written = msgspec.structs.replace(
                self, first_s=min(self.first_s, second), total=total + value, values=tuple(filled)
            )
        if not (math.isfinite(value) and math.isfinite(written.total)):
            raise ValueError(f"sample {value} does not leave a finite load")
        return written

    def resize(self, length: int) -> Buckets:
        """With another length, keeping the newest seconds that fit.

        As upstream, the window then counts as filled over its whole old length, so one that was young averages
        its unfilled part as zeros from now on.
        """
        if length == self.length:
            return self
        if not self.values:
            return msgspec.structs.replace(self, length=length)
        kept = self.values[-length:]
        return msgspec.structs.replace(
            self,
            length=length,
            first_s=self.last_s - (self.length - 1),
            total=_sum(reversed(kept)),
            values=kept,
        )

    def is_empty(self, second: int) -> bool:
        """Never written, or the last write lies more than one window back. Exactly one window back is not empty
        yet, though its average is 0 (upstream's edge, pinned by the golden outage traces).
        """
        return not self.values or second - self.last_s > self.length

    def average(self, second: int) -> float:
        """Load averaged over the window that ends at `second`; 0 when there is nothing in it.

        Seconds after the last write are missing, not zero: they are left out. Linear averages are rounded to
        6 decimals; weighted ones are neither rounded nor normalised (a new window starts low).
        """
        missing = max(0, second - self.last_s)
        if not self.values or missing >= self.length:
            return 0.0
        gone = max(0, len(self.values) + missing - self.length)
        match self.aggregation:
            case Aggregation.LINEAR:
                total = self.total
                for old in self.values[:gone]:
                    total -= old
                span = min(self.last_s - self.first_s + 1, self.length - missing)
                return round_average(total / span)
            case Aggregation.WEIGHTED_EXPONENTIAL:
                coefficient = smoothing_coefficient(self.length)
                weight = coefficient * math.pow(1 - coefficient, missing)
                average = 0.0
                for value in reversed(self.values[gone:]):
                    average += value * weight
                    weight *= 1 - coefficient
                return average


def merged(parts: Sequence[Buckets]) -> Buckets:
    """One window out of one per source: the values of a second add up over the sources, in the order given.

    Each source writes only its own buckets with `put`, so a repeated write of one source replaces and different
    sources add. A source whose last write lies a whole window before the newest one is left out, as a write after
    such a silence starts a window anew. parts share length and aggregation and are not empty as a list.
    """
    newest = max((part.last_s for part in parts if part.values), default=0)
    live = [part for part in parts if part.values and newest - part.last_s < part.length]
    if len(live) <= 1:
        return live[0] if live else parts[0]
    length = parts[0].length
    totals = [0.0] * length
    for part in live:
        end = length - (newest - part.last_s)
        kept = part.values[-end:]
        for place, value in enumerate(kept, end - len(kept)):
            totals[place] += value
    oldest = min(part.last_s - len(part.values) + 1 for part in live)
    filled = min(length, newest - oldest + 1)
    values = tuple(totals[-filled:])
    return msgspec.structs.replace(
        live[0], first_s=min(part.first_s for part in live), last_s=newest, total=_sum(values), values=values
    )
