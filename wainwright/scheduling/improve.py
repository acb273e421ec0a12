"""Local improvement: take a few nodes apart, place their pods anew, keep it if the plan got cheaper.

Whole nodes are dissolved, the wasteful ones first, alone and together with others that could take over their pods.
What is tried follows from the plan alone, so the same input is improved in the same way everywhere; work is counted,
not time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from wainwright.scheduling.lots import Lot
from wainwright.scheduling.meter import Meter
from wainwright.scheduling.packing import Packer
from wainwright.scheduling.shop import Shop
from wainwright.scheduling.universe import Floats, Ints

BIASES = (1.0, 0.93, 1.0, 1.07, 0.87)
"""Powers of the price by which value is divided when a node is chosen: below 1 leans to larger nodes."""
COUNTS = (1, 2, 2, 3, 2, 4)
"""How many nodes are taken apart together, sweep by sweep."""
ROUND = 12
"""Sweeps without a gain after which the search ends (more for few nodes: then all pairs are tried)."""
STEP = 2_000
"""Work that one attempt counts for, besides the candidates it looks at."""
CLOSE = 0.001
"""Share of the bound within which the price is as good as proven."""
FEW = 9
"""Up to so many nodes, all combinations of up to three are tried."""
LOOK = 40
"""How many nodes are looked at to find partners for one."""
LEAST_GAIN = 1e-9
"""US dollars an hour below which a change is no gain."""


class Improver:
    """Improves one packing until nothing is found or the work is used up."""

    def __init__(self, packer: Packer, meter: Meter) -> None:
        self.packer = packer
        self.meter = meter
        self.shops = packer.shops()
        self.home: dict[int, Shop] = {}
        for shop in self.shops:
            for lot in shop.lots:
                self.home.setdefault(lot.index, shop)
        self._meets: dict[frozenset[frozenset[int]], bool] = {}
        self.value: Floats = np.zeros(len(packer.lots))
        for shop in self.shops:
            for at, lot in enumerate(shop.lots):
                if np.isfinite(shop.value[at]):
                    known = self.value[lot.index]
                    self.value[lot.index] = min(known, shop.value[at]) if known else shop.value[at]

    def run(self, work: int, bound: float = 0.0) -> None:
        """Spend up to `work` units, until a whole round of sweeps finds nothing or the price is at the bound."""
        end = self.meter.work + work
        tried: set[tuple[int, ...]] = set()
        sweep = idle = 0
        while self.meter.work < end and idle < max(ROUND, min(2 * self.packer.open_bins, 3 * ROUND)):
            self.meter.check()
            if self.packer.total() <= bound * (1 + CLOSE):
                return
            few = self.packer.open_bins <= FEW
            gained = self._combinations(end, tried) if few else self._sweep(sweep, end, tried)
            if few and not gained:
                return
            idle = 0 if gained else idle + 1
            sweep += 1

    def _combinations(self, end: int, tried: set[tuple[int, ...]]) -> bool:
        """For a handful of nodes: every one, two and three of them together; True at the first gain."""
        waste = self.waste()
        ranked = np.lexsort((np.arange(len(waste)), -waste))[: self.packer.open_bins].tolist()
        for size in (1, 2, 3):
            for group in itertools.combinations(ranked, size):
                if self.meter.work >= end:
                    return False
                key = (*sorted(int(self.packer.serial[index]) for index in group), -1)
                if key in tried:
                    continue
                tried.add(key)
                self.meter.check()
                if size > 1 and self._merge(group):
                    return True
                for lighter_first in (False, True)[: len(self.shops)]:
                    if self._rebuild(group, lighter_first=lighter_first, bias=1.0):
                        return True
        return False

    def _sweep(self, sweep: int, end: int, tried: set[tuple[int, ...]]) -> bool:
        """Every node once as the one to be dissolved, with partners that depend on the number of the sweep."""
        packer = self.packer
        gained = False
        count = COUNTS[sweep % len(COUNTS)]
        offset = sweep // len(COUNTS) * COUNTS.count(count) + COUNTS[: sweep % len(COUNTS)].count(count)
        waste = self.waste()
        ranked = np.lexsort((np.arange(len(waste)), -waste))[: packer.open_bins]
        for place, first in enumerate(ranked.tolist()):
            if self.meter.work >= end:
                return gained
            if not packer.bins[first]:
                continue
            group = self._partners(first, count, np.roll(ranked, -(place + 1 + offset)))
            key = (*sorted(int(packer.serial[index]) for index in group), sweep % len(BIASES))
            if key in tried:
                continue
            tried.add(key)
            self.meter.check()
            if (len(group) > 1 and self._merge(group)) or self._rebuild(
                group, lighter_first=sweep % 2 == 1 and len(self.shops) > 1, bias=BIASES[sweep % len(BIASES)]
            ):
                gained = True
        return gained

    def waste(self) -> Floats:
        """Per bin, its price less what its pods would cost at best; minus infinity for dissolved ones."""
        packer = self.packer
        waste = np.full(len(packer.bins), -np.inf)
        for index, contents in enumerate(packer.bins):
            if contents:
                worth = sum(float(self.value[number]) * count for number, count in contents.items())
                waste[index] = float(packer.universe.price[packer.option[index]]) - worth
        return waste

    def _partners(self, first: int, count: int, others: Ints) -> list[int]:
        """The node itself and up to `count - 1` more, in the order given, that could share a node with it."""
        chosen = [first]
        for other in others[:LOOK].tolist():
            if len(chosen) >= count:
                break
            if other != first and self.packer.bins[other] and self._could_meet(first, other):
                chosen.append(other)
        return chosen

    def _could_meet(self, one: int, other: int) -> bool:
        """Is there an option for the pods of both nodes?"""
        packer = self.packer
        keys = frozenset((packer.mask_key(one), packer.mask_key(other)))
        known = self._meets.get(keys)
        if known is None:
            known = bool((packer.mask_of(one) & packer.mask_of(other)).any())
            self._meets[keys] = known
        return known

    def _place(self, lot: Lot, shop: Shop, most: float, bias: float) -> None:
        """Into the room there is, then into new nodes while the plan stays cheaper than `most`."""
        packer = self.packer
        if packer.left[lot.index]:
            packer.into_room(lot)
        while packer.left[lot.index] and packer.total() < most and shop.open(lot, bias):
            pass

    def _merge(self, indices: Sequence[int]) -> bool:
        """All pods of these nodes on one, if one costs less than all of them."""
        packer = self.packer
        self.meter.spend(STEP // 8)
        before = packer.total()
        option = packer.common_option(indices)
        if option < 0 or packer.universe.price[option] >= sum(
            packer.universe.price[packer.option[index]] for index in indices
        ):
            return False
        packer.begin()
        load: dict[int, int] = {}
        for index in indices:
            for number, count in packer.bins[index].items():
                load[number] = load.get(number, 0) + count
            packer.dissolve(index)
        if packer.affordable(option) > 0:
            target = packer.new_bin(option)
            for number, count in sorted(load.items()):
                lot = packer.lots[number]
                if packer.room_at(target, lot) < count or packer.put(target, lot, count) < count:
                    break
            else:
                if packer.total() < before - LEAST_GAIN:
                    packer.commit()
                    return True
        packer.rollback()
        return False

    def _rebuild(self, indices: Sequence[int], *, lighter_first: bool, bias: float) -> bool:
        packer = self.packer
        self.meter.spend(STEP)
        before = packer.total()
        bins = packer.open_bins
        packer.begin()
        lots: dict[int, Lot] = {}
        for index in indices:
            lots.update({number: packer.lots[number] for number in packer.bins[index]})
            packer.dissolve(index)
        waiting = sorted(lots.values(), key=lambda lot: (-self.value[lot.index], lot.index))
        if not lighter_first:
            for lot in waiting:
                packer.into_room(lot)
        for shop in self.shops[::-1] if lighter_first else self.shops:
            for lot in waiting:
                if self.home.get(lot.index) is shop:
                    self._place(lot, shop, before, bias)
        for shop in self.shops:
            for lot in waiting:
                if packer.left[lot.index] and shop.serves(lot):
                    self._place(lot, shop, before, bias)
        done = all(not packer.left[lot.index] for lot in waiting)
        after = packer.total()
        if done and (after < before - LEAST_GAIN or (after < before + LEAST_GAIN and packer.open_bins < bins)):
            packer.commit()
            return True
        packer.rollback()
        return False


def trim(packer: Packer) -> None:
    """Every node at the cheapest option that holds what is on it."""
    for index, contents in enumerate(packer.bins):
        if contents:
            option = packer.cheaper(index)
            if option >= 0:
                packer.resize(index, option)
