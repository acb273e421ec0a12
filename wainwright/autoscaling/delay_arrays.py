"""The scale-down delays of a whole shard as arrays; equal to `delay.DelayWindow`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wainwright.autoscaling.delay import GRANULARITY_S, DelayWindow
from wainwright.autoscaling.window_arrays import Bools, Ints

_NONE: Final = -(2**62)
"""Bucket of an unused place: older than every window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayArrays:
    """length: buckets per autoscaler, 0 where there is no delay. buckets, wishes: one column per autoscaler, its
    wishes from the oldest on, unused places at the end.
    """

    length: Ints
    buckets: Ints
    wishes: Ints

    @classmethod
    def of(cls, delays: Sequence[DelayWindow | None]) -> DelayArrays:
        depth = max((len(one.wishes) for one in delays if one is not None), default=0)
        buckets = np.full((depth, len(delays)), _NONE, dtype=np.int64)
        wishes = np.zeros((depth, len(delays)), dtype=np.int64)
        for column, one in enumerate(delays):
            if one is not None and one.wishes:
                buckets[: len(one.wishes), column], wishes[: len(one.wishes), column] = zip(*one.wishes, strict=True)
        length = np.array([0 if one is None else one.length for one in delays], dtype=np.int64)
        return cls(length=length, buckets=buckets, wishes=wishes)

    def values(self) -> list[DelayWindow | None]:
        depths = (self.buckets != _NONE).sum(axis=0).tolist()
        return [
            DelayWindow(
                length=length,
                wishes=tuple(
                    zip(self.buckets[:depth, column].tolist(), self.wishes[:depth, column].tolist(), strict=True)
                ),
            )
            if length
            else None
            for column, (length, depth) in enumerate(zip(self.length.tolist(), depths, strict=True))
        ]

    def record(self, second: int, wish: Ints, counts: Bools) -> tuple[DelayArrays, Ints]:
        """With the wishes of this second where `counts` (and there is a delay), and the largest wish of each span;
        elsewhere the wish itself.
        """
        columns = np.flatnonzero(counts & (self.length > 0))
        if not columns.size:
            return self, wish
        length, buckets, wishes, new = (
            self.length[columns],
            self.buckets[:, columns],
            self.wishes[:, columns],
            wish[columns],
        )
        bucket = np.maximum(second // GRANULARITY_S, buckets.max(axis=0, initial=_NONE))
        kept = (wishes > new) & (buckets > bucket - length)
        topped = (kept & (buckets == bucket)).any(axis=0)  # a larger wish stands in the same bucket
        buckets = np.vstack([np.where(kept, buckets, _NONE), np.where(topped, _NONE, bucket)])
        wishes = np.vstack([np.where(kept, wishes, 0), np.where(topped, 0, new)])
        order = np.argsort(buckets == _NONE, axis=0, kind="stable")
        buckets, wishes = np.take_along_axis(buckets, order, axis=0), np.take_along_axis(wishes, order, axis=0)

        depth = max(int((buckets != _NONE).sum(axis=0).max()), self._depth_outside(columns))
        all_buckets = _with_depth(self.buckets, depth, _NONE)
        all_wishes = _with_depth(self.wishes, depth, 0)
        filled = min(depth, len(buckets))
        all_buckets[:, columns], all_wishes[:, columns] = _NONE, 0
        all_buckets[:filled, columns], all_wishes[:filled, columns] = buckets[:filled], wishes[:filled]
        largest = wish.copy()
        largest[columns] = wishes[0]
        return DelayArrays(length=self.length, buckets=all_buckets, wishes=all_wishes), largest

    def _depth_outside(self, columns: Ints) -> int:
        others = np.ones(len(self.length), dtype=np.bool_)
        others[columns] = False
        return int((self.buckets[:, others] != _NONE).sum(axis=0).max(initial=0))


def _with_depth(array: Ints, depth: int, fill: int) -> Ints:
    """A copy with `depth` rows; new ones hold `fill`."""
    deeper = np.full((depth, array.shape[1]), fill, dtype=np.int64)
    shared = min(depth, len(array))
    deeper[:shared] = array[:shared]
    return deeper
