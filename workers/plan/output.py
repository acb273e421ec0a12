"""A plan as `packing-output/v1`, with what `wainwright plan` adds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.names import INSTANCE_TYPE_LABEL
from wainwright.api.nodepools import NodeSelectorRequirement
from wainwright.api.quantities import format_resources
from wainwright.scheduling.plan import Plan, PlannedClaim, Reason, Unplaced
from wainwright.scheduling.snapshot import Option
from workers.plan.inputs import PlanInput
from workers.plan.topology import Spread, spreads

SCHEMA: Final = "packing-output/v1"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, and US dollars an hour. lower_bound_price: no plan that places all these pods costs less; null: unknown.

    price_over_bound: total_price divided by it.
    """

    pods: int
    pods_on_new: int
    pods_on_existing: int
    pod_errors: int
    claims: int
    total_price: float
    lower_bound_price: float | None
    price_over_bound: float | None


class Cheapest(msgspec.Struct, frozen=True, kw_only=True):
    instance_type: str
    zone: str
    capacity_type: str
    price: float


class NewNodeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A node to be made. requests: pods and daemons. instance_types: kept open, cheapest first. worst_price: of the
    dearest way left to launch it.
    """

    node_pool: str
    pods: tuple[str, ...]
    requests: dict[str, str]
    requirements: tuple[NodeSelectorRequirement, ...]
    instance_type_count: int
    instance_types: tuple[str, ...]
    cheapest: Cheapest
    worst_price: float


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """worst_price: of all nodes, each launched in its dearest way. gap: total price / lower bound - 1. relaxed: by pod,
    the preferences that were dropped. pod_reasons: the same as pod_errors, one by one. complete: false when the
    solver's budget ran out first.
    """

    schema: str = SCHEMA
    scenario: str
    summary: Summary
    worst_price: float
    lower_bound: float | None
    gap: float | None
    complete: bool
    new_node_claims: tuple[NewNodeClaim, ...]
    existing_nodes: dict[str, tuple[str, ...]]
    pod_errors: dict[str, str]
    pod_error_classes: dict[str, tuple[str, ...]]
    pod_reasons: dict[str, tuple[Reason, ...]]
    relaxed: dict[str, tuple[str, ...]]
    topology: tuple[Spread, ...]
    warnings: tuple[str, ...]


def make_output(given: PlanInput, plan: Plan) -> Output:
    """Pods are named NAME, or NAMESPACE/NAME outside of namespace default, in the order of the input."""
    names = pod_names(given)
    order = {uid: place for place, uid in enumerate(names)}
    existing: dict[str, list[PodUid]] = {}
    for placement in plan.placements:
        existing.setdefault(placement.node, []).append(placement.pod)
    unplaced = sorted(plan.unplaced, key=lambda left: order[left.pod])
    bound = lower_bound(plan)
    return Output(
        scenario=given.name,
        summary=Summary(
            pods=len(names),
            pods_on_new=sum(len(claim.pods) for claim in plan.claims),
            pods_on_existing=len(plan.placements),
            pod_errors=len(unplaced),
            claims=len(plan.claims),
            total_price=float(plan.price),
            lower_bound_price=bound,
            price_over_bound=round(plan.price / bound, 6) if bound else None,
        ),
        worst_price=float(plan.worst_price),
        lower_bound=bound,
        gap=gap(plan),
        complete=plan.complete,
        new_node_claims=tuple(_claim(claim, names, order) for claim in plan.claims),
        existing_nodes={
            node: tuple(names[uid] for uid in sorted(uids, key=order.__getitem__))
            for node, uids in sorted(existing.items())
        },
        pod_errors={names[left.pod]: reasons_text(left) for left in unplaced},
        pod_error_classes={
            names[left.pod]: tuple(dict.fromkeys(str(reason.code) for reason in left.reasons)) for left in unplaced
        },
        pod_reasons={names[left.pod]: left.reasons for left in unplaced},
        relaxed={names[uid]: plan.relaxed[uid] for uid in sorted(plan.relaxed, key=order.__getitem__)},
        topology=spreads(given.snapshot, given.pods, plan),
        warnings=given.warnings,
    )


def pod_names(given: PlanInput) -> dict[PodUid, str]:
    """What each pod is called in answers, in the order of the input."""
    return {pod.uid: pod.metadata.name if pod.metadata.namespace in ("", "default") else pod.key for pod in given.pods}


def dearest(claim: PlannedClaim) -> Option:
    """The way to launch it that costs most; the first of several in the plan's order."""
    return max(claim.options, key=lambda option: option.price)


def lower_bound(plan: Plan) -> float | None:
    """US dollars an hour; None where the solver proved none."""
    return plan.lower_bound if plan.lower_bound > 0 or not plan.price else None


def gap(plan: Plan) -> float | None:
    """How far above the lower bound the price is, as a share of the bound; None: not known."""
    if not plan.price:
        return 0.0
    return round(plan.gap, 6) if plan.lower_bound > 0 else None


def reasons_text(left: Unplaced) -> str:
    """All reasons in one line."""
    return "; ".join(f"{reason.where}: {reason.message}" for reason in left.reasons)


def _claim(claim: PlannedClaim, names: Mapping[PodUid, str], order: Mapping[PodUid, int]) -> NewNodeClaim:
    types = tuple(dict.fromkeys(option.instance_type for option in claim.options))
    first = claim.options[0]
    return NewNodeClaim(
        node_pool=claim.node_pool,
        pods=tuple(names[uid] for uid in sorted(claim.pods, key=order.__getitem__)),
        requests=format_resources(claim.requests),
        requirements=tuple(r for r in claim.requirements if r.key != INSTANCE_TYPE_LABEL),
        instance_type_count=len(types),
        instance_types=types,
        cheapest=Cheapest(
            instance_type=first.instance_type,
            zone=first.zone,
            capacity_type=first.capacity_type,
            price=first.price,
        ),
        worst_price=dearest(claim).price,
    )
