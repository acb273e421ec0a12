"""Which domains pods go to: zones and every other topology key but the host.

Each group's pods are dealt out over *cells* (combinations of the domains that rules look at), one rule-abiding step at
a time, existing room first, then the cheapest. What a cell's existing nodes hold is placed at once; the rest becomes a
share bound to that cell, which the packer then puts on new nodes. The order in which groups are dealt out is the order
in which their rules hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wainwright.api.pods import Pod
from wainwright.scheduling.cells import Cell, Cells
from wainwright.scheduling.groups import Group
from wainwright.scheduling.hosts import Hosts
from wainwright.scheduling.lots import HostRules, Share, host_rules
from wainwright.scheduling.meter import Meter
from wainwright.scheduling.plan import ReasonCode
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.rules import Rule, RuleKind
from wainwright.scheduling.tallies import Tallies, Tally
from wainwright.scheduling.universe import Bools, Ints
from wainwright.scheduling.variants import Variant, ladder

MANY = 1 << 40


@dataclass(slots=True, eq=False)
class Batch:
    """Pods of a group still to be dealt out, at one level of relaxation. closed: by level, cells without room.

    blocked, blocked_by: the rule that kept the pods from being dealt out, if it was one.
    """

    group: Group
    pods: list[Pod]
    level: int = 0
    closed: dict[int, set[int]] = field(default_factory=dict)
    blocked: ReasonCode | None = None
    blocked_by: str = ""
    waits_for_reserved: bool = False


@dataclass(frozen=True, slots=True)
class _View:
    """What the rules of one group (variant) look at. Positions are those of `keys` in a cell's domains.

    counted: tallies that count the group's pods, with position, and place among a cell's filters (-1: always counted).
    """

    keys: tuple[str, ...]
    rules: tuple[tuple[Rule, Tally, int], ...]
    counted: tuple[tuple[Tally, int, int], ...]
    refusing: tuple[tuple[Ints, int], ...]
    owning: tuple[tuple[Ints, int], ...]
    members: frozenset[int]

    def count(self, cell: Cell, pods: int) -> None:
        """Count pods that go to a cell."""
        for tally, at, bit in self.counted:
            if cell.domains[at] >= 0 and (bit < 0 or cell.counted[bit]):
                tally.counts[cell.domains[at]] += pods
        for owners, at in self.owning:
            if cell.domains[at] >= 0:
                owners[cell.domains[at]] += pods


class Allocation:
    """Deals out groups. shares: what needs new nodes. on_nodes: existing node, share, pods of it that go there.

    balanced: keep domains even, whatever they cost.
    """

    def __init__(self, problem: Problem, meter: Meter, *, balanced: bool = False) -> None:
        self.problem = problem
        self.balanced = balanced
        self.meter = meter
        self.hosts: Hosts = problem.make_hosts()
        self.shares: list[Share] = []
        self.on_nodes: list[tuple[int, Share, list[Pod]]] = []
        self.cells = Cells(problem)
        self.tallies = Tallies(problem)
        self._ladders: dict[object, tuple[Variant, ...]] = {}
        self._named_by_host = _populations_named_by_host(problem)
        self._strict_reserved = problem.snapshot.reserved_mode == "strict" and bool(problem.universe.is_reserved.any())
        self._soft_taints = any(
            taint.effect == "PreferNoSchedule"
            for taints in (
                *(terms.pool.spec.template.spec.taints for terms in problem.universe.pools),
                *problem.existing.taints,
            )
            for taint in taints
        )
        self._count_claimants()

    # -- what is asked about groups ------------------------------------------------------------------------------

    def reach(self, group: Group) -> tuple[Bools, Bools]:
        """Options and existing nodes open to a group with all preferences dropped."""
        _, options, nodes = self.cells.reach(group, self._ladder(group)[-1])
        return options, nodes

    def sizes(self, group: Group) -> tuple[int, ...]:
        """Amounts in the order of the universe's resources."""
        return self.cells.sizes(group)

    def domains_of(self, rule: Rule, group: Group) -> list[int]:
        """The domains that count for a spread rule of a group."""
        return [int(code) for code in np.flatnonzero(self.tallies.of_rule(rule, group).eligible)]

    def _ladder(self, group: Group) -> tuple[Variant, ...]:
        key = (group.shape.rules, group.shape.preferred)
        known = self._ladders.get(key)
        if known is None:
            known = ladder(group.shape, soft_taints=self._soft_taints)
            self._ladders[key] = known
        return known

    def _count_claimants(self) -> None:
        for group in self.problem.groups:
            for rule in group.shape.rules:
                if rule.kind is not RuleKind.AFFINITY or rule.by_host or rule.is_soft:
                    continue
                tally = self.tallies.of_rule(rule, group)
                if tally.claimants is None:
                    tally.claimants = np.zeros(len(tally.counts), dtype=np.int64)
                options, nodes = self.reach(group)
                within = np.zeros(len(tally.counts), dtype=np.bool_)
                within[tally.domains[options]] = True
                within[tally.node_domains[nodes]] = True
                within[-1] = False
                tally.claimants[within] += len(group.members)

    # -- dealing out ---------------------------------------------------------------------------------------------

    def deal(self, batches: Sequence[Batch]) -> None:
        """Deal out all batches, again and again while that gets anywhere; what is left keeps its pods."""
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
                moved = self._relax(still)
            if not moved:
                return
            waiting = still

    def _least_choice_first(self, batches: Sequence[Batch]) -> list[Batch]:
        """In the order of groups, but those whose rules count the same pods change places so that the ones with the
        fewest domains to choose from come first.
        """
        ordered = sorted(batches, key=lambda batch: batch.group.index)
        sets: dict[int, list[int]] = {}
        for at, batch in enumerate(ordered):
            rule = _first_zonal(batch.group)
            if rule is not None:
                sets.setdefault(rule.population, []).append(at)
        result = list(ordered)
        choices: dict[object, int] = {}
        for places in sets.values():
            if len(places) > 1:
                ranked = sorted(places, key=lambda at: (self._choice(ordered[at].group, choices), at))
                for place, source in zip(places, ranked, strict=True):
                    result[place] = ordered[source]
        return result

    def _choice(self, group: Group, known: dict[object, int]) -> int:
        """How many domains a group's first rule leaves it."""
        rule = _first_zonal(group)
        shape = group.shape
        if rule is None:
            return 0
        key = (rule.key, shape.terms, shape.tolerations, shape.volumes.places, self.sizes(group))
        if key not in known:
            options, nodes = self.reach(group)
            table = self.problem.domains(rule.key)
            found = {*np.unique(table.options[options]).tolist(), *np.unique(table.nodes[nodes]).tolist()}
            known[key] = len(found - {-1})
        return known[key]

    def _relax(self, batches: Sequence[Batch]) -> bool:
        """One level down for all that can; True when any could."""
        moved = False
        for batch in batches:
            if batch.level + 1 < len(self._ladder(batch.group)):
                batch.level += 1
                moved = True
        return moved

    def _deal(self, batch: Batch) -> None:
        group = batch.group
        variant = self._ladder(group)[batch.level]
        number, options, nodes = self.cells.reach(group, variant)
        self.meter.spend(self.problem.universe.size // 64 + self.problem.existing.size + 1)
        if not options.any() and not nodes.any():
            batch.blocked = None
            return
        host = host_rules(
            variant.rules, group.shape.populations, self._named_by_host, self.problem.tokens(group.shape.ports)
        )
        zonal = [rule for rule in variant.rules if not rule.by_host]
        touched = self.tallies.of_members(group)
        refusing = self.tallies.refusing(group)
        if zonal or refusing or any(tally.pins for tally in touched):
            self._deal_over_cells(batch, variant, host, zonal, touched, refusing)
        elif not batch.closed.get(batch.level):
            self._settle(batch, variant, host, number, options, nodes, -1, len(batch.pods))

    def _deal_over_cells(
        self,
        batch: Batch,
        variant: Variant,
        host: HostRules,
        zonal: Sequence[Rule],
        touched: Sequence[Tally],
        refusing: Sequence[tuple[Ints, str]],
    ) -> None:
        group = batch.group
        keys = tuple(
            sorted({rule.key for rule in zonal} | {tally.key for tally in touched} | {key for _, key in refusing})
        )
        filters = [tally for tally in touched if not tally.pins and tally.filters]
        bits = {id(tally): bit for bit, tally in enumerate(filters)}
        view = _View(
            keys=keys,
            rules=tuple((rule, self.tallies.of_rule(rule, group), keys.index(rule.key)) for rule in zonal),
            counted=tuple((tally, keys.index(tally.key), bits.get(id(tally), -1)) for tally in touched),
            refusing=tuple((owners, keys.index(key)) for owners, key in refusing),
            owning=tuple(
                (self.tallies.owners_of(rule), keys.index(rule.key))
                for rule in zonal
                if rule.kind is RuleKind.ANTI_AFFINITY and not rule.is_soft
            ),
            members=frozenset(group.shape.populations),
        )
        cells = self.cells.of(group, variant, keys, filters)
        _, options, nodes = self.cells.reach(group, variant)
        room = self._node_room(Share(group, self.sizes(group), options, -1, host), nodes)
        chosen, batch.blocked, batch.blocked_by = self._choose(batch, view, cells, room)
        for at, count in sorted(chosen.items()):
            cell = cells[at]
            in_cell = np.zeros(self.problem.existing.size, dtype=np.bool_)
            in_cell[cell.nodes] = True
            self._settle(batch, variant, host, cell.number, cell.options, in_cell & nodes, cell.identity, count)

    def _choose(
        self, batch: Batch, view: _View, cells: Sequence[Cell], room: Ints
    ) -> tuple[dict[int, int], ReasonCode | None, str]:
        """How many of the pods go to which cell (by position), and, if some go to none, the rule that kept them."""
        closed = batch.closed.get(batch.level, ())
        cost = [np.inf if cell.identity in closed else cell.cost for cell in cells]
        free = [int(room[cell.nodes].sum()) if len(cell.nodes) else 0 for cell in cells]
        support = [
            sum(
                int(t.claimants[cell.domains[at]])
                for t, at, _ in view.counted
                if t.claimants is not None and cell.domains[at] >= 0
            )
            for cell in cells
        ]
        step = self._step(batch, view, cost)
        blocked: tuple[ReasonCode | None, str] = (None, "")
        chosen: dict[int, int] = {}
        waiting = len(batch.pods)
        while waiting:
            best: tuple[tuple[float, ...], int, int] | None = None
            for at, cell in enumerate(cells):
                if free[at] <= 0 and cost[at] == np.inf:
                    continue
                most, why = self._allowed(view, cell)
                if most <= 0:
                    blocked = why or blocked
                    continue
                most = min(most, waiting, step)
                if free[at] > 0:
                    most = min(most, free[at])
                crowd = sum(
                    int(t.counts[cell.domains[i]]) * (1 if t.claimants is None else -1) for t, i, _ in view.counted
                )
                rank = (
                    -float(support[at]),
                    0.0 if free[at] > 0 else 1.0,
                    0.0 if free[at] > 0 or self.balanced else cost[at],
                    float(crowd),
                    float(at),
                )
                if best is None or rank < best[0]:
                    best = (rank, at, most)
            self.meter.spend(len(cells))
            if best is None:
                return chosen, *blocked
            _, at, most = best
            free[at] -= most if free[at] > 0 else 0
            for index, count in ((at, most), *self._whole_rounds(view, cells, cost, free, waiting - most, at, most)):
                chosen[index] = chosen.get(index, 0) + count
                view.count(cells[index], count)
                waiting -= count
        return chosen, None, ""

    def _step(self, batch: Batch, view: _View, cost: Sequence[float]) -> int:
        """How many pods go to a cell at a time: one, where nothing speaks against being even."""
        if any(rule.kind is RuleKind.SPREAD for rule, _, _ in view.rules) and (
            self.balanced or len({price for price in cost if price != np.inf}) <= 1
        ):
            return 1
        dropped = {rule.population for rule in batch.group.shape.rules if rule.is_soft and not rule.by_host}
        return 1 if any(tally.population in dropped for tally, _, _ in view.counted) else MANY

    @staticmethod
    def _whole_rounds(
        view: _View,
        cells: Sequence[Cell],
        cost: Sequence[float],
        free: Sequence[int],
        waiting: int,
        at: int,
        count: int,
    ) -> list[tuple[int, int]]:
        """The same number for every cell at once, where every rule is a spread over exactly these cells: skews stay.

        at, count: what has just been chosen and is not counted yet; rounds begin when it leaves all cells level.
        """
        number = len(cells)
        if waiting < 4 * number or not view.rules or any(room > 0 for room in free) or np.inf in cost:
            return []
        for rule, tally, place in view.rules:
            if rule.kind is not RuleKind.SPREAD or rule.population not in view.members:
                return []
            codes = [cell.domains[place] for cell in cells]
            if len(set(codes)) != number or int(tally.eligible.sum()) != number:
                return []
            here = tally.counts[codes]
            here[at] += count
            if int(here.max()) != int(here.min()):
                return []
        each = waiting // number - 1
        return [(index, each) for index in range(number)]

    def _allowed(self, view: _View, cell: Cell) -> tuple[int, tuple[ReasonCode | None, str] | None]:
        """How many pods the rules let into a cell right now, and which rule says none."""
        most = MANY
        for owners, at in view.refusing:
            domain = cell.domains[at]
            if domain >= 0 and owners[domain] > 0:
                return 0, (ReasonCode.POD_ANTI_AFFINITY, f"pods there refuse it by {view.keys[at]}")
        for rule, tally, at in view.rules:
            domain = cell.domains[at]
            itself = rule.population in view.members
            if rule.kind is RuleKind.ANTI_AFFINITY:
                if domain >= 0 and tally.counts[domain] > 0:
                    return 0, (ReasonCode.POD_ANTI_AFFINITY, f"every domain of {rule.key} has a pod it must avoid")
                if domain >= 0 and itself:
                    most = min(most, 1)
            elif domain < 0:
                code = ReasonCode.POD_AFFINITY if rule.kind is RuleKind.AFFINITY else ReasonCode.TOPOLOGY_SPREAD
                return 0, (code, f"no node that would do carries the label {rule.key}")
            elif rule.kind is RuleKind.AFFINITY:
                if tally.counts[domain] <= 0 and not (itself and int(tally.counts.sum()) == 0):
                    why = f"no reachable domain of {rule.key} has a pod that its affinity asks for"
                    return 0, (ReasonCode.POD_AFFINITY, why)
            else:
                low = tally.lowest(rule.min_domains)
                spare = rule.max_skew - (int(tally.counts[domain]) + itself - low)
                if spare < 0:
                    least = f", minDomains {rule.min_domains}" if rule.min_domains > 1 else ""
                    why = (
                        f"spread over {rule.key} (maxSkew {rule.max_skew}{least}) allows no more: "
                        f"{int(tally.eligible.sum())} domains, fewest pods in one {low}"
                    )
                    return 0, (ReasonCode.TOPOLOGY_SPREAD, why)
                if itself:
                    most = min(most, spare + 1)
        return most, None

    def _node_room(self, share: Share, nodes: Bools) -> Ints:
        if not nodes.any():
            return np.zeros(self.problem.existing.size, dtype=np.int64)
        room = self.hosts.room_for(share.sizes)
        self.hosts.limit(room, share.host)
        room[~nodes] = 0
        return room

    def _settle(
        self,
        batch: Batch,
        variant: Variant,
        host: HostRules,
        number: int,
        options: Bools,
        nodes: Bools,
        cell: int,
        count: int,
    ) -> None:
        """`count` pods to these nodes as far as they have room, the rest into a share for these options."""
        group = batch.group
        if self._strict_reserved:
            number, options = self.problem.interned(self._reserved_first(options))
        share = Share(
            group=group,
            sizes=self.sizes(group),
            mask=options,
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
        if not options.any():
            return options
        weights = np.array([terms.weight for terms in universe.pools])[universe.pool_of]
        picky = universe.mask_of_pools([any(least > 1 for least in t.min_values.values()) for t in universe.pools])
        reserved = options & (weights == weights[options].max()) & universe.is_reserved & ~picky
        return reserved if reserved.any() else options

    # -- taking back ---------------------------------------------------------------------------------------------

    def excess(self, share: Share, node: int = -1) -> int:
        """How many pods of a share must leave its domain after others failed to get where they were meant to go.

        Those by which the domain is now over the skew its spread rules allow; all of them, where the pods they were to
        be near to are not there. node: the existing node they are on, if they are.
        """
        mine = frozenset(share.group.shape.populations)
        worst = 0
        for rule in self._rules(share):
            tally = self.tallies.of_rule(rule, share.group)
            domain = _domain(tally, share, node)
            if domain < 0:
                continue
            if rule.kind is RuleKind.AFFINITY and self._is_lonely(share, rule, tally, domain):
                return MANY
            if rule.kind is RuleKind.SPREAD and not rule.is_soft and rule.population in mine:
                over = int(tally.counts[domain]) - tally.lowest(rule.min_domains) - rule.max_skew
                worst = max(worst, over)
        return worst

    def _rules(self, share: Share) -> list[Rule]:
        return [rule for rule in self._ladder(share.group)[share.level].rules if not rule.by_host]

    def _is_lonely(self, share: Share, rule: Rule, tally: Tally, domain: int) -> bool:
        if tally.counts[domain] <= 0:
            return True
        old = self.problem.node_members.get(rule.population)
        if rule.population not in share.group.shape.populations or old is None or not old.any():
            return False
        if old[tally.node_domains == domain].any():
            return False
        claimants = 0
        for other, index, count in (
            *((each, -1, len(each.pods)) for each in self.shares),
            *((each, at, len(members)) for at, each, members in self.on_nodes),
        ):
            if rule in self._rules(other):
                claimants += count if _domain(tally, other, index) == domain else 0
        return int(tally.counts[domain]) <= claimants

    def take_off_node(self, entry: int, count: int) -> list[Pod]:
        """Take the last `count` pods of an entry of `on_nodes` off its node again."""
        node, share, members = self.on_nodes[entry]
        kept, over = members[: len(members) - count], members[len(members) - count :]
        self.on_nodes[entry] = (node, share, kept)
        self.hosts.put(node, share, -count)
        self._uncount(share, node, count)
        return over

    def take_back(self, share: Share, pods: Sequence[Pod]) -> None:
        """Undo the counting of pods that a share could not place after all."""
        if share.cell >= 0:
            self._uncount(share, -1, len(pods))

    def _uncount(self, share: Share, node: int, count: int) -> None:
        for tally in self.tallies.of_members(share.group):
            domain = _domain(tally, share, node)
            counts = tally.nodes_in[node] if node >= 0 else (tally.options_in & share.mask).any()
            if domain >= 0 and counts:
                tally.counts[domain] -= count
        for rule in self._rules(share):
            if rule.kind is RuleKind.ANTI_AFFINITY and not rule.is_soft:
                domain = _domain(self.tallies.of_rule(rule, share.group), share, node)
                if domain >= 0:
                    self.tallies.owners_of(rule)[domain] -= count


def _populations_named_by_host(problem: Problem) -> frozenset[int]:
    """Those whose members a node must or must not have, by some pod's rule."""
    named = {
        rule.population
        for group in problem.groups
        for rule in group.shape.rules
        if rule.by_host and rule.kind is not RuleKind.SPREAD
    }
    named |= {number for number, key in problem.node_apart if Rule(RuleKind.ANTI_AFFINITY, key, number).by_host}
    return frozenset(named)


def _first_zonal(group: Group) -> Rule | None:
    return next((rule for rule in group.shape.rules if not rule.by_host and not rule.is_soft), None)


def _domain(tally: Tally, share: Share, node: int) -> int:
    """The domain that a share's pods are in; -1 when it is not one alone."""
    if node >= 0:
        return int(tally.node_domains[node])
    codes = np.unique(tally.domains[share.mask])
    return int(codes[0]) if len(codes) == 1 else -1
