"""Pods onto nodes: first those that exist, then new ones, always the cheapest a pod.

A bin is a node to be made: the option it is sized by, what is on it, and the options that would still serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wainwright.api.names import RESERVED
from wainwright.api.pods import Pod
from wainwright.scheduling.existing import ExistingNodes
from wainwright.scheduling.groups import Group
from wainwright.scheduling.plan import SolveBudget
from wainwright.scheduling.universe import Bools, Ints, Universe

MANY = np.int64(1 << 40)


class BudgetSpent(Exception):
    """The solve has done as much as it may."""


class Meter:
    """Counts the work of a solve: candidates looked at. Raises BudgetSpent beyond the budget."""

    def __init__(self, budget: SolveBudget) -> None:
        self.work = 0
        self.stopped = False
        self._limit = budget.work_units
        self._stop = budget.stop

    def spend(self, units: int) -> None:
        self.work += units
        if self.work > self._limit or (self._stop is not None and self._stop()):
            self.stopped = True
            raise BudgetSpent


@dataclass(slots=True, eq=False)
class Bin:
    option: int
    mask: Bools
    used: dict[str, int]
    pods: list[Pod]


class Packing:
    """The state of one solve while pods are placed."""

    def __init__(
        self, universe: Universe, existing: ExistingNodes, meter: Meter, *, strict_min_values: bool = True
    ) -> None:
        self.strict = strict_min_values
        self.universe = universe
        self.existing = existing
        self.meter = meter
        self.bins: list[Bin] = []
        self.on_nodes: list[tuple[int, Pod]] = []
        self.limits: list[dict[str, int]] = [dict(terms.limits) for terms in universe.pools]
        self.capacity = _limit_columns(universe)
        self.reservations = _reservations(universe)

    def place(self, groups: Sequence[Group]) -> None:
        """Every group as far as it goes; members not placed have no room anywhere."""
        for group in groups:
            self._onto_nodes(group)
        for group in groups:
            if group.waiting:
                self._into_bins(group)
            while group.waiting and self._open_bins(group):
                pass

    def _onto_nodes(self, group: Group) -> None:
        allowed = np.flatnonzero(group.node_mask & self.existing.accepts)
        self.meter.spend(len(allowed) + 1)
        if not len(allowed):
            return
        counts = how_many({name: self.existing.free[name][allowed] for name in group.sizes}, group.sizes)
        for index, room in zip(allowed.tolist(), counts.tolist(), strict=True):
            count = min(room, group.waiting)
            if count <= 0:
                continue
            self.on_nodes.extend((index, pod) for pod in group.take(count))
            for name, size in group.sizes.items():
                self.existing.free[name][index] -= size * count
            if not group.waiting:
                return

    def _into_bins(self, group: Group) -> None:
        self.meter.spend(len(self.bins) + 1)
        for each in self.bins:
            if not group.mask[each.option]:
                continue
            count = group.waiting
            for name, size in group.sizes.items():
                if size:
                    free = int(self.universe.allocatable[name][each.option]) - each.used.get(name, 0)
                    count = min(count, free // size)
            if count > 0 and self._serves(each, group, count):
                each.mask = each.mask & group.mask
                each.pods.extend(group.take(count))
                for name, size in group.sizes.items():
                    each.used[name] = each.used.get(name, 0) + size * count
                if not group.waiting:
                    return

    def _serves(self, each: Bin, group: Group, count: int) -> bool:
        """Would enough options be left for the NodePool's minValues?"""
        terms = self.universe.pools[self.universe.pool_of[each.option]]
        if not terms.min_values or not self.strict:
            return True
        used = dict(each.used)
        for name, size in group.sizes.items():
            used[name] = used.get(name, 0) + size * count
        return self.meets_min_values(self.fitting(each.mask & group.mask, used), each.option)

    def fitting(self, mask: Bools, used: dict[str, int]) -> Bools:
        """The options of a mask that hold this much."""
        fits = mask.copy()
        for name, amount in used.items():
            fits &= self.universe.allocatable[name] >= amount
        return fits

    def meets_min_values(self, mask: Bools, option: int) -> bool:
        terms = self.universe.pools[self.universe.pool_of[option]]
        for key, least in terms.min_values.items():
            codes = self.universe.column(key).codes[mask]
            if len(np.unique(codes[codes >= 0])) < least:
                return False
        return True

    def _open_bins(self, group: Group) -> bool:
        """One or more new bins for this group, in the first tier of NodePools that has any; False when none can."""
        universe = self.universe
        allowed = np.flatnonzero(group.mask & self._within_limits())
        self.meter.spend(universe.size + 1)
        weights = np.array([terms.weight for terms in universe.pools], dtype=np.int64)
        while len(allowed):
            tiers = weights[universe.pool_of[allowed]]
            rows = allowed[tiers == tiers.max()]
            capacity = how_many({n: universe.allocatable[n][rows] for n in group.sizes}, group.sizes)
            capacity = np.minimum(capacity, group.waiting)
            cost = np.where(capacity > 0, universe.price[rows] / np.maximum(capacity, 1), np.inf)
            for at in np.lexsort((rows, -capacity, cost)).tolist():
                if not np.isfinite(cost[at]):
                    break
                if self._open(group, int(rows[at]), int(capacity[at])):
                    return True
            allowed = allowed[tiers != tiers.max()]
        return False

    def _open(self, group: Group, option: int, capacity: int) -> bool:
        universe = self.universe
        mask = group.mask & (universe.variant_of == universe.variant_of[option])
        pool = int(universe.pool_of[option])
        if universe.pools[pool].min_values and self.strict:
            while capacity and not self.meets_min_values(
                self.fitting(mask, {n: s * capacity for n, s in group.sizes.items()}), option
            ):
                capacity -= 1
            if not capacity:
                return False
        bins = max(group.waiting // capacity, 1)
        for name, left in self.limits[pool].items():
            charge = 1 if name == "nodes" else int(self.capacity[name][option])
            if charge:
                bins = min(bins, left // charge)
        reservation = universe.offerings[option].reservation_id
        if universe.offerings[option].capacity_type == RESERVED:
            bins = min(bins, self.reservations.get(reservation, 0))
            self.reservations[reservation] = self.reservations.get(reservation, 0) - bins
        for _ in range(bins):
            self.bins.append(
                Bin(
                    option=option,
                    mask=mask,
                    used={name: size * capacity for name, size in group.sizes.items()},
                    pods=group.take(capacity),
                )
            )
        for name in self.limits[pool]:
            self.limits[pool][name] -= bins * (1 if name == "nodes" else int(self.capacity[name][option]))
        return bins > 0

    def _within_limits(self) -> Bools:
        """The options that one more claim may be charged for."""
        allowed = np.ones(self.universe.size, dtype=np.bool_)
        for terms, left in zip(self.universe.pools, self.limits, strict=True):
            rows = slice(terms.first, terms.last)
            for name, amount in left.items():
                charge = 1 if name == "nodes" else self.capacity[name][rows]
                allowed[rows] &= charge <= amount
        for row in np.flatnonzero(self.universe.is_reserved).tolist():
            if self.reservations.get(self.universe.offerings[row].reservation_id, 0) <= 0:
                allowed[row] = False
        return allowed


def how_many(room: dict[str, Ints], sizes: dict[str, int]) -> Ints:
    """How many pods of these sizes each row has room for; never negative."""
    counts: Ints | None = None
    for name, size in sizes.items():
        if not size:
            continue
        fits = np.maximum(room[name], 0) // size
        counts = fits if counts is None else np.minimum(counts, fits)
    if counts is None:
        first = next(iter(room.values()))
        return np.full(len(first), MANY, dtype=np.int64)
    return counts


def _limit_columns(universe: Universe) -> dict[str, Ints]:
    names = sorted({name for terms in universe.pools for name in terms.limits if name != "nodes"})
    return {name: np.array([kind.capacity.get(name, 0) for kind in universe.kinds], dtype=np.int64) for name in names}


def _reservations(universe: Universe) -> dict[str, int]:
    """Instances left in each reservation."""
    return {
        offering.reservation_id: offering.reservation_capacity
        for offering in universe.offerings
        if offering.capacity_type == RESERVED
    }
