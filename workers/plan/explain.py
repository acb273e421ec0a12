"""`--explain POD`: where one pod goes, why there, and what else there is. Values, and their text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.api.base import PodUid
from wainwright.api.pods import Pod
from wainwright.api.quantities import QuantityError, format_resources
from wainwright.scheduling.plan import Plan, PlannedClaim, Reason
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.requirements import RequirementError
from wainwright.scheduling.shapes import scheduling_terms
from wainwright.scheduling.snapshot import Option
from workers.plan.documents import InputError
from workers.plan.inputs import PlanInput
from workers.plan.output import pod_names
from workers.plan.render import bullet, dollars, reasons_part, some, warnings_part

MOST_OPTIONS = 8


class NodeOfPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the pod goes. name: of a node that exists; a new one has none yet, and node_pool and options instead."""

    name: str = ""
    node_pool: str = ""
    options: tuple[Option, ...] = ()
    beside: tuple[str, ...] = ()
    requests: dict[str, str] = {}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """demands: what the pod asks of a node's labels, one text per alternative. reasons: why it has no place."""

    schema: str = "wainwright-explain/v1"
    pod: str
    placed: bool
    decision: str
    requests: dict[str, str]
    demands: tuple[str, ...]
    tolerations: tuple[str, ...]
    node: NodeOfPod | None
    relaxed: tuple[str, ...]
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]


def explain(given: PlanInput, plan: Plan, wanted: str) -> Explanation:
    """wanted: NAME or NAMESPACE/NAME. Raises InputError for a pod that is not in the plan, with names that are near."""
    pod = _find(given, wanted)
    names = pod_names(given)
    node, decision = _place(plan, pod.uid, names)
    reasons = next((left.reasons for left in plan.unplaced if left.pod == pod.uid), ())
    return Explanation(
        pod=names[pod.uid],
        placed=node is not None,
        decision=decision,
        requests=_requests(pod),
        demands=_demands(pod),
        tolerations=tuple(
            f"{t.key or 'every key'}{f'={t.value}' if t.value else ''}:{t.effect or 'every effect'}"
            for t in pod.spec.tolerations
        ),
        node=node,
        relaxed=plan.relaxed.get(pod.uid, ()),
        reasons=reasons,
        warnings=given.warnings,
    )


def _find(given: PlanInput, wanted: str) -> Pod:
    namespace, _, name = wanted.rpartition("/")
    for pod in given.pods:
        if pod.metadata.name == name and pod.metadata.namespace in (namespace or "default", namespace):
            return pod
    elsewhere = [pod for pod in given.pods if pod.metadata.name == name] if not namespace else []
    if len(elsewhere) == 1:
        return elsewhere[0]
    names = list(pod_names(given).values())
    near = [pod.key for pod in elsewhere] or get_close_matches(wanted, names, n=3, cutoff=0.6) or names[:3]
    raise InputError(
        f"--explain {wanted}: no such pod in this plan" + (f"; there is {', '.join(near)}" if near else "")
    )


def _place(plan: Plan, uid: PodUid, names: dict[PodUid, str]) -> tuple[NodeOfPod | None, str]:
    for claim in plan.claims:
        if uid in claim.pods:
            node = NodeOfPod(
                node_pool=claim.node_pool,
                options=claim.options,
                beside=tuple(names[other] for other in claim.pods if other != uid),
                requests=format_resources(claim.requests),
            )
            return node, _why_new(claim)
    for placement in plan.placements:
        if placement.pod == uid:
            others = (p.pod for p in plan.placements if p.node == placement.node and p.pod != uid)
            node = NodeOfPod(name=placement.node, beside=tuple(names[other] for other in others))
            flight = " that is being made" if placement.claim else " that exists"
            return node, f"goes to node {placement.node}{flight}: it has room, which costs nothing"
    return None, "has no place"


def _why_new(claim: PlannedClaim) -> str:
    first = claim.options[0]
    count = len(claim.options)
    share = f", shared by {len(claim.pods)} pods" if len(claim.pods) > 1 else ""
    ways = "the only way to launch it" if count == 1 else f"the cheapest of the {count} ways to launch it that are kept"
    return (
        f"goes to a new node of NodePool {claim.node_pool}{share}: {first.instance_type} in {first.zone} "
        f"({first.capacity_type}) at {dollars(first.price)} $/h, {ways}"
    )


def _requests(pod: Pod) -> dict[str, str]:
    try:
        return format_resources(pod_requests(pod))
    except QuantityError:
        return {}  # a reason says what cannot be read


def _demands(pod: Pod) -> tuple[str, ...]:
    try:
        return tuple("; ".join(str(wanted) for wanted in term) for term in scheduling_terms(pod.spec) if term)
    except RequirementError:
        return ()


def render_explanation(found: Explanation) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{found.pod} {found.decision}.", style="bold")]
    parts += ["", Text("It asks for " + (_listed(found.requests) or "nothing that can be read"))]
    for place, text in enumerate(found.demands):
        parts.append(Text(f"{'and' if not place else 'or'} a node with {text}"))
    if found.tolerations:
        parts.append(Text(f"and tolerates {', '.join(found.tolerations)}"))
    if found.node is not None:
        parts += _node_part(found.node)
    if found.reasons:
        parts += ["", Text("Why not", style="red"), reasons_part(found.reasons)]
    if found.relaxed:
        parts += ["", Text("Preferences dropped for it"), *(bullet(each) for each in found.relaxed)]
    mine = [each for each in found.warnings if found.pod.rpartition("-")[0] in each]
    return Group(*parts, *warnings_part(mine))


def _node_part(node: NodeOfPod) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if node.beside:
        parts += ["", Text(f"Beside it: {some(node.beside)}")]
    if node.requests:
        parts.append(Text(f"All of it with daemons: {_listed(node.requests)}"))
    if node.options:
        parts += ["", _options(node.options)]
    return parts


def _options(options: Sequence[Option]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("type", "zone", "capacity", "$/h"):
        table.add_column(name, justify="right" if name == "$/h" else "left")
    for option in options[:MOST_OPTIONS]:
        table.add_row(option.instance_type, option.zone, option.capacity_type, dollars(option.price))
    if len(options) > MOST_OPTIONS:
        table.add_row(f"and {len(options) - MOST_OPTIONS} more", "", "", "")
    return table


def _listed(resources: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in resources.items() if name != "pods")
