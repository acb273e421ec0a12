"""Which domains pods go to: zones and every other topology key but the host.

Each group's pods are dealt out over *cells* (combinations of the domains that rules look at), one rule-abiding step at
a time, existing room first, then the cheapest. What a cell's existing nodes hold is placed at once; the rest becomes a
lot bound to that cell, which the packer then puts on new nodes. The order in which groups are dealt out is the order
in which their rules hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wainwright.api.names import RESERVED
from wainwright.api.pods import Pod
from wainwright.scheduling.groups import Group
from wainwright.scheduling.hosts import Hosts
from wainwright.scheduling.lots import HostRules, Share, host_rules
from wainwright.scheduling.meter import Meter
from wainwright.scheduling.plan import ReasonCode
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.rules import Rule, RuleKind
from wainwright.scheduling.shapes import Term
from wainwright.scheduling.universe import Bools, Ints


@dataclass(slots=True, eq=False)
class Tally:
    """Pods of a population per domain of a key, as one kind of rule sees them.

    eligible: the domains that count (spread). options_in: the options whose nodes count. claimants: pods that demand
    affinity to this population and could go to a domain; they decide where its first member goes.
    """

    population: int
    key: str
    counts: Ints
    eligible: Bools
    options_in: Bools
    nodes_in: Bools
    domains: np.ndarray[tuple[int], np.dtype[np.int32]]
    node_domains: np.ndarray[tuple[int], np.dtype[np.int32]]
    pins: bool
    filters: bool
    """Does it leave some options or nodes out?"""
    claimants: Ints | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A group with some of its preferences dropped (`relaxed` names them); the others are tried as demands."""

    rules: tuple[Rule, ...]
    terms: tuple[tuple[Term, ...], ...]
    soft_taints: bool
    relaxed: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Batch:
    """Pods of a group still to be dealt out, at one level of relaxation. closed: cells found to have no room."""

    group: Group
    pods: list[Pod]
    level: int = 0
    closed: dict[int, set[int]] = field(default_factory=dict)
    blocked: ReasonCode | None = None
    blocked_by: str = ""
    waits_for_reserved: bool = False


