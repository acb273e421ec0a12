"""Opens bins: which option gives the most value for its price, and what goes on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from wainwright.scheduling.bins import Bins
from wainwright.scheduling.lots import Lot
from wainwright.scheduling.menu import Menu
from wainwright.scheduling.universe import Floats, Ints

CLUSTERS: Final = 32
"""How many kinds of pods are looked at when the size of a bin is chosen."""
SHARE: Final = 1.3
"""How far above its fair share of the work a node may go when rules force a number of nodes."""


class Shop:
    """Opens bins for lots of one tier: what each option would give for its price."""

    def __init__(self, bins: Bins, menu: Menu, lots: Sequence[Lot]) -> None:
        self.bins = bins
        self.menu = menu
        self.lots = list(lots)
        self.value: Floats = menu.values(self.lots)
        self.at = {lot.index: at for at, lot in enumerate(self.lots)}
        self._worth: Floats = np.where(np.isfinite(self.value), self.value, 0.0)
        self._sizes: Ints = np.array([lot.sizes for lot in self.lots], dtype=np.int64).T
        self._floats: Floats = self._sizes.astype(np.float64)
        self._needs = [[row for row, size in enumerate(lot.sizes) if size] for lot in self.lots]
        self._room: Floats = menu.room.astype(np.float64)
        self._numbers = np.array([lot.index for lot in self.lots], dtype=np.int64)
        self._rows = np.array([menu.row_of[lot.mask_id] for lot in self.lots], dtype=np.int64)
        self._most = np.array([min(lot.host.most_per_host, 1 << 40) for lot in self.lots], dtype=np.int64)
        self._free = np.array([not lot.host.beside for lot in self.lots]) & np.isfinite(self.value)
        """Lots that may fill up any bin: those that must be beside certain pods come on their own."""
        hosts = {lot.host: number for number, lot in enumerate(reversed(self.lots))}
        self._host: Ints = np.array([hosts[lot.host] for lot in self.lots], dtype=np.int64)
        self._cluster = self._clusters()
        self._sets, self._set_weights = self._host_sets()

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
        needs = [self._hosts_needed(at) for at in range(len(self.lots))]

        def key(at: int) -> tuple[int, float, float, int]:
            lot = self.lots[at]
            leads = bool(wanted & set(lot.host.member_of))
            rank = 0 if leads and not lot.host.beside else 1 if lot.host.beside else 2
            worth = self.value[at] if np.isfinite(self.value[at]) else 0.0
            return (rank, -needs[at], -float(worth), lot.index)

        return [self.lots[at] for at in sorted(range(len(self.lots)), key=key)]

    def _host_sets(self) -> tuple[list[list[tuple[str, int]]], dict[tuple[str, int], Floats]]:
        """Per lot the sets of pods of which a node takes only so many; per set, what each pod of a lot counts in it."""
        keys: list[list[tuple[str, int]]] = []
        weights: dict[tuple[str, int], Floats] = {}
        for at, lot in enumerate(self.lots):
            mine = [(("spread", population), 1.0 / most) for population, most in lot.host.at_most]
            if lot.host.alone:
                mine += [(("apart", population), 1.0) for population in (*lot.host.apart, *lot.host.apart_soft)]
            mine += [(("token", token), 1.0) for token in lot.host.exclusive]
            keys.append([key for key, _ in mine])
            for key, weight in mine:
                weights.setdefault(key, np.zeros(len(self.lots)))[at] = weight
        return keys, weights

    def _hosts_needed(self, at: int) -> float:
        """How many more hosts the rules of a lot's tightest set force; 0 where none does."""
        if not self._sets[at]:
            return 0.0
        left = self.bins.left[self._numbers]
        return max(float(self._set_weights[key] @ left) for key in self._sets[at])

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
        needed = self._hosts_needed(at)
        if needed > 1:
            # So many hosts are needed anyway: share the work out over them, instead of filling a few to the brim.
            left = bins.left[self._numbers]
            share = SHARE * float((left * self._worth)[self._free].sum()) / needed
            fair = menu.price[columns] <= max(share, float(menu.price[columns].min()))
            columns, first = columns[fair], first[fair]
        ranked, detail = self._rank(at, columns, first, bias)
        for position in ranked.tolist():
            column = int(columns[position])
            option = int(menu.options[column])
            count, repeat = detail(position)
            times = min(repeat, bins.affordable(option), -(-int(bins.left[lot.index]) // count))
            times = min(times, 1) if lot.host.beside else times
            opened = 0
            pattern: dict[int, int] = {}
            for _ in range(max(times, 0)):
                if not bins.left[lot.index]:
                    break
                index = bins.new_bin(option)
                if pattern and all(bins.left[number] >= wanted for number, wanted in pattern.items()):
                    # The same again: what the last bin was filled with is there once more.
                    for number, wanted in pattern.items():
                        bins.put(index, bins.lots[number], wanted)
                    opened += 1
                    continue
                if not bins.put(index, lot, min(count, int(bins.left[lot.index]))):
                    bins.drop_last()
                    break
                opened += 1
                self._fill(index, column)
                pattern = bins.bins[index]
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

    def _rank(self, at: int, columns: Ints, first: Ints, bias: float) -> tuple[Ints, Callable[[int], tuple[int, int]]]:
        """Options by value for price, best first, as positions in `columns`; and what tells, for such a position, how
        many pods of the lot go on it and how often such a bin can be repeated.
        """
        bins, menu = self.bins, self.menu
        left = bins.left[self._numbers]
        live = np.flatnonzero((left > 0) & self._free)
        own = int(self._cluster[at])
        cluster = self._cluster[live]
        stock = np.bincount(cluster, weights=left[live], minlength=own + 1)
        totals = np.bincount(cluster, weights=left[live] * self._worth[live], minlength=own + 1)
        own_left = int(stock[own]) if self._free[at] else int(left[at])
        totals[own] = 0.0
        numbers = np.flatnonzero(totals > 0)
        numbers = numbers[np.argsort(-totals[numbers], kind="stable")][:CLUSTERS]
        mates = np.full(len(totals), -1, dtype=np.int64)
        mates[cluster[::-1]] = live[::-1]
        mates = mates[numbers]
        by_worth = np.lexsort((mates, -self._worth[mates]))
        free = self._room[:, columns] - self._floats[:, at, None] * first
        value = first * self._worth[at]
        used: list[tuple[Floats, float]] = []
        bins.meter.spend(len(columns) * (len(numbers) + 1))
        for mate, number in zip(mates[by_worth].tolist(), numbers[by_worth].tolist(), strict=True):
            usable = menu.allowed[self._rows[mate], columns]
            most = float(min(stock[number], self._most[mate]))
            counts = usable * most
            for row in self._needs[mate]:
                np.minimum(counts, np.floor(free[row] / self._floats[row, mate]), out=counts)
            np.maximum(counts, 0, out=counts)
            if not counts.any():
                continue
            for row in self._needs[mate]:
                free[row] -= self._floats[row, mate] * counts
            value = value + counts * self._worth[mate]
            used.append((counts, float(stock[number])))
        ratio = value / np.maximum(menu.price[columns], 1e-12) ** bias
        best = np.lexsort((columns, menu.price[columns], -ratio))

        def detail(position: int) -> tuple[int, int]:
            count = int(first[position])
            repeat = own_left // count
            for counts, stocked in used:
                if counts[position] > 0:
                    repeat = min(repeat, int(stocked // counts[position]))
            return count, max(repeat, 1)

        return best, detail

    def _fill(self, index: int, column: int) -> None:
        """Fill a bin with the pods that use its free room best: dear ones, and those shaped like what is free."""
        bins = self.bins
        left = bins.left[self._numbers]
        active = np.flatnonzero((left > 0) & self._free & self.menu.allowed[self._rows, column])
        scale = 1.0 / np.maximum(self._room[:, column], 1.0)
        sizes = self._floats[:, active]
        while len(active):
            free = bins.hosts.free[:, index].astype(np.float64)
            fits = sizes[0] <= free[0]
            for row in range(1, bins.resources):
                fits &= sizes[row] <= free[row]
            if not fits.all():
                active, sizes = active[fits], sizes[:, fits]
                if not len(active):
                    return
            bins.meter.spend(len(active))
            shares = sizes * scale[:, None]
            shape = np.maximum(free, 0.0) * scale
            length = np.sqrt(np.einsum("ij,ij->j", shares, shares)) * max(float(np.sqrt(shape @ shape)), 1e-12)
            score = self._worth[active] * (0.25 + (shape @ shares) / np.maximum(length, 1e-12))
            at = int(score.argmax())
            pick = int(active[at])
            lot = self.lots[pick]
            room = min(bins.room_at(index, lot), int(bins.left[lot.index]))
            placed = bins.put(index, lot, max(room // 2, 1)) if room > 0 else 0
            if not room or (placed and lot.host.alone):  # what its rules refuse here, they refuse to its like
                keep = self._host[active] != self._host[pick]
                active, sizes = active[keep], sizes[:, keep]
            elif not placed or not bins.left[lot.index]:
                keep = np.ones(len(active), dtype=np.bool_)
                keep[at] = False
                active, sizes = active[keep], sizes[:, keep]
