"""The one entry of the solver."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

from wainwright.api.base import PodUid
from wainwright.api.pods import Pod
from wainwright.scheduling.allocation import Allocation, Batch
from wainwright.scheduling.finish import claims_of, kept_rows, unkeepable
from wainwright.scheduling.improve import Improver, trim
from wainwright.scheduling.lots import Share, merged
from wainwright.scheduling.meter import BudgetSpent, Meter
from wainwright.scheduling.packing import Packer
from wainwright.scheduling.plan import Placement, Plan, Reason, ReasonCode, SolveBudget, Unplaced
from wainwright.scheduling.pricing import bound_of
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.reasons import Explainer
from wainwright.scheduling.rules import RuleKind
from wainwright.scheduling.snapshot import Snapshot


def solve(snapshot: Snapshot, pods: Sequence[Pod], now: datetime, budget: SolveBudget) -> Plan:  # noqa: ARG001
    """Which nodes to make for these pods, and which pod goes where.

    Pure and deterministic: the same input gives the same plan, whatever the order of pods or dictionaries. Every pod
    is in exactly one of the plan's claims, placements and unplaced. A pod that cannot be read is refused alone. When
    the budget is spent, the pods not reached say so and the rest of the plan stands. now: the instant decided at.
    """
    problem = Problem(snapshot, pods)
    meter = Meter(budget)
    allocation, packer, waiting = _attempt(problem, meter, balanced=False)
    if any(batch.blocked is ReasonCode.TOPOLOGY_SPREAD for batch in waiting if batch.pods) and not meter.spent:
        # Going for the cheapest domains can use up a skew that others would have needed: try an even hand.
        other = _attempt(problem, meter, balanced=True)
        if sum(len(b.pods) for b in other[2]) < sum(len(b.pods) for b in waiting) and not meter.spent:
            allocation, packer, waiting = other
    bound = 0.0
    with contextlib.suppress(BudgetSpent):
        trim(packer)
        bound = bound_of(problem, allocation, packer, waiting, budget.bound_rounds)
        Improver(packer, meter).run(budget.improvement_units, bound)
        trim(packer)
    kept = kept_rows(packer)
    broken = unkeepable(packer, kept)
    if broken:
        give_up(packer, waiting, broken)
        kept = kept_rows(packer)
    unplaced = [*problem.reading.unplaced, *_left_over(problem, allocation, packer, waiting, meter)]
    claims = claims_of(packer, kept)
    relaxed: dict[PodUid, tuple[str, ...]] = {}
    for share, members in _placed(allocation):
        if share.relaxed:
            relaxed.update((pod.uid, share.relaxed) for pod in members)
    nodes = problem.existing.nodes
    return Plan(
        claims=tuple(claims),
        placements=tuple(
            Placement(pod=pod.uid, node=nodes[index].name, claim=nodes[index].claim if nodes[index].in_flight else "")
            for index, _, members in allocation.on_nodes
            for pod in members
        ),
        unplaced=tuple(unplaced),
        relaxed=dict(sorted(relaxed.items())),
        price=round(sum(claim.price for claim in claims), 9),
        worst_price=round(sum(max(option.price for option in claim.options) for claim in claims), 9),
        lower_bound=round(bound, 9),
        work=meter.work,
        complete=not meter.spent,
    )


def _attempt(problem: Problem, meter: Meter, *, balanced: bool) -> tuple[Allocation, Packer, list[Batch]]:
    allocation = Allocation(problem, meter, balanced=balanced)
    strict = problem.snapshot.min_values_policy != "BestEffort"
    packer = Packer(problem.universe, meter, strict_min_values=strict)
    batches = [Batch(group=group, pods=list(group.members)) for group in problem.groups]
    with contextlib.suppress(BudgetSpent):
        place(allocation, packer, batches)
    return allocation, packer, batches


def place(allocation: Allocation, packer: Packer, batches: Sequence[Batch]) -> None:
    """Deal out and pack, again for what did not fit where it was meant to go, until nothing more can be placed."""
    waiting = [batch for batch in batches if batch.pods]
    by_group = {batch.group.index: batch for batch in batches}
    while waiting:
        first = len(allocation.shares)
        allocation.deal(waiting)
        lots = merged(allocation.shares[first:], len(packer.lots))
        if not lots:
            break
        packer.elsewhere = {n for _, share, _ in allocation.on_nodes for n in share.group.shape.populations}
        packer.elsewhere |= {n for n, column in allocation.problem.node_members.items() if column.any()}
        packer.pack(lots)
        waiting = []
        for lot in lots:
            for share, over in lot.drop_last(int(packer.left[lot.index])):
                allocation.take_back(share, over)
                batch = by_group[share.group.index]
                batch.pods = [*over, *batch.pods]
                batch.closed.setdefault(share.level, set()).add(share.cell)
                batch.waits_for_reserved |= bool(allocation.problem.universe.is_reserved[share.mask].any())
                if batch not in waiting and not batch.waits_for_reserved:
                    waiting.append(batch)
            packer.left[lot.index] = 0
    if any(batch.pods for batch in batches):
        _level(allocation, packer, batches)


def give_up(packer: Packer, batches: Sequence[Batch], indices: Sequence[int]) -> None:
    """Close bins that cannot become claims; their pods have no place."""
    by_group = {batch.group.index: batch for batch in batches}
    for index in indices:
        contents = dict(packer.bins[index])
        packer.dissolve(index)
        for number, count in contents.items():
            packer.left[number] = 0
            for share, over in packer.lots[number].drop_last(count):
                batch = by_group[share.group.index]
                batch.pods = [*batch.pods, *over]
                batch.blocked = ReasonCode.LIMITS
                batch.blocked_by = "its limits leave no room for as many instance types as its minValues ask for"


def _level(allocation: Allocation, packer: Packer, batches: Sequence[Batch]) -> None:
    """Where pods had no place in their domain after all, take off what is now too much in the others.

    A spread that was planned over three zones is broken when one of them turns out to be full.
    """
    by_group = {batch.group.index: batch for batch in batches}
    changed = True
    while changed:
        changed = False
        for share in allocation.shares:
            placed = len(share.pods)
            excess = min(allocation.excess(share), placed) if placed else 0
            if excess > 0 and share.lot is not None:
                packer.take_off(share.lot, excess)
                packer.left[share.lot.index] = 0
                over = share.pods[placed - excess :]
                del share.pods[placed - excess :]
                allocation.take_back(share, over)
                _uneven(by_group[share.group.index], over, lonely=excess == placed)
                changed = True
        for entry, (node, share, members) in enumerate(list(allocation.on_nodes)):
            excess = min(allocation.excess(share, node), len(members)) if members else 0
            if excess > 0:
                over = allocation.take_off_node(entry, excess)
                _uneven(by_group[share.group.index], over, lonely=excess == len(members))
                changed = True


def _uneven(batch: Batch, over: list[Pod], *, lonely: bool) -> None:
    batch.pods = [*batch.pods, *over]
    rules = {rule.kind for rule in batch.group.shape.rules if not rule.by_host and not rule.is_soft}
    if lonely and RuleKind.AFFINITY in rules:
        batch.blocked = ReasonCode.POD_AFFINITY
        batch.blocked_by = "the pods it must be near to have no place"
    else:
        batch.blocked = ReasonCode.TOPOLOGY_SPREAD
        batch.blocked_by = "another of its domains has no room for more, and its spread allows no more here"


def _placed(allocation: Allocation) -> list[tuple[Share, list[Pod]]]:
    return [
        *((share, members) for _, share, members in allocation.on_nodes),
        *((share, share.pods) for share in allocation.shares),
    ]


def _left_over(
    problem: Problem, allocation: Allocation, packer: Packer, batches: Sequence[Batch], meter: Meter
) -> list[Unplaced]:
    """A reason for every pod that has no place."""
    undecided: list[Pod] = []
    if meter.spent:
        for share in allocation.shares:
            if share.lot is None or share.lot.index >= len(packer.lots):
                undecided.extend(share.pods)
                share.pods.clear()
        for lot in packer.lots:
            for _, over in lot.drop_last(int(packer.left[lot.index])):
                undecided.extend(over)
        undecided.extend(pod for batch in batches for pod in batch.pods)
        reason = Reason(
            where="pod",
            code=ReasonCode.BUDGET,
            message="not decided: the solve had used up its budget before this pod's turn",
        )
        return [Unplaced(pod=pod.uid, reasons=(reason,)) for pod in undecided]
    left_over = [batch for batch in batches if batch.pods]
    if not left_over:
        return []
    explainer = Explainer(problem, packer, allocation)
    unplaced: list[Unplaced] = []
    for batch in left_over:
        reasons = explainer.reasons(batch)
        unplaced.extend(Unplaced(pod=pod.uid, reasons=reasons) for pod in batch.pods)
    return unplaced
