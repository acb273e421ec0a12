"""Lots onto new nodes.

Bins are opened for the dearest pods first, each at the option that gives the most value for its price, value being
what the pods on it would cost at best alone; what room is left is offered to every later lot before it opens bins of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wainwright.scheduling.bins import Bins
from wainwright.scheduling.lots import Lot
from wainwright.scheduling.menu import Menu
from wainwright.scheduling.shop import Shop
from wainwright.scheduling.universe import Bools, Ints


class Packer(Bins):
    """Bins, and how lots get into them."""

    def pack(self, lots: Sequence[Lot]) -> None:
        """Place these lots as far as it goes; `left[lot.index]` pods of each are not."""
        most = max((lot.index for lot in lots), default=-1) + 1
        if most > len(self.left):
            self.left = np.concatenate([self.left, np.zeros(most - len(self.left), dtype=np.int64)])
        for lot in sorted(lots, key=lambda each: each.index):
            assert lot.index == len(self.lots), "lots are numbered in the order in which they come"
            self.lots.append(lot)
            self.left[lot.index] = lot.count
        tiers = self._weights[self.universe.pool_of] if self.universe.size else np.zeros(0, dtype=np.int64)
        for weight in sorted({int(w) for w in self._weights}, reverse=True):
            tier = tiers == weight
            waiting = [lot for lot in lots if self.left[lot.index] and bool((lot.mask & tier).any())]
            if waiting:
                self._pack_tier(waiting, tier)

    def shops(self) -> list[Shop]:
        """A shop per tier of NodePools, heaviest first, for all lots."""
        tiers = self._weights[self.universe.pool_of] if self.universe.size else np.zeros(0, dtype=np.int64)
        shops = []
        for weight in sorted({int(w) for w in self._weights}, reverse=True):
            tier = tiers == weight
            lots = [lot for lot in self.lots if bool((lot.mask & tier).any())]
            if lots:
                shops.append(Shop(self, Menu(self.universe, lots, tier, self._binding()), lots))
        return shops

    def _pack_tier(self, lots: Sequence[Lot], tier: Bools) -> None:
        within = tier & self.within_limits()
        menu = Menu(self.universe, lots, within, self._binding())
        shop = Shop(self, menu, lots)
        for lot in shop.order():
            self.meter.check()
            self.into_room(lot)
            while self.left[lot.index] and shop.open(lot):
                pass

    def into_room(self, lot: Lot) -> int:
        """Place what fits into open bins as they are, tightest first. Returns how many."""
        placed = 0
        if not self.bins:
            return 0
        if lot.host.beside:
            return self._beside(lot)
        room = self.room_in_bins(lot)
        at = np.flatnonzero(room)
        if not len(at):
            return 0
        if len(at) > 1:
            tight = np.zeros(len(at))
            for row in range(self.resources):
                if lot.sizes[row]:
                    tight += self.hosts.free[row, at] / np.maximum(self.capacity[row, self.option[at]], 1)
            at = at[np.lexsort((at, tight))]
        for index in at.tolist():
            count = self.put(index, lot, min(int(room[index]), int(self.left[lot.index])))
            placed += count
            if not self.left[lot.index]:
                break
        return placed

    def _beside(self, lot: Lot) -> int:
        """Place a lot that must share a node with certain pods: a bin that has one may grow for it."""
        ready = np.full(len(self.bins), 1 << 40, dtype=np.int64)
        self.hosts.limit(ready, lot.host)
        placed = 0
        best: list[tuple[int, int, int]] = []
        for index in np.flatnonzero(ready).tolist():
            fits = self._largest_growth(index, lot, min(int(ready[index]), int(self.left[lot.index])))
            if fits:
                best.append((-fits, index, fits))
        for _, index, _ in sorted(best):
            wanted = min(int(ready[index]), int(self.left[lot.index]))
            count = self._largest_growth(index, lot, wanted)
            if count and self.grow_for(index, lot, count):
                placed += count
            if not self.left[lot.index]:
                break
        return placed

    def _largest_growth(self, index: int, lot: Lot, most: int) -> int:
        rows = np.flatnonzero(self.mask_of(index, lot) & self.swappable(index))
        if not len(rows):
            return 0
        used = self.used(index)
        counts = np.full(len(rows), most, dtype=np.int64)
        for row, size in enumerate(lot.sizes):
            if size:
                counts = np.minimum(counts, (self.capacity[row, rows] - used[row]) // size)
        return max(int(counts.max()), 0)

    def grow_for(self, index: int, lot: Lot, count: int) -> bool:
        """Put `count` pods on a bin, at the cheapest option that then holds all of it."""
        option = self.cheapest(index, lot, count)
        if option < 0:
            return False
        self.resize(index, option)
        self.put(index, lot, count)
        return True

    def _binding(self) -> list[Ints]:
        """Columns of the limits that could become tight: a smaller charge is then worth something."""
        return [self.charges[name] for name in self.charges if any(name in left for left in self.limits)]