class Allocation:
    """Deals out groups. shares: what needs new nodes. on_nodes: existing node, share, pods of it that go there."""

    def __init__(self, problem: Problem, meter: Meter, *, balanced: bool = False) -> None:
        self.problem = problem
        self.balanced = balanced
        self.meter = meter
        self.hosts: Hosts = problem.make_hosts()
        self.shares: list[Share] = []
        self.on_nodes: list[tuple[int, Share, list[Pod]]] = []
        self.failed: list[Batch] = []
        self.variants: dict[int, list[Variant]] = {}
        self._tallies: dict[tuple[int, str, object], Tally] = {}
        self._of_population: dict[int, list[Tally]] = {}
        self._owners: dict[tuple[int, str], Ints] = {}
        self._named_by_host = self._populations_named_by_host()
        self._known_cells: dict[object, list[tuple[tuple[int, ...], Bools, Ints]]] = {}
        self._known_masks: dict[object, tuple[Bools, Bools]] = {}
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._costs: dict[tuple[tuple[int, ...], int], float] = {}
        self._accepts = problem.existing.accepts
        self._soft_taints = any(
            taint.effect == "PreferNoSchedule"
            for taints in (
                *(terms.pool.spec.template.spec.taints for terms in problem.universe.pools),
                *problem.existing.taints,
            )
            for taint in taints
        )
        for group in problem.groups:
            self._prepare(group)
        self._count_claimants()

    # -- what the rules look at ---------------------------------------------------------------------------------

    def _populations_named_by_host(self) -> frozenset[int]:
        named = {
            rule.population
            for group in self.problem.groups
            for rule in group.shape.rules
            if rule.by_host and rule.kind is not RuleKind.SPREAD
        }
        named |= {number for (number, key) in self.problem.node_apart if Rule(RuleKind.AFFINITY, key, number).by_host}
        return frozenset(named)

    def _prepare(self, group: Group) -> None:
        for rule in group.shape.rules:
            if not rule.by_host:
                self._tally(rule, group)
        for (number, key), owners in self.problem.node_apart.items():
            if not Rule(RuleKind.ANTI_AFFINITY, key, number).by_host and (number, key) not in self._owners:
                table = self.problem.domains(key)
                counts = np.zeros(len(table.values) + 1, dtype=np.int64)
                np.add.at(counts, table.nodes, owners)
                counts[-1] = 0
                self._owners[number, key] = counts

    def _tally(self, rule: Rule, group: Group) -> Tally:
        shape = group.shape
        terms = shape.terms if rule.kind is RuleKind.SPREAD and rule.honor_affinity else None
        tolerations = shape.tolerations if rule.kind is RuleKind.SPREAD and rule.honor_taints else None
        key = (rule.population, rule.key, (rule.kind is RuleKind.SPREAD, terms, tolerations))
        known = self._tallies.get(key)
        if known is not None:
            return known
        problem = self.problem
        table = problem.domains(rule.key)
        options_in = np.ones(problem.universe.size, dtype=np.bool_)
        nodes_in = np.ones(problem.existing.size, dtype=np.bool_)
        if terms is not None:
            options_in = options_in & problem.universe.mask_of_terms(terms)
            nodes_in = nodes_in & problem.existing.mask_of_terms(terms)
        if tolerations is not None:
            by_taints = problem.label_masks(((),), tolerations, soft=False)
            options_in, nodes_in = options_in & by_taints[0], nodes_in & by_taints[1]
        size = len(table.values)
        eligible = np.zeros(size + 1, dtype=np.bool_)
        eligible[table.options[options_in]] = True
        eligible[table.nodes[nodes_in]] = True
        eligible[size] = False
        counts = np.zeros(size + 1, dtype=np.int64)
        members = problem.node_members.get(rule.population)
        if members is not None:
            np.add.at(counts, table.nodes[nodes_in], members[nodes_in])
        counts[size] = 0
        tally = Tally(
            population=rule.population,
            key=rule.key,
            counts=counts,
            eligible=eligible,
            options_in=options_in,
            nodes_in=nodes_in,
            domains=table.options,
            node_domains=table.nodes,
            pins=rule.kind is not RuleKind.SPREAD,
            filters=not (bool(options_in.all()) and bool(nodes_in.all())),
        )
        self._tallies[key] = tally
        self._of_population.setdefault(rule.population, []).append(tally)
        return tally

    def _count_claimants(self) -> None:
        for group in self.problem.groups:
            for rule in group.shape.rules:
                if rule.kind is not RuleKind.AFFINITY or rule.by_host or rule.is_soft:
                    continue
                tally = self._tally(rule, group)
                if tally.claimants is None:
                    tally.claimants = np.zeros(len(tally.counts), dtype=np.int64)
                options, nodes = self._masks(group, self._ladder(group)[-1])
                reach = np.zeros(len(tally.counts), dtype=np.bool_)
                reach[tally.domains[options]] = True
                reach[tally.node_domains[nodes]] = True
                reach[-1] = False
                tally.claimants[reach] += len(group.members)

    def _masks(self, group: Group, variant: Variant) -> tuple[Bools, Bools]:
        """Options that could hold one of these pods, and existing nodes that let them in."""
        options, nodes = self._label_masks(group, variant)
        return options & self.problem.fit_mask(self.sizes(group)), nodes

    def _label_masks(self, group: Group, variant: Variant) -> tuple[Bools, Bools]:
        problem, shape = self.problem, group.shape
        key = (shape.terms, shape.tolerations, variant.soft_taints, variant.terms, shape.volumes.places)
        known = self._known_masks.get(key)
        if known is None:
            options, nodes = problem.label_masks(shape.terms, shape.tolerations, soft=variant.soft_taints)
            for alternatives in (*variant.terms, *shape.volumes.places):
                options = options & problem.universe.mask_of_terms(alternatives)
                nodes = nodes & problem.existing.mask_of_terms(alternatives)
            known = (options, nodes & self._accepts)
            self._known_masks[key] = known
        return known

    def reach(self, group: Group) -> tuple[Bools, Bools]:
        """Options and existing nodes open to a group with all preferences dropped."""
        return self._masks(group, self._ladder(group)[-1])

    def domains_of(self, rule: Rule, group: Group) -> list[int]:
        """The domains that count for a spread rule of a group."""
        return [int(code) for code in np.flatnonzero(self._tally(rule, group).eligible)]

    def sizes(self, group: Group) -> tuple[int, ...]:
        """Amounts in the order of the universe's resources."""
        known = self._sizes.get(group.index)
        if known is None:
            known = tuple(group.sizes.get(name, 0) for name in self.problem.universe.resources)
            self._sizes[group.index] = known
        return known

    # -- preferences ---------------------------------------------------------------------------------------------

    def _ladder(self, group: Group) -> list[Variant]:
        """Variants from all preferences kept to none: each single one dropped first, then more and more, in the
        documented order: pod affinity, pod anti-affinity, node affinity, ScheduleAnyway, PreferNoSchedule.
        """
        known = self.variants.get(group.index)
        if known is not None:
            return known
        hard = tuple(rule for rule in group.shape.rules if not rule.is_soft)
        soft = [rule for rule in group.shape.rules if rule.is_soft]
        items: list[tuple[str, Rule | Term | None]] = []
        for kind, text in ((RuleKind.AFFINITY, "pod affinity"), (RuleKind.ANTI_AFFINITY, "pod anti-affinity")):
            items.extend(
                (f"preferred {text} by {rule.key} (weight {rule.weight})", rule) for rule in soft if rule.kind is kind
            )
        items.extend(
            (f"preferred node affinity {'; '.join(str(w) for w in term)} (weight {weight})", term)
            for weight, term in group.shape.preferred
        )
        items.extend(
            (f"topology spread by {rule.key} (ScheduleAnyway)", rule) for rule in soft if rule.kind is RuleKind.SPREAD
        )
        if self._soft_taints:
            items.append(("PreferNoSchedule taints", None))
        count = len(items)
        drops: list[frozenset[int]] = [frozenset()]
        drops.extend(frozenset({index}) for index in range(count))
        drops.extend(frozenset(range(upto)) for upto in range(2, count + 1))
        ladder = [
            Variant(
                rules=hard + tuple(w for i, (_, w) in enumerate(items) if isinstance(w, Rule) and i not in drop),
                terms=tuple((w,) for i, (_, w) in enumerate(items) if isinstance(w, tuple) and i not in drop),
                soft_taints=any(w is None and i not in drop for i, (_, w) in enumerate(items)),
                relaxed=tuple(
                    text for i, (text, w) in enumerate(items) if i in drop and (w is not None or count > 1 or drop)
                ),
            )
            for drop in drops
        ]
        self.variants[group.index] = ladder
        return ladder

    # -- dealing out ---------------------------------------------------------------------------------------------

    def deal(self, batches: Sequence[Batch]) -> None:
        """Deal out all batches, again and again while that gets anywhere; what is left is in `failed`."""
        waiting = self._least_choice_first(batches)
        while waiting:
            self.meter.check()
            still: list[Batch] = []
            moved = False
            for batch in waiting:
                before = len(batch.pods)
                self._deal(batch)
                moved |= len(batch.pods) < before
                if batch.pods:
                    still.append(batch)
            if not moved:
                still, moved = self._relax(still)
            if not moved:
                self.failed.extend(still)
                return
            waiting = still

    def _least_choice_first(self, batches: Sequence[Batch]) -> list[Batch]:
        """In the order of groups, but those whose rules count the same pods change places so that the ones with the
        fewest domains to choose from come first.
        """
        ordered = sorted(batches, key=lambda batch: batch.group.index)
        sets: dict[int, list[int]] = {}
        for at, batch in enumerate(ordered):
            rules = [rule for rule in batch.group.shape.rules if not rule.by_host and not rule.is_soft]
            if rules:
                sets.setdefault(rules[0].population, []).append(at)
        result = list(ordered)
        for places in sets.values():
            if len(places) > 1:
                ranked = sorted(places, key=lambda at: (self._choice(ordered[at].group), at))
                for place, source in zip(places, ranked, strict=True):
                    result[place] = ordered[source]
        return result

    def _choice(self, group: Group) -> int:
        """How many domains a group's first rule leaves it."""
        rules = [rule for rule in group.shape.rules if not rule.by_host and not rule.is_soft]
        options, nodes = self.problem.label_masks(group.shape.terms, group.shape.tolerations, soft=False)
        for alternatives in group.shape.volumes.places:
            options = options & self.problem.universe.mask_of_terms(alternatives)
            nodes = nodes & self.problem.existing.mask_of_terms(alternatives)
        table = self.problem.domains(rules[0].key)
        return len({*np.unique(table.options[options]).tolist(), *np.unique(table.nodes[nodes]).tolist()} - {-1})

    def _relax(self, batches: Sequence[Batch]) -> tuple[list[Batch], bool]:
        """One level down for all that can; True when any could."""
        moved = False
        for batch in batches:
            if batch.level + 1 < len(self._ladder(batch.group)):
                batch.level += 1
                moved = True
        return list(batches), moved

    def _deal(self, batch: Batch) -> None:
        group = batch.group
        variant = self._ladder(group)[batch.level]
        options, nodes = self._masks(group, variant)
        self.meter.spend(self.problem.universe.size // 64 + self.problem.existing.size + 1)
        if not options.any() and not nodes.any():
            batch.blocked = None
            return
        host = host_rules(
            variant.rules, group.shape.populations, self._named_by_host, self.problem.tokens(group.shape.ports)
        )
        zonal = [rule for rule in variant.rules if not rule.by_host]
        touched = [t for n in group.shape.populations for t in self._of_population.get(n, ())]
        inverse = [
            (self._owners[number, key], key) for number, key in self._owners if number in group.shape.populations
        ]
        if not zonal and not inverse and not any(tally.pins for tally in touched):
            if batch.closed.get(batch.level):
                return
            self._settle(batch, variant, host, options, nodes, -1, len(batch.pods))
            return
        self._deal_over_cells(batch, variant, host, options, nodes, zonal, touched, inverse)

    def _deal_over_cells(
        self,
        batch: Batch,
        variant: Variant,
        host: HostRules,
        options: Bools,
        nodes: Bools,
        zonal: Sequence[Rule],
        touched: Sequence[Tally],
        inverse: Sequence[tuple[Ints, str]],
    ) -> None:
        group = batch.group
        problem = self.problem
        keys = sorted({rule.key for rule in zonal} | {tally.key for tally in touched} | {key for _, key in inverse})
        filters = [t for t in touched if not t.pins and t.filters]
        cells = self._cells_of(group, variant, keys, filters, nodes)
        rules = [(rule, self._tally(rule, group), keys.index(rule.key)) for rule in zonal]
        mine = frozenset(group.shape.populations)
        own_apart = [
            (self._owners_of(rule), keys.index(rule.key))
            for rule in zonal
            if rule.kind is RuleKind.ANTI_AFFINITY and not rule.is_soft
        ]
        closed = batch.closed.get(batch.level, set())
        counted = [(tally, keys.index(tally.key)) for tally in touched]
        sizes = self.sizes(group)
        probe = Share(group, sizes, options, -1, host)
        room = self._node_room(probe, nodes)
        cost: list[float] = []
        free: list[int] = []
        support: list[int] = []
        masks: list[Bools] = []
        for code, cell_options, cell_nodes in cells:
            masks.append(cell_options)
            usable = bool(len(cell_nodes)) and int(room[cell_nodes].sum())
            free.append(int(usable))
            identity = self._cell_id(keys, code)
            cost.append(np.inf if identity in closed else self._unit_cost(sizes, cell_options))
            support.append(
                sum(int(t.claimants[code[at]]) for t, at in counted if t.claimants is not None and code[at] >= 0)
            )
        dropped = {rule.population for rule in group.shape.rules if rule.is_soft and not rule.by_host}
        dear = {price for price in cost if np.isfinite(price)}
        level = any(rule.kind is RuleKind.SPREAD for rule in zonal) and (self.balanced or len(dear) <= 1)
        step = 1 if level or any(tally.population in dropped for tally in touched) else 1 << 40
        blocked: tuple[ReasonCode, str] | None = None
        chosen: dict[int, int] = {}
        while batch.pods:
            best: tuple[tuple[float, ...], int, int] | None = None
            waiting = len(batch.pods) - sum(chosen.values())
            if waiting <= 0:
                break
            for at, (code, _, _) in enumerate(cells):
                if free[at] <= 0 and not np.isfinite(cost[at]):
                    continue
                most, why = self._allowed(rules, inverse, keys, code, mine)
                if most <= 0:
                    blocked = why or blocked
                    continue
                most = min(most, waiting, step)
                if free[at] > 0:
                    most = min(most, free[at])
                rank = (
                    -float(support[at]),
                    0.0 if free[at] > 0 else 1.0,
                    0.0 if free[at] > 0 or self.balanced else cost[at],
                    float(sum(int(t.counts[code[i]]) * (1 if t.claimants is None else -1) for t, i in counted)),
                    float(at),
                )
                if best is None or rank < best[0]:
                    best = (rank, at, most)
            self.meter.spend(len(cells))
            if best is None:
                break
            _, at, most = best
            code, _, cell_nodes = cells[at]
            if free[at] > 0:
                free[at] -= most
            chosen[at] = chosen.get(at, 0) + most
            for tally, index in counted:
                if self._counts_in(tally, masks[at], cell_nodes):
                    tally.counts[code[index]] += most if code[index] >= 0 else 0
            for owners, index in own_apart:
                owners[code[index]] += most if code[index] >= 0 else 0
            bulk = self._bulk(batch, rules, cells, cost, free, counted, len(batch.pods) - sum(chosen.values()))
            if bulk:
                for index, count in bulk.items():
                    chosen[index] = chosen.get(index, 0) + count
                    for tally, place in counted:
                        if self._counts_in(tally, masks[index], cells[index][2]):
                            tally.counts[cells[index][0][place]] += count
        for at, count in sorted(chosen.items()):
            code, cell_options, cell_nodes = cells[at]
            in_cell = np.zeros(problem.existing.size, dtype=np.bool_)
            in_cell[cell_nodes] = True
            self._settle(batch, variant, host, cell_options, in_cell & nodes, self._cell_id(keys, code), count)
        batch.blocked, batch.blocked_by = blocked if blocked is not None else (None, "")

    def _bulk(
        self,
        batch: Batch,
        rules: Sequence[tuple[Rule, Tally, int]],
        cells: Sequence[tuple[tuple[int, ...], Bools, Ints]],
        cost: Sequence[float],
        free: Sequence[int],
        counted: Sequence[tuple[Tally, int]],
        waiting: int,
    ) -> dict[int, int]:
        """Whole rounds at once, where every rule is a spread over exactly these cells, all level: keeps any skew."""
        count = len(cells)
        if waiting < 4 * count or not rules or any(room > 0 for room in free) or not np.isfinite(cost).all():
            return {}
        mine = batch.group.shape.populations
        for rule, tally, at in rules:
            if rule.kind is not RuleKind.SPREAD or rule.population not in mine:
                return {}
            codes = {code[at] for code, _, _ in cells}
            if len(codes) != count or int(tally.eligible.sum()) != count:
                return {}
            here = tally.counts[[code[at] for code, _, _ in cells]]
            if int(here.max()) != int(here.min()):
                return {}
        del counted
        each = waiting // count - 1
        return dict.fromkeys(range(count), each)

    def _allowed(
        self,
        rules: Sequence[tuple[Rule, Tally, int]],
        inverse: Sequence[tuple[Ints, str]],
        keys: Sequence[str],
        code: tuple[int, ...],
        mine: frozenset[int],
    ) -> tuple[int, tuple[ReasonCode, str] | None]:
        """How many pods the rules let into a cell right now, and which rule says none."""
        most = 1 << 40
        for owners, key in inverse:
            domain = code[keys.index(key)]
            if domain >= 0 and owners[domain] > 0:
                return 0, (ReasonCode.POD_ANTI_AFFINITY, f"pods there refuse it by {key}")
        for rule, tally, at in rules:
            domain = code[at]
            if rule.kind is RuleKind.ANTI_AFFINITY:
                if domain >= 0:
                    if tally.counts[domain] > 0:
                        return 0, (ReasonCode.POD_ANTI_AFFINITY, f"every domain of {rule.key} has a pod it must avoid")
                    if rule.population in mine:
                        most = min(most, 1)
                continue
            if domain < 0:
                code_of = ReasonCode.POD_AFFINITY if rule.kind is RuleKind.AFFINITY else ReasonCode.TOPOLOGY_SPREAD
                return 0, (code_of, f"no node that would do carries the label {rule.key}")
            if rule.kind is RuleKind.AFFINITY:
                if tally.counts[domain] <= 0 and not (rule.population in mine and int(tally.counts.sum()) == 0):
                    return 0, (
                        ReasonCode.POD_AFFINITY,
                        f"no reachable domain of {rule.key} has a pod that its affinity asks for",
                    )
                continue
            domains = int(tally.eligible.sum())
            low = int(tally.counts[tally.eligible].min()) if domains and domains >= rule.min_domains else 0
            step = 1 if rule.population in mine else 0
            spare = rule.max_skew - (int(tally.counts[domain]) + step - low)
            if spare < 0:
                return 0, (
                    ReasonCode.TOPOLOGY_SPREAD,
                    f"spread over {rule.key} (maxSkew {rule.max_skew}"
                    + (f", minDomains {rule.min_domains}" if rule.min_domains > 1 else "")
                    + f") allows no more: {domains} domains, fewest pods in one {low}",
                )
            if step:
                most = min(most, spare + 1)
        return most, None

    def _owners_of(self, rule: Rule) -> Ints:
        owners = self._owners.get((rule.population, rule.key))
        if owners is None:
            owners = np.zeros(len(self.problem.domains(rule.key).values) + 1, dtype=np.int64)
            self._owners[rule.population, rule.key] = owners
        return owners

    @staticmethod
    def _counts_in(tally: Tally, options: Bools, nodes: Ints) -> bool:
        return bool((tally.options_in & options).any() or (len(nodes) and tally.nodes_in[nodes].any()))

    def _cells_of(
        self,
        group: Group,
        variant: Variant,
        keys: Sequence[str],
        filters: Sequence[Tally],
        nodes: Bools,
    ) -> list[tuple[tuple[int, ...], Bools, Ints]]:
        """`_cells`, worked out once for all groups with the same labels and rules, then cut to what holds this one."""
        shape = group.shape
        key = (
            shape.terms,
            shape.tolerations,
            variant.soft_taints,
            variant.terms,
            shape.volumes.places,
            tuple(keys),
            tuple(id(each) for each in filters),
        )
        known = self._known_cells.get(key)
        if known is None:
            known = self._cells(keys, filters, self._label_masks(group, variant)[0], nodes)
            self._known_cells[key] = known
        fits = self.problem.fit_mask(self.sizes(group))
        cells = [(code, mask & fits, there) for code, mask, there in known]
        return [cell for cell in cells if len(cell[2]) or cell[1].any()]

    def _cells(
        self, keys: Sequence[str], filters: Sequence[Tally], options: Bools, nodes: Bools
    ) -> list[tuple[tuple[int, ...], Bools, Ints]]:
        """Per combination of domains: its codes, its options, its existing nodes.

        filters: tallies that count only some nodes; a cell is counted by each of them as a whole or not at all.
        """
        tables = [self.problem.domains(key) for key in keys]
        at_options, at_nodes = np.flatnonzero(options), np.flatnonzero(nodes)
        stacked = np.concatenate(
            [
                np.stack([*(t.options[at_options] for t in tables), *(f.options_in[at_options] for f in filters)]),
                np.stack([*(t.nodes[at_nodes] for t in tables), *(f.nodes_in[at_nodes] for f in filters)]),
            ],
            axis=1,
        )
        codes, numbers = np.unique(stacked, axis=1, return_inverse=True)
        numbers = numbers.reshape(-1)
        cells = []
        for cell in range(codes.shape[1]):
            mask = np.zeros(len(options), dtype=np.bool_)
            mask[at_options[numbers[: len(at_options)] == cell]] = True
            there = at_nodes[numbers[len(at_options) :] == cell]
            cells.append((tuple(int(c) for c in codes[:, cell]), mask, there.astype(np.int64)))
        return cells

    def _cell_id(self, keys: Sequence[str], code: Sequence[int]) -> int:
        number = 0
        sizes = [len(self.problem.domains(key).values) + 2 for key in keys]
        for size, value in zip([*sizes, *([3] * (len(code) - len(keys)))], code, strict=True):
            number = number * size + value + 1
        return number

    def _unit_cost(self, sizes: tuple[int, ...], options: Bools) -> float:
        """The least price a pod of these sizes can come to on a full node of these options; inf without any."""
        number, mask = self.problem.interned(options)
        key = (sizes, number)
        known = self._costs.get(key)
        if known is None:
            rows = np.flatnonzero(mask)
            if len(rows):
                universe = self.problem.universe
                share = np.zeros(len(rows))
                for name, size in zip(universe.resources, sizes, strict=True):
                    if size:
                        share = np.maximum(share, size / universe.allocatable[name][rows])
                known = float((universe.price[rows] * share).min())
            else:
                known = float("inf")
            self._costs[key] = known
        return known

    def _node_room(self, share: Share, nodes: Bools) -> Ints:
        room = np.zeros(self.problem.existing.size, dtype=np.int64)
        if nodes.any():
            room = self.hosts.room_for(share.sizes)
            self.hosts.limit(room, share.host)
            room[~nodes] = 0
        return room

    def _settle(
        self,
        batch: Batch,
        variant: Variant,
        host: HostRules,
        options: Bools,
        nodes: Bools,
        cell: int,
        count: int,
    ) -> None:
        """`count` pods to these nodes as far as they have room, the rest into a lot for these options."""
        group = batch.group
        number, mask = self.problem.interned(self._reserved_first(options))
        share = Share(
            group=group,
            sizes=self.sizes(group),
            mask=mask,
            mask_id=number,
            host=host,
            relaxed=variant.relaxed,
            cell=cell,
            level=batch.level,
        )
        left = count
        if nodes.any():
            room = self._node_room(share, nodes)
            for index in np.flatnonzero(room).tolist():
                here = min(int(room[index]), left)
                self.hosts.put(index, share, here)
                self.on_nodes.append((index, share, batch.pods[:here]))
                del batch.pods[:here]
                left -= here
                if not left:
                    return
        if options.any():
            share.pods = batch.pods[:left]
            del batch.pods[:left]
            self.shares.append(share)

    def _reserved_first(self, options: Bools) -> Bools:
        """In strict mode, pods for which reserved capacity would do take nothing else."""
        universe = self.problem.universe
        if self.problem.snapshot.reserved_mode != "strict" or not universe.is_reserved.any():
            return options
        weights = np.array([terms.weight for terms in universe.pools])[universe.pool_of]
        if not options.any():
            return options
        top = options & (weights == weights[options].max())
        reserved = top & universe.is_reserved
        return reserved if reserved.any() else options

    def excess(self, share: Share, node: int = -1) -> int:
        """How many pods of a share must leave its domain after others failed to get where they were meant to go.

        Those by which the domain is now over the skew its spread rules allow; all of them, where the pods they were to
        be near to are not there. node: the existing node they are on, if they are.
        """
        mine = frozenset(share.group.shape.populations)
        worst = 0
        for rule in self._ladder(share.group)[share.level].rules:
            if rule.kind is RuleKind.AFFINITY and not rule.by_host and self._is_lonely(share, rule, node):
                return 1 << 40
            if rule.kind is not RuleKind.SPREAD or rule.by_host or rule.is_soft or rule.population not in mine:
                continue
            tally = self._tally(rule, share.group)
            codes = np.unique(tally.domains[share.mask]) if node < 0 else tally.node_domains[node : node + 1]
            if len(codes) != 1 or codes[0] < 0:
                continue
            domains = int(tally.eligible.sum())
            low = int(tally.counts[tally.eligible].min()) if domains and domains >= rule.min_domains else 0
            worst = max(worst, int(tally.counts[codes[0]]) - low - rule.max_skew)
        return worst

    def _is_lonely(self, share: Share, rule: Rule, node: int) -> bool:
        tally = self._tally(rule, share.group)
        codes = np.unique(tally.domains[share.mask]) if node < 0 else tally.node_domains[node : node + 1]
        if len(codes) != 1 or codes[0] < 0:
            return False
        if tally.counts[codes[0]] <= 0:
            return True
        old = self.problem.node_members.get(rule.population)
        if rule.population not in share.group.shape.populations or old is None or not old.any():
            return False
        if old[tally.node_domains == codes[0]].any():
            return False
        claimants = 0
        for other, index, count in (
            *((each, -1, len(each.pods)) for each in self.shares),
            *((each, at, len(members)) for at, each, members in self.on_nodes),
        ):
            if rule in self._ladder(other.group)[other.level].rules:
                there = np.unique(tally.domains[other.mask]) if index < 0 else tally.node_domains[index : index + 1]
                claimants += count if len(there) == 1 and there[0] == codes[0] else 0
        return int(tally.counts[codes[0]]) <= claimants

    def take_off_node(self, entry: int, count: int) -> list[Pod]:
        """Take the last `count` pods of an entry of `on_nodes` off its node again."""
        node, share, members = self.on_nodes[entry]
        kept, over = members[: len(members) - count], members[len(members) - count :]
        self.on_nodes[entry] = (node, share, kept)
        self.hosts.put(node, share, -count)
        for number in share.group.shape.populations:
            for tally in self._of_population.get(number, ()):
                if tally.node_domains[node] >= 0 and tally.nodes_in[node]:
                    tally.counts[tally.node_domains[node]] -= count
        for rule in self._ladder(share.group)[share.level].rules:
            if rule.kind is RuleKind.ANTI_AFFINITY and not rule.by_host and not rule.is_soft:
                code = self.problem.domains(rule.key).nodes[node]
                if code >= 0:
                    self._owners_of(rule)[code] -= count
        return over

    def take_back(self, share: Share, pods: Sequence[Pod]) -> None:
        """Undo the counting of pods that a share could not place after all."""
        count = len(pods)
        domains = np.flatnonzero(share.mask)
        if not len(domains):
            return
        for number in share.group.shape.populations:
            for tally in self._of_population.get(number, ()):
                codes = np.unique(tally.domains[domains])
                if (
                    share.cell >= 0
                    and len(codes) == 1
                    and codes[0] >= 0
                    and self._counts_in(tally, share.mask, np.zeros(0, dtype=np.int64))
                ):
                    tally.counts[codes[0]] -= count
        for rule in self._ladder(share.group)[share.level].rules:
            if rule.kind is RuleKind.ANTI_AFFINITY and not rule.by_host and not rule.is_soft:
                codes = np.unique(self.problem.domains(rule.key).options[domains])
                if len(codes) == 1 and codes[0] >= 0:
                    self._owners_of(rule)[codes[0]] -= count


__all__ = ["RESERVED", "Allocation", "Batch", "Tally", "Variant"]
