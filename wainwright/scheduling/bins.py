"""Nodes to be made: which option each is sized by, what is on it, and what that takes from limits and reservations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wainwright.api.names import RESERVED
from wainwright.api.pods import Pod
from wainwright.scheduling.hosts import Hosts
from wainwright.scheduling.lots import NO_RULES, Lot
from wainwright.scheduling.meter import Meter
from wainwright.scheduling.universe import Bools, Ints, Universe


class Bins:
    """The new nodes of one solve. bins[i]: pods per lot; option[i]: the row it is sized by; left[n]: pods of lot n
    that are on none. Changes between `begin` and `commit` can be rolled back.
    """

    def __init__(self, universe: Universe, meter: Meter, *, strict_min_values: bool) -> None:
        self.universe = universe
        self.meter = meter
        self.strict = strict_min_values
        self.resources = len(universe.resources)
        self.capacity = np.stack([universe.allocatable[name] for name in universe.resources])
        self.hosts = Hosts(self.resources)
        self.option: Ints = np.zeros(64, dtype=np.int64)
        self.bins: list[dict[int, int]] = []
        self.lots: list[Lot] = []
        self.left: Ints = np.zeros(0, dtype=np.int64)
        self.serial: Ints = np.zeros(64, dtype=np.int64)
        """Of each bin: a number that no other contents ever had; changes whenever the bin does."""
        self.open_bins = 0
        self._price = 0.0
        self._next_serial = 0
        self._undo: list[tuple[Any, ...]] | None = None
        self.limits: list[dict[str, int]] = [dict(terms.limits) for terms in universe.pools]
        self.charges = _charge_columns(universe)
        self.reservations = {
            offering.reservation_id: offering.reservation_capacity
            for offering in universe.offerings
            if offering.capacity_type == RESERVED
        }
        self.limited = any(self.limits) or bool(self.reservations)
        self._weights: Ints = np.array([terms.weight for terms in universe.pools], dtype=np.int64)
        self._picky = np.array([bool(terms.min_values) and strict_min_values for terms in universe.pools] or [False])
        self.elsewhere: set[int] = set()
        """Populations of which a pod is on a node that exists."""
        self._and_masks: dict[frozenset[int], Bools] = {}

    def pods_of(self, index: int) -> list[Pod]:
        """The pods of a bin. Lots hand theirs out in the order of bins, so each pod is in one bin only."""
        return self._assigned[index]

    def assign(self) -> None:
        """Hand out each lot's pods to the bins, oldest first, in the order of bins."""
        given = [0] * len(self.lots)
        stock = [lot.pods for lot in self.lots]
        self._assigned: list[list[Pod]] = []
        for contents in self.bins:
            pods: list[Pod] = []
            for number in sorted(contents):
                count = contents[number]
                pods.extend(stock[number][given[number] : given[number] + count])
                given[number] += count
            self._assigned.append(pods)

    def room_in_bins(self, lot: Lot) -> Ints:
        """How many pods of the lot each open bin takes as it is."""
        self.meter.spend(len(self.bins))
        room = self.hosts.room_for(lot.sizes)
        room[~lot.mask[self.option[: len(self.bins)]]] = 0
        self.hosts.limit(room, lot.host)
        return room

    def cheapest(self, index: int, lot: Lot | None = None, count: int = 0) -> int:
        """The cheapest option for a bin with `count` pods of a lot more; -1 when there is none."""
        mask = self.mask_of(index, lot) & self.swappable(index)
        used = self.used(index)
        for row in range(self.resources):
            need = int(used[row]) + (lot.sizes[row] * count if lot is not None else 0)
            if need:
                mask &= self.capacity[row] >= need
        rows = np.flatnonzero(mask)
        self.meter.spend(len(mask) // 8 + 1)
        if not len(rows):
            return -1
        if self._picky[self.universe.pool_of[self.option[index]]] and not self.keeps_min_values(mask):
            return -1
        return int(rows[np.lexsort((rows, self.universe.price[rows]))[0]])

    def common_option(self, indices: Sequence[int]) -> int:
        """The cheapest option that holds the pods of all these bins together; -1 when there is none."""
        universe = self.universe
        mask = self.mask_of(indices[0]) & (universe.variant_of == universe.variant_of[self.option[indices[0]]])
        used = self.used(indices[0])
        for index in indices[1:]:
            mask &= self.mask_of(index)
            used = used + self.used(index)
        mask &= ~universe.is_reserved
        for row in range(self.resources):
            if used[row]:
                mask &= self.capacity[row] >= used[row]
        self.meter.spend(len(mask) // 8 + 1)
        rows = np.flatnonzero(mask)
        return int(rows[np.lexsort((rows, universe.price[rows]))[0]]) if len(rows) else -1

    def cheaper(self, index: int) -> int:
        """The cheapest option that holds what is on a bin, if it costs less than the present one; else -1."""
        option = int(self.option[index])
        rows = slice(self.universe.pools[self.universe.pool_of[option]].first, option)
        if rows.start == option:
            return -1
        used = self.used(index)
        fits: Bools = self.mask_of(index)[rows]
        for row in range(self.resources):
            if used[row]:
                fits &= self.capacity[row, rows] >= used[row]
        fits &= self.universe.price[rows] < self.universe.price[option]
        if not fits.any():
            return -1
        fits &= self.swappable(index)[rows]
        if not fits.any():
            return -1
        return self.cheapest(index) if self._picky[self.universe.pool_of[option]] else rows.start + int(fits.argmax())

    def swappable(self, index: int) -> Bools:
        """The options a bin may be resized to without breaking a limit: of its NodePool and variant only."""
        universe, option = self.universe, int(self.option[index])
        mask: Bools = universe.variant_of == universe.variant_of[option]
        if self.limited:
            pool = int(universe.pool_of[option])
            for name, left in self.limits[pool].items():
                if name != "nodes":
                    mask &= self.charges[name] <= left + int(self.charges[name][option])
            mask &= ~universe.is_reserved
            mask[option] = True
        return mask

    def put(self, index: int, lot: Lot, count: int) -> int:
        """Put up to `count` pods on a bin that has room; fewer where minValues would be lost. Returns how many."""
        if count and self._picky[self.universe.pool_of[self.option[index]]]:
            while count and not self._keeps_choice(index, lot, count):
                count -= 1
        if count <= 0:
            return 0
        if self._undo is not None:
            self._undo.append(("put", index, lot, count, self.hosts.most_at(index, lot.host), int(self.serial[index])))
        self.hosts.put(index, lot, count)
        self._touch(index)
        contents = self.bins[index]
        contents[lot.index] = contents.get(lot.index, 0) + count
        self.left[lot.index] -= count
        return count

    def take_off(self, lot: Lot, count: int) -> None:
        """Take `count` pods of a lot off bins, from the bins opened last; a bin left empty is dissolved."""
        for index in range(len(self.bins) - 1, -1, -1):
            here = min(self.bins[index].get(lot.index, 0), count)
            if not here:
                continue
            self.hosts.put(index, lot, -here)
            self._touch(index)
            self.bins[index][lot.index] -= here
            if not self.bins[index][lot.index]:
                del self.bins[index][lot.index]
            if not self.bins[index]:
                self.dissolve(index)
            count -= here
            if not count:
                return

    def new_bin(self, option: int) -> int:
        """Open an empty bin; its NodePool's limits are charged with the option."""
        index = self.hosts.grow(1)
        if index >= len(self.option):
            self.option = np.concatenate([self.option, np.zeros(len(self.option), dtype=np.int64)])
        self.option[index] = option
        self.hosts.free[:, index] = self.capacity[:, option]
        self.bins.append({})
        self.open_bins += 1
        self._price += float(self.universe.price[option])
        self.charge(option, 1)
        if self._undo is not None:
            self._undo.append(("new", index))
        self._touch(index)
        return index

    def total(self) -> float:
        """US dollars an hour of all bins at the options they are sized by."""
        return self._price

    def _touch(self, index: int) -> None:
        if index >= len(self.serial):
            self.serial = np.concatenate([self.serial, np.zeros(len(self.serial), dtype=np.int64)])
        self._next_serial += 1
        self.serial[index] = self._next_serial

    def drop_last(self) -> None:
        """Take back the bin opened last; it must be empty."""
        option = int(self.option[len(self.bins) - 1])
        self.bins.pop()
        self.hosts.size -= 1
        self.hosts.clear(self.hosts.size)
        self.open_bins -= 1
        self._price -= float(self.universe.price[option])
        self.charge(option, -1)
        if self._undo is not None:
            self._undo.append(("dropped", option))

    def dissolve(self, index: int) -> None:
        """Take all pods off a bin and close it; they count as left."""
        contents = self.bins[index]
        option = int(self.option[index])
        if self._undo is not None:
            self._undo.append(("dissolved", index, contents, option, int(self.serial[index])))
        for number, count in contents.items():
            self.hosts.put(index, self.lots[number], -count)
            self.left[number] += count
        self.hosts.clear(index)
        self.hosts.free[:, index] = -1
        self.bins[index] = {}
        self.open_bins -= 1
        self._price -= float(self.universe.price[option])
        self.charge(option, -1)

    def begin(self) -> None:
        """Remember every change from now on."""
        self._undo = []

    def commit(self) -> None:
        """Keep the changes since `begin`."""
        self._undo = None

    def rollback(self) -> None:
        """Undo the changes since `begin`, last first."""
        log, self._undo = self._undo or [], None
        for entry in reversed(log):
            match entry[0]:
                case "put":
                    _, index, lot, count, most, serial = entry
                    self.hosts.put(index, lot, -count)
                    self.hosts.restore_most(index, most)
                    contents = self.bins[index]
                    contents[lot.index] -= count
                    if not contents[lot.index]:
                        del contents[lot.index]
                    self.left[lot.index] += count
                    self.serial[index] = serial
                case "new":
                    self.drop_last()
                case "dropped":
                    self.new_bin(entry[1])
                case "resized":
                    self.resize(entry[1], entry[2])
                case _:
                    _, index, contents, option, serial = entry
                    self.option[index] = option
                    self.hosts.free[:, index] = self.capacity[:, option]
                    self.bins[index] = contents
                    for number, count in contents.items():
                        self.hosts.put(index, self.lots[number], count)
                        self.left[number] -= count
                    self.open_bins += 1
                    self._price += float(self.universe.price[option])
                    self.charge(option, 1)
                    self.serial[index] = serial

    def compact(self) -> list[int]:
        """Indices of the bins that are not dissolved, in order."""
        return [index for index, contents in enumerate(self.bins) if contents]

    def resize(self, index: int, option: int) -> None:
        """Change the option a bin is sized by."""
        old = int(self.option[index])
        if old == option:
            return
        self.hosts.free[:, index] += self.capacity[:, option] - self.capacity[:, old]
        self.option[index] = option
        if self._undo is not None:
            self._undo.append(("resized", index, old))
        self._price += float(self.universe.price[option]) - float(self.universe.price[old])
        self._touch(index)
        self.charge(old, -1)
        self.charge(option, 1)

    def charge(self, option: int, count: int) -> None:
        """Count `count` nodes of an option against its NodePool's limits and its reservation."""
        if not self.limited:
            return
        pool = int(self.universe.pool_of[option])
        left = self.limits[pool]
        for name in left:
            left[name] -= count * (1 if name == "nodes" else int(self.charges[name][option]))
        offering = self.universe.offerings[option]
        if offering.capacity_type == RESERVED:
            self.reservations[offering.reservation_id] -= count

    def room_at(self, index: int, lot: Lot) -> int:
        """How many pods of the lot one bin takes as it is."""
        count = 1 << 40
        for row, size in enumerate(lot.sizes):
            if size:
                count = min(count, int(self.hosts.free[row, index]) // size)
        if count <= 0 or lot.host is NO_RULES:
            return max(count, 0)
        return self.hosts.limit_at(index, count, lot.host)

    def has_members(self, population: int) -> bool:
        """Is any pod of this population on a bin, or was any on a node that exists?"""
        column = self.hosts.members.get(population)
        return population in self.elsewhere or (column is not None and bool(column[: len(self.bins)].any()))

    def used(self, index: int) -> Ints:
        """What the pods of a bin take, per resource."""
        return self.capacity[:, self.option[index]] - self.hosts.free[:, index]

    def mask_key(self, index: int) -> frozenset[int]:
        """Numbers of the sets of options that the pods of a bin allow."""
        return frozenset(self.lots[number].mask_id for number in self.bins[index])

    def mask_of(self, index: int, lot: Lot | None = None) -> Bools:
        """The options that every lot on a bin (and one more) allows; a fresh array."""
        numbers = {self.lots[number].mask_id for number in self.bins[index]}
        if lot is not None:
            numbers.add(lot.mask_id)
        key = frozenset(numbers)
        known = self._and_masks.get(key)
        if known is None:
            known = np.ones(self.universe.size, dtype=np.bool_)
            done: set[int] = set()
            for each in (*(self.lots[number] for number in self.bins[index]), *((lot,) if lot is not None else ())):
                if each.mask_id not in done:
                    done.add(each.mask_id)
                    known &= each.mask
            self._and_masks[key] = known
        return known.copy()

    def within_limits(self) -> Bools:
        """The options that one more node may be charged for."""
        allowed = np.ones(self.universe.size, dtype=np.bool_)
        if not self.limited:
            return allowed
        for terms, left in zip(self.universe.pools, self.limits, strict=True):
            rows = slice(terms.first, terms.last)
            for name, amount in left.items():
                charge = 1 if name == "nodes" else self.charges[name][rows]
                allowed[rows] &= charge <= amount
        for row in np.flatnonzero(self.universe.is_reserved).tolist():
            if self.reservations[self.universe.offerings[row].reservation_id] <= 0:
                allowed[row] = False
        return allowed

    def affordable(self, option: int) -> int:
        """How many more nodes of an option the limits and its reservation allow."""
        most = 1 << 40
        if not self.limited:
            return most
        for name, left in self.limits[int(self.universe.pool_of[option])].items():
            charge = 1 if name == "nodes" else int(self.charges[name][option])
            if charge:
                most = min(most, left // charge)
        offering = self.universe.offerings[option]
        if offering.capacity_type == RESERVED:
            most = min(most, self.reservations[offering.reservation_id])
        return max(most, 0)

    def keeps_min_values(self, mask: Bools) -> bool:
        """Do these options (of one NodePool) keep as many values open as its minValues ask?"""
        rows = np.flatnonzero(mask)
        if not len(rows):
            return False
        terms = self.universe.pools[self.universe.pool_of[rows[0]]]
        for key, least in terms.min_values.items():
            codes = self.universe.column(key).codes[rows]
            if len(np.unique(codes[codes >= 0])) < least:
                return False
        return True

    def _keeps_choice(self, index: int, lot: Lot, count: int) -> bool:
        option = int(self.option[index])
        mask = self.mask_of(index, lot) & self.swappable(index)
        if self.universe.is_reserved[option]:  # a claim for reserved capacity keeps nothing else
            mask[:] = False
            mask[option] = True
        used = self.used(index)
        for row in range(self.resources):
            need = int(used[row]) + lot.sizes[row] * count
            if need:
                mask &= self.capacity[row] >= need
        return self.keeps_min_values(mask)


def _charge_columns(universe: Universe) -> dict[str, Ints]:
    names = sorted({name for terms in universe.pools for name in terms.limits if name != "nodes"})
    return {name: np.array([kind.capacity.get(name, 0) for kind in universe.kinds], dtype=np.int64) for name in names}
