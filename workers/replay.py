"""`wainwright replay`: a recorded plan beside the one that the same input gives now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.batching.store import Store
from wainwright.provisioning.solving import replay
from wainwright.scheduling.plan import Plan, PlannedClaim


class PlanFigures(msgspec.Struct, frozen=True, kw_only=True):
    """price, lower_bound: US dollars an hour. work: units the solver spent."""

    claims: int
    placements: int
    unplaced: int
    price: float
    lower_bound: float
    work: int

    @classmethod
    def of(cls, plan: Plan) -> PlanFigures:
        return cls(
            claims=len(plan.claims),
            placements=len(plan.placements),
            unplaced=len(plan.unplaced),
            price=plan.price,
            lower_bound=plan.lower_bound,
            work=plan.work,
        )


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """same: equal in claims, placements, pods left over, price and dropped preferences."""

    plan: str
    same: bool
    recorded: PlanFigures
    again: PlanFigures
    differences: tuple[str, ...]


def read_replay(store: Store, plan: str) -> ReplayReport | None:
    """Solves the plan's input again; None when the plan or its input is not kept any more. Raises StoreUnavailable."""
    found = replay(store, plan)
    if found is None:
        return None
    return ReplayReport(
        plan=plan,
        same=found.is_same,
        recorded=PlanFigures.of(found.recorded),
        again=PlanFigures.of(found.again),
        differences=() if found.is_same else tuple(differences(found.recorded, found.again)),
    )


def differences(recorded: Plan, again: Plan) -> Iterator[str]:
    """What only one of two plans has, one sentence each."""
    if recorded.price != again.price:
        yield f"price {recorded.price:.6g} $/h, now {again.price:.6g} $/h"
    before, now = Counter(map(_claim_text, recorded.claims)), Counter(map(_claim_text, again.claims))
    for text, count in sorted((before - now).items()):
        yield f"recorded only: {count} x {text}"
    for text, count in sorted((now - before).items()):
        yield f"now only: {count} x {text}"
    if before == now and recorded.claims != again.claims:
        yield "the nodes are the same; which pods they are for, or the options they keep, differ"
    moved = {p.pod: p.node for p in recorded.placements}.items() ^ {p.pod: p.node for p in again.placements}.items()
    if moved:
        yield f"{len({pod for pod, _ in moved})} pods go to other existing nodes"
    left, left_now = {each.pod for each in recorded.unplaced}, {each.pod for each in again.unplaced}
    if left - left_now:
        yield f"{len(left - left_now)} pods that were not placed have a place now"
    if left_now - left:
        yield f"{len(left_now - left)} pods that were placed have no place now"
    if recorded.relaxed != again.relaxed:
        yield "other preferences are dropped"


def _claim_text(claim: PlannedClaim) -> str:
    first = claim.options[0]
    return (
        f"{first.instance_type} in {first.zone} ({first.capacity_type}) of NodePool {claim.node_pool} "
        f"for {len(claim.pods)} pods"
    )


def render_replay(report: ReplayReport) -> RenderableType:
    verdict = "the same plan" if report.same else "a different plan"
    table = Table("", "claims", "on nodes", "not placed", "$/h", "bound", "work", box=None, header_style="dim")
    for name, figures in (("recorded", report.recorded), ("now", report.again)):
        table.add_row(
            name,
            str(figures.claims),
            str(figures.placements),
            str(figures.unplaced),
            f"{figures.price:.4f}",
            f"{figures.lower_bound:.4f}",
            f"{figures.work:,}",
        )
    lines = [Text(f"  - {each}") for each in report.differences]
    return Group(Text(f"plan {report.plan}: the same input gives {verdict}", style="bold"), table, *lines)
