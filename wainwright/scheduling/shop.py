"""Opens bins: which option gives the most value for its price, and what goes on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wainwright.scheduling.bins import Bins
from wainwright.scheduling.lots import Lot
from wainwright.scheduling.menu import Menu
from wainwright.scheduling.universe import Floats, Ints

CLUSTERS: Final = 48
"""How many kinds of pods are looked at when the size of a bin is chosen."""


class Shop:
    """Opens bins for lots of one tier: what each option would give for its price."""

    def __init__(self, bins: Bins, menu: Menu, lots: Sequence[Lot]) -> None:
        self.bins = bins
        self.menu = menu
        self.lots = list(lots)
        self.value: Floats = menu.values(self.lots)
        self.at = {lot.index: at for at, lot in enumerate(self.lots)}
        self._sizes: Ints = np.array([lot.sizes for lot in self.lots], dtype=np.int64).T
        self._numbers = np.array([lot.index for lot in self.lots], dtype=np.int64)
        self._rows = np.array([menu.row_of[lot.mask_id] for lot in self.lots], dtype=np.int64)
        self._shares = self._sizes / np.maximum(menu.room.max(axis=1, initial=1), 1)[:, None]
        self._most = np.array([min(lot.host.most_per_host, 1 << 40) for lot in self.lots], dtype=np.int64)
        self._bound = np.array([bool(lot.host.beside) for lot in self.lots])
        self._cluster = self._clusters()

    def _clusters(self) -> Ints:
        """Lots that look alike (options, sizes within a third, hosts) share a number."""
        logs = np.round(np.log(np.maximum(self._sizes, 1)) * 3).astype(np.int64)
        logs[self._sizes == 0] = -1
        keys = np.concatenate([self._rows[None, :], logs, np.minimum(self._most, 64)[None, :]])
        _, numbers = np.unique(keys, axis=1, return_inverse=True)
        return numbers.reshape(-1)

    def order(self) -> list[Lot]:
        """Leaders of host affinity and their followers first, then lots that need many hosts, then the dearest pods."""
        wanted = {p for lot in self.lots for p in lot.host.beside}
        needs = self._hosts_needed()

        def key(at: int) -> tuple[int, int, float, int]:
            lot = self.lots[at]
            leads = bool(wanted & set(lot.host.member_of))
            rank = 0 if leads and not lot.host.beside else 1 if lot.host.beside else 2
            worth = self.value[at] if np.isfinite(self.value[at]) else 0.0
            return (rank, -needs[at], -float(worth), lot.index)

        return [self.lots[at] for at in sorted(range(len(self.lots)), key=key)]

    def _hosts_needed(self) -> list[int]:
        """Per lot, how many hosts the rules of its tightest set force; 0 where none does."""
        totals: dict[tuple[str, int], int] = {}
        for lot in self.lots:
            left = int(self.bins.left[lot.index])
            for population, most in lot.host.at_most:
                totals["spread", population] = totals.get(("spread", population), 0) + -(-left // most)
            if lot.host.alone:
                for population in (*lot.host.apart, *lot.host.apart_soft):
                    totals["apart", population] = totals.get(("apart", population), 0) + left
            for token in lot.host.exclusive:
                totals["token", token] = totals.get(("token", token), 0) + left
        needs = []
        for lot in self.lots:
            keys = [("spread", p) for p, _ in lot.host.at_most]
            keys += [("apart", p) for p in (*lot.host.apart, *lot.host.apart_soft)] if lot.host.alone else []
            keys += [("token", t) for t in lot.host.exclusive]
            needs.append(max((totals[key] for key in keys), default=0))
        return needs

    def serves(self, lot: Lot) -> bool:
        """Is there anything on the menu for this lot?"""
        return lot.index in self.at

    def open(self, lot: Lot, bias: float = 1.0) -> bool:
        """One or more bins for a lot, filled up with what goes with it; False when nothing on the menu can be had."""
        bins, menu = self.bins, self.menu
        at = self.at[lot.index]
        if lot.host.beside and not self._may_lead(lot):
            return False
        allowed = menu.allowed[self._rows[at]].copy()
        if bins.limited:
            allowed &= bins.within_limits()[menu.options]
        columns = np.flatnonzero(allowed)
        if not len(columns):
            return False
        first = self._fit(at, columns)
        columns, first = columns[first > 0], first[first > 0]
        if not len(columns):
            return False
        ranked, repeats = self._rank(at, columns, first, bias)
        for column, count, repeat in zip(ranked.tolist(), repeats[0].tolist(), repeats[1].tolist(), strict=True):
            option = int(menu.options[column])
            times = min(max(repeat, 1), bins.affordable(option), -(-int(bins.left[lot.index]) // count))
            times = min(times, 1) if lot.host.beside else times
            opened = 0
            for _ in range(max(times, 0)):
                if not bins.left[lot.index]:
                    break
                index = bins.new_bin(option)
                if not bins.put(index, lot, min(count, int(bins.left[lot.index]))):
                    bins.drop_last()
                    break
                opened += 1
                self._fill(index, column)
            if opened:
                return True
        return False

    def _may_lead(self, lot: Lot) -> bool:
        """May this lot open a bin although it must be beside certain pods? Only as the first of its own kind."""
        mine = set(lot.host.member_of)
        return all(population in mine and not self.bins.has_members(population) for population in lot.host.beside)

    def _fit(self, at: int, columns: Ints) -> Ints:
        """How many pods of a lot an empty node of each option takes."""
        lot = self.lots[at]
        counts = np.full(len(columns), min(int(self.bins.left[lot.index]), int(self._most[at])), dtype=np.int64)
        for row, size in enumerate(lot.sizes):
            if size:
                counts = np.minimum(counts, np.maximum(self.menu.room[row, columns], 0) // size)
        return counts

    def _rank(self, at: int, columns: Ints, first: Ints, bias: float) -> tuple[Ints, tuple[Ints, Ints]]:
        """Options by value for price, best first; with each, how many pods of the lot go on it and how often."""
        bins, menu = self.bins, self.menu
        left = bins.left[self._numbers]
        own = self._cluster[at]
        worth = np.where(np.isfinite(self.value), self.value, 0.0)
        live = np.flatnonzero((left > 0) & ~self._bound)
        totals = np.bincount(self._cluster[live], weights=left[live] * worth[live])
        order = [number for number in np.argsort(-totals, kind="stable").tolist() if totals[number] > 0]
        leader = {int(n): int(i) for n, i in zip(self._cluster[live][::-1], live[::-1], strict=True)}
        chosen = [number for number in order if number != own][: CLUSTERS - 1]
        chosen.sort(key=lambda number: -worth[leader[number]])
        free = menu.room[:, columns].astype(np.float64)
        value = first * worth[at]
        sizes = self._sizes[:, at].astype(np.float64)
        free -= sizes[:, None] * first[None, :]
        stock = {number: int(left[live][self._cluster[live] == number].sum()) for number in chosen}
        own_left = int(left[live][self._cluster[live] == own].sum()) if not self._bound[at] else int(left[at])
        repeat = np.maximum(own_left // np.maximum(first, 1), 1)
        bins.meter.spend(len(columns) * (len(chosen) + 1))
        for number in chosen:
            mate = leader[number]
            usable = menu.allowed[self._rows[mate], columns]
            if not usable.any():
                continue
            counts = np.full(len(columns), float(min(stock[number], self._most[mate])))
            for row in range(bins.resources):
                size = self._sizes[row, mate]
                if size:
                    np.minimum(counts, np.floor(free[row] / size), out=counts)
            counts = np.where(usable, np.maximum(counts, 0), 0)
            if not counts.any():
                continue
            free -= self._sizes[:, mate].astype(np.float64)[:, None] * counts[None, :]
            value = value + counts * worth[mate]
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.where(counts > 0, stock[number] // np.maximum(counts, 1), np.inf)
            repeat = np.minimum(repeat, np.maximum(times, 1))
        ratio = value / np.maximum(menu.price[columns], 1e-12) ** bias
        best = np.lexsort((columns, menu.price[columns], -ratio))
        return columns[best], (first[best], repeat[best].astype(np.int64))

    def _fill(self, index: int, column: int) -> None:
        """Fill a bin with the pods that use its free room best: dear ones, and those shaped like what is free."""
        bins = self.bins
        left = bins.left[self._numbers]
        active = np.flatnonzero(
            (left > 0) & ~self._bound & self.menu.allowed[self._rows, column] & np.isfinite(self.value)
        )
        total = np.maximum(self.menu.room[:, column].astype(np.float64), 1.0)
        while len(active):
            free = bins.hosts.free[:, index]
            fits = (self._sizes[:, active] <= free[:, None]).all(axis=0)
            active = active[fits]
            if not len(active):
                return
            bins.meter.spend(len(active))
            shape = np.maximum(free, 0) / total
            shares = self._sizes[:, active] / total[:, None]
            length = np.sqrt((shares * shares).sum(axis=0)) * max(float(np.sqrt((shape * shape).sum())), 1e-12)
            aligned = (shares * shape[:, None]).sum(axis=0) / np.maximum(length, 1e-12)
            score = self.value[active] * (0.25 + aligned)
            pick = int(active[int(np.argmax(score))])
            lot = self.lots[pick]
            room = bins.room_at(index, lot)
            room = min(room, int(bins.left[lot.index]))
            placed = bins.put(index, lot, max(room // 2, 1)) if room > 0 else 0
            if not placed or not bins.left[lot.index]:
                active = active[active != pick]
