"""From a launched node to a ready one, and what calls for its end: what to do, decided from what is seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from wainwright.api import names
from wainwright.api.meta import Condition
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node, Taint
from wainwright.api.quantities import QuantityError, parse_quantity
from wainwright.api.reasons import ConditionReason, ConditionType
from wainwright.batching.claims import State, Surveyed
from wainwright.kube.status import condition_json, merged_conditions
from wainwright.provisioning.objects import has_condition, is_planned_claim
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.snapshots import is_temporary
from wainwright.provisioning.steps import uid_precondition


class AdoptLate(msgspec.Struct, frozen=True, kw_only=True):
    """A planned NodeClaim without a record turned up (design §4, rule 4)."""

    claim: NodeClaim


class Upset(msgspec.Struct, frozen=True, kw_only=True):
    """The claim was done; its NodeClaim is being deleted."""

    name: str
    uid: str
    reason: str
    message: str


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """The view does not show the NodeClaim of a record that is done: over, if Kubernetes says so too."""

    name: str
    uid: str


class NodeMissing(msgspec.Struct, frozen=True, kw_only=True):
    """The view does not show the Node of a claim that is done: the claim is to go, if Kubernetes says so too."""

    claim: NodeClaim
    node: str


class DeleteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim is to go like one that a user deletes."""

    name: str
    uid: str
    reason: str
    message: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The node is Ready: its patch and the NodeClaim's (None: nothing changes). opens: our taint goes off with it, so
    that from now on room is kept for a limited time only.
    """

    claim: str
    node: str
    node_patch: dict[str, Any] | None
    status_patch: dict[str, Any] | None
    opens: bool


Step = AdoptLate | Upset | Missing | NodeMissing | DeleteClaim | Ready


def decide(
    claims: Iterable[NodeClaim],
    nodes: Iterable[Node],
    records: Iterable[Surveyed],
    now: datetime,
    policy: LaunchPolicy,
) -> list[Step]:
    """What is to be done about every claim of ours. records: read before claims and nodes."""
    by_record = {record.name: record for record in records}
    all_nodes = list(nodes)
    by_name = {node.metadata.name: node for node in all_nodes}
    by_provider = {node.spec.provider_id: node for node in all_nodes if node.spec.provider_id}
    steps: list[Step] = []
    shown = set()
    for claim in claims:
        shown.add(claim.name)
        if not is_planned_claim(claim) or is_let_go(claim):
            continue
        record = by_record.get(claim.name)
        node = by_name.get(claim.status.node_name) or by_provider.get(claim.status.provider_id)
        step = AdoptLate(claim=claim) if record is None else _decide_one(claim, record, node, now, policy)
        if step is not None:
            steps.append(step)
    steps += [
        Missing(name=record.name, uid=record.uid)
        for record in by_record.values()
        if record.state is State.DONE and record.uid and record.name not in shown
    ]
    return steps


def is_let_go(claim: NodeClaim) -> bool:
    """Is it being deleted, and done with as far as we are concerned? Somebody else's finalizer holds it then."""
    return claim.is_terminating and names.TERMINATION_FINALIZER not in claim.metadata.finalizers


def _decide_one(
    claim: NodeClaim, record: Surveyed, node: Node | None, now: datetime, policy: LaunchPolicy
) -> Step | None:
    name, uid = claim.name, claim.metadata.uid
    if record.state not in (State.LAUNCHED, State.DONE) or record.uid != uid:
        return None
    if claim.is_terminating:
        # One that is not done yet is found out by whoever launches it.
        if record.state is State.DONE:
            return Upset(name=name, uid=uid, reason="NodeClaimDeleted", message="its NodeClaim is being deleted")
        return None
    registered = has_condition(claim.status.conditions, ConditionType.REGISTERED)
    is_ready = node is not None and node.is_ready
    if not registered and not is_ready and record.launched_ms:
        launched_at = datetime.fromtimestamp(record.launched_ms / 1000, tz=UTC)
        if now > launched_at + policy.ready_deadline:
            minutes = policy.ready_deadline.total_seconds() / 60
            message = f"its node was not Ready {minutes:g} minutes after its launch"
            return DeleteClaim(name=name, uid=uid, reason="NodeNotReady", message=message)
    if record.state is not State.DONE:
        return None
    if node is None:
        missing = claim.status.node_name or record.node
        return NodeMissing(claim=claim, node=missing) if missing else None
    if node.is_terminating:
        return DeleteClaim(name=name, uid=uid, reason="NodeDeleted", message=f"node {node.metadata.name} is deleted")
    if not is_ready or not _has_settled(record, policy):
        return None
    return _ready(claim, node, now)


