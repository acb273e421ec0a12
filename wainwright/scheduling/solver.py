"""The one entry of the solver."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

from wainwright.api.pods import Pod
from wainwright.scheduling.existing import ExistingNodes
from wainwright.scheduling.finish import claims_of
from wainwright.scheduling.groups import Group, read_groups
from wainwright.scheduling.mentions import Mentions
from wainwright.scheduling.packing import BudgetSpent, Meter, Packing, how_many
from wainwright.scheduling.plan import Placement, Plan, Reason, ReasonCode, SolveBudget, Unplaced
from wainwright.scheduling.reasons import Explainer
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.taints import tolerates
from wainwright.scheduling.universe import Daemon, Universe, daemon_of


def solve(snapshot: Snapshot, pods: Sequence[Pod], now: datetime, budget: SolveBudget) -> Plan:  # noqa: ARG001
    """Which nodes to make for these pods, and which pod goes where.

    Pure and deterministic: the same input gives the same plan, whatever the order of pods or dictionaries. Every pod
    is in exactly one of the plan's claims, placements and unplaced. A pod that cannot be read is refused alone. When
    the budget is spent, the pods not reached say so and the rest of the plan stands. now: the instant decided at.
    """
    groups, unplaced = read_groups(pods)
    daemons = [daemon for each in snapshot.daemon_sets if (daemon := daemon_of(each)) is not None]
    mentions = Mentions()
    for terms in (*(group.shape.terms for group in groups), *(daemon.terms for daemon in daemons)):
        mentions.update(Mentions.of(terms))
    resources = {name for group in groups for name in group.sizes}
    universe = _universe(snapshot, mentions, resources, sold_out_too=False)
    existing = _existing(snapshot, universe, daemons)
    for group in groups:
        _admit(group, universe, existing)
    meter = Meter(budget)
    packing = Packing(universe, existing, meter, strict_min_values=snapshot.min_values_policy != "BestEffort")
    with contextlib.suppress(BudgetSpent):
        packing.place(groups)
    unplaced.extend(_explain(snapshot, groups, packing, mentions, resources))
    claims = claims_of(packing)
    return Plan(
        claims=tuple(claims),
        placements=tuple(
            Placement(pod=pod.uid, node=existing.nodes[index].name, claim=_claim_of(existing, index))
            for index, pod in packing.on_nodes
        ),
        unplaced=tuple(unplaced),
        price=round(sum(claim.price for claim in claims), 9),
        work=meter.work,
        complete=not meter.stopped,
    )


def _universe(snapshot: Snapshot, mentions: Mentions, resources: set[str], *, sold_out_too: bool) -> Universe:
    used: dict[str, dict[str, int]] = {}
    for node in snapshot.nodes:
        if node.node_pool:
            total = used.setdefault(node.node_pool, {})
            total["nodes"] = total.get("nodes", 0) + 1
            for name, amount in node.capacity.items():
                total[name] = total.get(name, 0) + amount
    return Universe(
        snapshot.node_pools,
        snapshot.catalogs,
        daemon_sets=snapshot.daemon_sets,
        unavailable=snapshot.unavailable,
        mentions=mentions,
        used=used,
        resources=resources,
        sold_out_too=sold_out_too,
    )


def _existing(snapshot: Snapshot, universe: Universe, daemons: Sequence[Daemon]) -> ExistingNodes:
    startup = {
        pool.name: frozenset((taint.key, taint.effect) for taint in pool.spec.template.spec.startup_taints)
        for pool in snapshot.node_pools
    }
    return ExistingNodes(snapshot.nodes, daemons, universe.resources, startup)


def _admit(group: Group, universe: Universe, existing: ExistingNodes) -> None:
    tolerations = group.shape.tolerations
    group.mask = universe.mask_of_terms(group.shape.terms) & universe.mask_of_pools(
        [tolerates(tolerations, terms.pool.spec.template.spec.taints) for terms in universe.pools]
    )
    if universe.size:
        group.mask &= how_many(universe.allocatable, group.sizes) > 0
    group.node_mask = existing.mask_of_terms(group.shape.terms) & existing.mask_of_tolerations(tolerations)


def _explain(
    snapshot: Snapshot, groups: Sequence[Group], packing: Packing, mentions: Mentions, resources: set[str]
) -> list[Unplaced]:
    left = [group for group in groups if group.waiting]
    if not left:
        return []
    if packing.meter.stopped:
        reason = Reason(
            where="pod",
            code=ReasonCode.BUDGET,
            message="not decided: the solve had used up its budget before this pod's turn",
        )
        return [Unplaced(pod=pod.uid, reasons=(reason,)) for group in left for pod in group.take(group.waiting)]
    full = _universe(snapshot, mentions, resources, sold_out_too=True)
    explainer = Explainer(packing, full)
    unplaced: list[Unplaced] = []
    for group in left:
        reasons = explainer.reasons(group)
        unplaced.extend(Unplaced(pod=pod.uid, reasons=reasons) for pod in group.take(group.waiting))
    return unplaced


def _claim_of(existing: ExistingNodes, index: int) -> str:
    node = existing.nodes[index]
    return node.claim if node.in_flight else ""
