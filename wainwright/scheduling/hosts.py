"""Nodes as columns: free room, and the counts that rules within one node look at. Existing nodes and new ones alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wainwright.scheduling.lots import HostRules, Lot, Share
from wainwright.scheduling.universe import ENORMOUS, Ints

Counts = npt.NDArray[np.int32]
UNBOUNDED = 1 << 30
PLENTY = 1 << 40


class Hosts:
    """size rows, growing. free: one row per resource. members[p]: pods of population p on each host.

    spread[p], most[p]: pods that count for hostname spread over p, and the least maxSkew among them. apart[p]: pods
    that must not meet a member of p. held[t]: 1 where exclusive token t is taken.
    """

    def __init__(self, resources: int, room: int = 64) -> None:
        self.size = 0
        self.free: Ints = np.zeros((resources, room), dtype=np.int64)
        self.members: dict[int, Counts] = {}
        self.spread: dict[int, Counts] = {}
        self.most: dict[int, Counts] = {}
        self.apart: dict[int, Counts] = {}
        self.held: dict[int, Counts] = {}

    def _column(self, table: dict[int, Counts], key: int, fill: int = 0) -> Counts:
        column = table.get(key)
        if column is None:
            column = np.full(self.free.shape[1], fill, dtype=np.int32)
            table[key] = column
        return column

    def grow(self, count: int) -> int:
        """Make `count` more rows; the index of the first."""
        first = self.size
        room = self.free.shape[1]
        if first + count > room:
            more = max(room, count)
            self.free = np.concatenate([self.free, np.zeros((self.free.shape[0], more), dtype=np.int64)], axis=1)
            for table in (self.members, self.spread, self.apart, self.held):
                for key, column in table.items():
                    table[key] = np.concatenate([column, np.zeros(more, dtype=np.int32)])
            for key, column in self.most.items():
                self.most[key] = np.concatenate([column, np.full(more, UNBOUNDED, dtype=np.int32)])
        self.size = first + count
        return first

    def seed(self, table: dict[int, Counts], key: int, values: Sequence[int] | Counts) -> None:
        """Set what was there before the solve (running pods)."""
        self._column(table, key)[: self.size] = values

    def room_for(self, sizes: Sequence[int], first: int = 0) -> Ints:
        """How many pods of these sizes each host from `first` on has room for, by resources alone."""
        counts: Ints | None = None
        for row, size in enumerate(sizes):
            if not size:
                continue
            fits = np.maximum(self.free[row, first : self.size], 0) // size
            counts = fits if counts is None else np.minimum(counts, fits, out=counts)
        return np.full(self.size - first, PLENTY, dtype=np.int64) if counts is None else counts

    def limit(self, counts: Ints, rules: HostRules, first: int = 0) -> None:
        """Lower counts (of the hosts from `first` on) to what the rules allow."""
        span = slice(first, self.size)
        for population, most in rules.at_most:
            here = self.spread.get(population)
            if here is None:
                np.minimum(counts, most, out=counts)
            else:
                np.minimum(counts, np.minimum(most, self.most[population][span]) - here[span], out=counts)
        for population, most in rules.spread_beside:
            here = self.members.get(population)
            if here is not None:
                counts[here[span] > most] = 0
        for population in (*rules.apart, *rules.apart_soft):
            here = self.members.get(population)
            if here is not None:
                counts[here[span] > 0] = 0
        for population in rules.member_of:
            here = self.apart.get(population)
            if here is not None:
                counts[here[span] > 0] = 0
        for token in rules.exclusive:
            here = self.held.get(token)
            if here is not None:
                counts[here[span] > 0] = 0
        if rules.alone or rules.exclusive:
            np.minimum(counts, 1, out=counts)
        for population in rules.beside:
            here = self.members.get(population)
            if here is None:
                counts[:] = 0
            else:
                counts[here[span] <= 0] = 0
        np.maximum(counts, 0, out=counts)

    def limit_at(self, host: int, count: int, rules: HostRules) -> int:
        """`limit` for one host."""
        for population, most in rules.at_most:
            here = self.spread.get(population)
            if here is None:
                count = min(count, most)
            else:
                count = min(count, min(most, int(self.most[population][host])) - int(here[host]))
        for population, most in rules.spread_beside:
            here = self.members.get(population)
            if here is not None and here[host] > most:
                return 0
        for population in (*rules.apart, *rules.apart_soft):
            here = self.members.get(population)
            if here is not None and here[host] > 0:
                return 0
        for population in rules.member_of:
            here = self.apart.get(population)
            if here is not None and here[host] > 0:
                return 0
        for token in rules.exclusive:
            here = self.held.get(token)
            if here is not None and here[host] > 0:
                return 0
        for population in rules.beside:
            here = self.members.get(population)
            if here is None or here[host] <= 0:
                return 0
        return max(min(count, 1) if rules.alone or rules.exclusive else count, 0)

    def put(self, host: int, lot: Lot | Share, count: int) -> None:
        """Charge `count` pods of a lot to a host (a negative count takes them off; `most` is then reset by `clear`)."""
        for row, size in enumerate(lot.sizes):
            if size:
                self.free[row, host] -= min(size * count, ENORMOUS)
        rules = lot.host
        for population, most in rules.at_most:
            self._column(self.spread, population)[host] += count
            column = self._column(self.most, population, UNBOUNDED)
            column[host] = min(int(column[host]), most)
        for population in rules.member_of:
            self._column(self.members, population)[host] += count
        for population in rules.apart:
            self._column(self.apart, population)[host] += count
        for token in rules.exclusive:
            self._column(self.held, token)[host] += count

    def most_at(self, host: int, rules: HostRules) -> tuple[tuple[int, int], ...]:
        """What `put` would lower on this host: (population, least maxSkew now)."""
        return tuple(
            (population, int(self.most[population][host]) if population in self.most else UNBOUNDED)
            for population, _ in rules.at_most
        )

    def restore_most(self, host: int, values: tuple[tuple[int, int], ...]) -> None:
        """Put back what `most_at` told."""
        for population, most in values:
            self.most[population][host] = most

    def clear(self, host: int) -> None:
        """Forget all counts of a host that was made in this solve."""
        for table in (self.members, self.spread, self.apart, self.held):
            for column in table.values():
                column[host] = 0
        for column in self.most.values():
            column[host] = UNBOUNDED

    def hold(self, token: int, host: int) -> None:
        """Mark an exclusive token as taken by what runs there."""
        self._column(self.held, token)[host] = 1