def _has_settled(record: Surveyed, policy: LaunchPolicy) -> bool:
    """May kube-scheduler be let onto the node, for it must have heard by now of the pods that we bound there?"""
    if policy.binding != "direct" or record.bound_ago_ms is None:
        return True
    return record.bound_ago_ms >= policy.settle.total_seconds() * 1000


def _ready(claim: NodeClaim, node: Node, now: datetime) -> Ready | None:
    """The planned binds are over (the record is done) and the node is Ready: open it, and tell."""
    ours = (names.NOT_READY_TAINT.key, names.UNREGISTERED_TAINT.key)
    taints = tuple(taint for taint in node.spec.taints if taint.key not in ours)
    opens = len(taints) != len(node.spec.taints)
    was_initialized = node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
    why_not = "" if was_initialized else not_initialized(claim, node, taints)
    wanted = {names.REGISTERED_LABEL: "true"} | ({} if why_not else {names.INITIALIZED_LABEL: "true"})
    labels = {key: value for key, value in wanted.items() if node.metadata.labels.get(key) != value}
    node_patch: dict[str, Any] | None = None
    if labels or opens:
        meta = node.metadata
        node_patch = {"metadata": uid_precondition(meta.uid, meta.resource_version, labels=labels)}
        if opens:
            node_patch["spec"] = {"taints": msgspec.to_builtins(taints)}
    conditions = merged_conditions(claim.status.conditions, _wanted(node, why_not), now)
    status_patch: dict[str, Any] | None = None
    if conditions is not None:
        meta = claim.metadata
        told = [condition_json(condition) for condition in conditions]
        status_patch = {
            "metadata": uid_precondition(meta.uid, meta.resource_version),
            "status": {"nodeName": node.metadata.name, "conditions": told},
        }
    if node_patch is None and status_patch is None:
        return None
    return Ready(
        claim=claim.name, node=node.metadata.name, node_patch=node_patch, status_patch=status_patch, opens=opens
    )


def _wanted(node: Node, why_not: str) -> tuple[Condition, ...]:
    """The conditions of a claim whose node is Ready; why_not: why it is not initialized, empty when it is."""
    reason = ConditionReason
    joined = Condition(
        type=ConditionType.REGISTERED,
        status="True",
        reason=reason.REGISTERED,
        message=f"node {node.metadata.name} has joined",
    )
    status = "Unknown" if why_not else "True"
    return (
        joined,
        Condition(
            type=ConditionType.INITIALIZED,
            status=status,
            reason=reason.NODE_NOT_READY if why_not else reason.INITIALIZED,
            message=why_not,
        ),
        Condition(
            type=ConditionType.READY,
            status=status,
            reason=reason.NOT_READY if why_not else reason.READY,
            message=why_not,
        ),
    )


def not_initialized(claim: NodeClaim, node: Node, taints: Sequence[Taint]) -> str:
    """Why a Ready node that will have these taints cannot take every pod yet; empty: it can.

    - a startup taint of the NodePool is still there
    - a taint that nodes shed while they start is still there
    - a resource that the claim was made for is not reported yet
    """
    startup = {(taint.key, taint.effect) for taint in claim.spec.startup_taints}
    for taint in taints:
        if (taint.key, taint.effect) in startup:
            return f"startup taint {taint.key} is still there"
        if is_temporary(taint):
            return f"taint {taint.key} is still there"
    for resource in sorted(claim.spec.resources.requests):
        try:
            wanted = parse_quantity(resource, claim.spec.resources.requests[resource])
            offered = parse_quantity(resource, node.status.allocatable.get(resource, "0"))
        except QuantityError:
            continue
        if wanted > 0 and offered == 0:
            return f"the node does not report any {resource} yet"
    return ""
