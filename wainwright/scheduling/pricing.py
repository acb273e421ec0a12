"""How far a plan's price is from the least possible: the demands of its pods, as `bounds` takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wainwright.api.names import RESERVED
from wainwright.scheduling.allocation import Allocation, Batch
from wainwright.scheduling.bounds import Demand, lower_bound
from wainwright.scheduling.groups import Group
from wainwright.scheduling.lots import NO_RULES, Lot
from wainwright.scheduling.menu import Menu
from wainwright.scheduling.packing import Packer
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.rules import RuleKind
from wainwright.scheduling.universe import Bools, Ints


def bound_of(problem: Problem, allocation: Allocation, packer: Packer, batches: Sequence[Batch], rounds: int) -> float:
    """No plan that places the pods that this one places can cost less, US dollars an hour.

    0 where there is nothing to say: no new nodes, or reserved capacity (nearly free, but only so much of it).
    """
    universe = problem.universe
    price = packer.total()
    if not rounds or price <= 0 or any(offering.capacity_type == RESERVED for offering in universe.offerings):
        return 0.0
    left = {batch.group.index: len(batch.pods) for batch in batches}
    hosts = _host_set(problem.groups, left)
    lots: list[Lot] = []
    counts: list[int] = []
    weights: list[float] = []
    nodes: list[Bools] = []
    single = _populations_of_one_group(problem)
    for group in problem.groups:
        count = len(group.members) - left.get(group.index, 0)
        if not count:
            continue
        options, node_mask = allocation.reach(group)
        if not options.any():
            continue  # it is on running nodes, and could be nowhere else
        for mask, forced in _forced(problem, allocation, group, options, count, single):
            number, known = problem.interned(mask)
            lots.append(Lot(len(lots), allocation.sizes(group), known, number, NO_RULES))
            counts.append(forced)
            weights.append(hosts.get(group.index, 0.0))
            nodes.append(node_mask)
    if not lots:
        return 0.0
    menu = Menu(universe, lots, np.ones(universe.size, dtype=np.bool_), [])
    demands = [
        Demand(count, lot.sizes, menu.row_of[lot.mask_id], weight)
        for lot, count, weight in zip(lots, counts, weights, strict=True)
    ]
    spare = _spare(problem, nodes)
    return lower_bound(demands, menu.allowed, menu.room, menu.price, spare, price, rounds)


def _host_set(groups: Sequence[Group], left: dict[int, int]) -> dict[int, float]:
    """The set of pods that forces most nodes: by group, what share of a node each of its pods takes up."""
    sets: dict[tuple[str, int], dict[int, float]] = {}
    for group in groups:
        for rule in group.shape.rules:
            if not rule.by_host or rule.is_soft or rule.population not in group.shape.populations:
                continue
            if rule.kind is RuleKind.ANTI_AFFINITY:
                sets.setdefault(("apart", rule.population), {})[group.index] = 1.0
            elif rule.kind is RuleKind.SPREAD:
                sets.setdefault(("spread", rule.population), {})[group.index] = 1.0 / rule.max_skew
    sizes = {group.index: len(group.members) - left.get(group.index, 0) for group in groups}
    totals = [(sum(sizes[i] * w for i, w in members.items()), key) for key, members in sets.items()]
    return sets[max(totals)[1]] if totals else {}


def _populations_of_one_group(problem: Problem) -> frozenset[int]:
    seen: dict[int, int] = {}
    for group in problem.groups:
        for population in group.shape.populations:
            seen[population] = seen.get(population, 0) + 1
    return frozenset(p for p, count in seen.items() if count == 1 and p not in problem.node_members)


def _forced(
    problem: Problem,
    allocation: Allocation,
    group: Group,
    options: Bools,
    count: int,
    single: frozenset[int],
) -> list[tuple[Bools, int]]:
    """The pods by the options they may use, where a spread forces a share of them into each domain.

    With n pods over d domains and skew m, no domain has fewer than (n - (d - 1) m) / d.
    """
    rules = [
        rule
        for rule in group.shape.rules
        if rule.kind is RuleKind.SPREAD and not rule.by_host and not rule.is_soft and rule.population in single
    ]
    if len(rules) == 1 and rules[0].population in group.shape.populations:
        domains = allocation.domains_of(rules[0], group)
        table = problem.domains(rules[0].key)
        masks = [options & (table.options == code) for code in domains]
        least = -(-(count - (len(domains) - 1) * rules[0].max_skew) // len(domains)) if domains else 0
        if least > 0 and len(domains) >= rules[0].min_domains and all(mask.any() for mask in masks):
            rest = count - least * len(domains)
            return [*((mask, least) for mask in masks), *([(options, rest)] if rest else [])]
    return [(options, count)]


def _spare(problem: Problem, masks: Sequence[Bools]) -> list[tuple[Ints, Bools]]:
    """Free room of running nodes as it was before, by which demands may use it."""
    if not problem.existing.size:
        return []
    hosts = problem.make_hosts()
    free = np.maximum(hosts.free[:, : hosts.size], 0)
    kinds, numbers = np.unique(np.array(masks), axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    return [
        (free[:, numbers == kind].sum(axis=1), kinds[:, kind]) for kind in range(kinds.shape[1]) if kinds[:, kind].any()
    ]
