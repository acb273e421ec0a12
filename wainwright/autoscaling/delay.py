"""The scale-down delay: the largest wish of the last span wins, so a dip does not shrink the target."""

from __future__ import annotations

from typing import Final

import msgspec

GRANULARITY_S: Final = 2
"""Wishes are kept per two seconds, the interval of decisions."""


class DelayWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Largest wish per bucket of two seconds over the last `length` buckets.

    wishes: (bucket, wish), oldest first. Only those that can still be the maximum are kept, so wishes fall with age:
    a wish at least as large makes all older ones pointless.
    """

    length: int
    wishes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, delay_s: int) -> DelayWindow | None:
        """A window over delay_s seconds, rounded up to buckets (7 s counts as 8); None for no delay."""
        return cls(length=-(-delay_s // GRANULARITY_S)) if delay_s > 0 else None

    def record(self, second: int, wish: int) -> DelayWindow:
        """With a wish of this second. A second before the newest bucket counts as in it: time does not go back."""
        bucket = second // GRANULARITY_S
        if self.wishes:
            bucket = max(bucket, self.wishes[-1][0])
        kept = tuple((b, w) for b, w in self.wishes if w > wish and b > bucket - self.length)
        newest = (*kept, (bucket, wish))
        if len(kept) >= 1 and kept[-1][0] == bucket:
            newest = kept  # a larger wish stands in the same bucket
        return msgspec.structs.replace(self, wishes=newest)

    def maximum(self) -> int:
        """Largest wish as of the newest recording; 0 when nothing was recorded."""
        return self.wishes[0][1] if self.wishes else 0

    def resized(self, length: int) -> DelayWindow:
        """Over another number of buckets, keeping the wishes that it still covers."""
        newest = self.wishes[-1][0] if self.wishes else 0
        return DelayWindow(length=length, wishes=tuple((b, w) for b, w in self.wishes if b > newest - length))
