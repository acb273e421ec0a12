"""NodeClaims and Nodes as we write them, and what a NodeClaim tells of the plan it came from. Pure.

A NodeClaim carries all that going on with it needs, should Redis lose its record (design §4, rule 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from wainwright.api import names
from wainwright.api.meta import Condition
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeSelectorRequirement
from wainwright.api.nodes import Node, Taint
from wainwright.api.quantities import QuantityError, format_resources, parse_resources
from wainwright.api.reasons import ConditionType
from wainwright.batching.claims import Adoption, ClaimPod, ClaimRecord, Role, State
from wainwright.cloud.port import Instance, LaunchRequest
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS
from wainwright.kube.status import condition_json, merged_conditions
from wainwright.provisioning.attempts import Attempt, decode_attempts, encode_attempts
from wainwright.scheduling.snapshot import Option

T = TypeVar("T")

MOST_OPTIONS_BYTES: Final = 96 * 1024
"""Kept options may take so much of the 256 KiB that Kubernetes allows annotations; the dearest are dropped first."""

NODE_CLAIM_LABELS: Final = (
    names.INSTANCE_TYPE_LABEL,
    names.ZONE_LABEL,
    names.REGION_LABEL,
    names.CAPACITY_TYPE_LABEL,
    names.ARCH_LABEL,
    names.OS_LABEL,
)
"""What a launched NodeClaim tells about its instance in labels (kubectl's columns read them)."""


class KeptOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Annotation `wainwright.dev/options`. options: instance type, zone, capacity type, price, reservation, cheapest
    first. capacity, allocatable: see PlannedClaim.
    """

    options: tuple[tuple[str, str, str, float, str], ...] = ()
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}

    @classmethod
    def of(cls, record: ClaimRecord) -> KeptOptions:
        rows = [(o.instance_type, o.zone, o.capacity_type, o.price, o.reservation_id) for o in record.options]
        room, kept = MOST_OPTIONS_BYTES, []
        for row in rows:
            room -= len(msgspec.json.encode(row)) + 1
            if room < 0:
                break
            kept.append(row)
        return cls(options=tuple(kept), capacity=record.capacity, allocatable=record.allocatable)

    def unpack(self) -> tuple[Option, ...]:
        return tuple(
            Option(instance_type=type_, zone=zone, capacity_type=capacity_type, price=price, reservation_id=reservation)
            for type_, zone, capacity_type, price, reservation in self.options
        )


def _decoded(text: str, kind: type[T], default: T) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return default


def is_planned_claim(claim: NodeClaim) -> bool:
    """Was it made from a plan of ours? Others (a user's own, another controller's) are none of our business."""
    annotations = claim.metadata.annotations
    return names.OPTIONS_ANNOTATION in annotations and names.PODS_ANNOTATION in annotations


def kept_options(claim: NodeClaim) -> KeptOptions:
    return _decoded(claim.metadata.annotations.get(names.OPTIONS_ANNOTATION, ""), KeptOptions, KeptOptions())


def attempts_of(claim: NodeClaim) -> tuple[Attempt, ...]:
    return decode_attempts(claim.metadata.annotations.get(names.ATTEMPTS_ANNOTATION, ""))


def pods_of(claim: NodeClaim) -> tuple[ClaimPod, ...]:
    """The pods that it was made for; their batches are not known any more."""
    rows = _decoded(claim.metadata.annotations.get(names.PODS_ANNOTATION, ""), tuple[tuple[str, str, Role], ...], ())
    node_pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, "")
    return tuple(ClaimPod(uid=uid, key=key, role=role, node_pool=node_pool) for uid, key, role in rows)


def node_labels(
    node_pool: str, labels: Mapping[str, str], requirements: Iterable[NodeSelectorRequirement]
) -> dict[str, str]:
    """Labels of a claim's node, as far as they are known before the instance: the NodePool's, and every requirement
    that leaves one value.
    """
    single = {r.key: r.values[0] for r in requirements if r.operator == "In" and len(r.values) == 1}
    return {**single, **labels, names.NODEPOOL_LABEL: node_pool}


def first_request(record: ClaimRecord, cluster: str, *, named: bool, now: datetime) -> LaunchRequest:
    """What the claim asks of the cloud. named: the node can be given its name beforehand: the claim's."""
    return LaunchRequest(
        token="",
        issued_at=now,
        cluster=cluster,
        node_claim=record.name,
        node_pool=record.node_pool,
        options=(),
        node_name=record.name if named else "",
        node_class=record.node_class,
        labels=node_labels(record.node_pool, record.labels, record.requirements),
    )


def node_claim_body(record: ClaimRecord, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """The NodeClaim as it is created: before the cloud is called, with its finalizer."""
    spec: dict[str, Any] = {
        "requirements": msgspec.to_builtins(record.requirements),
        "resources": {"requests": format_resources(record.requests)},
        "nodeClassRef": msgspec.to_builtins(record.node_class),
    }
    if record.taints:
        spec["taints"] = msgspec.to_builtins(record.taints)
    if record.startup_taints:
        spec["startupTaints"] = msgspec.to_builtins(record.startup_taints)
    if record.expire_after:
        spec["expireAfter"] = record.expire_after
    if record.termination_grace_period:
        spec["terminationGracePeriod"] = record.termination_grace_period
    own = [(pod.uid, pod.key, pod.role) for pod in record.pods if pod.role is not Role.REST]
    return {
        "metadata": {
            "name": record.name,
            "finalizers": [names.TERMINATION_FINALIZER],
            "labels": {**record.labels, names.NODEPOOL_LABEL: record.node_pool},
            "annotations": {
                **record.annotations,
                names.OPTIONS_ANNOTATION: msgspec.json.encode(KeptOptions.of(record)).decode(),
                names.PODS_ANNOTATION: msgspec.json.encode(own).decode(),
                names.ATTEMPTS_ANNOTATION: encode_attempts(attempts),
                names.PLAN_ANNOTATION: record.plan,
            },
            "ownerReferences": [
                {
                    "apiVersion": NODE_POOLS.api_version,
                    "kind": NODE_POOLS.kind,
                    "name": record.node_pool,
                    "uid": record.node_pool_uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def node_body(claim: NodeClaim, instance: Instance) -> dict[str, Any]:
    """The Node as we create it where the provider lets us name it. Nobody but us puts pods there while it has our
    taint.
    """
    taints = unique_taints((*claim.spec.taints, *claim.spec.startup_taints, names.NOT_READY_TAINT))
    return {
        "metadata": {
            "name": instance.node_name,
            "finalizers": [names.TERMINATION_FINALIZER],
            "labels": wanted_node_labels(claim, instance),
            "ownerReferences": [
                {
                    "apiVersion": NODE_CLAIMS.api_version,
                    "kind": NODE_CLAIMS.kind,
                    "name": claim.name,
                    "uid": claim.metadata.uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"providerID": instance.provider_id, "taints": msgspec.to_builtins(taints)},
    }


def node_patch(claim: NodeClaim, instance: Instance, node: Node) -> dict[str, Any] | None:
    """What a Node that exists lacks of `node_body`; None: nothing. One that has joined keeps the taints it has."""
    meta: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    missing = {k: v for k, v in wanted_node_labels(claim, instance).items() if k not in node.metadata.labels}
    if missing:
        meta["labels"] = missing
    if names.TERMINATION_FINALIZER not in node.metadata.finalizers and not node.is_terminating:
        meta["finalizers"] = [*node.metadata.finalizers, names.TERMINATION_FINALIZER]
    if not node.spec.provider_id:
        spec["providerID"] = instance.provider_id
    if node.metadata.labels.get(names.REGISTERED_LABEL) != "true":
        wanted = (*claim.spec.taints, *claim.spec.startup_taints, names.NOT_READY_TAINT)
        kept = tuple(t for t in node.spec.taints if t.key != names.UNREGISTERED_TAINT.key)
        taints = unique_taints((*kept, *wanted))
        if taints != node.spec.taints:
            spec["taints"] = msgspec.to_builtins(taints)
    if not meta and not spec:
        return None
    body: dict[str, Any] = {
        "metadata": {**meta, "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    }
    if spec:
        body["spec"] = spec
    return body


def wanted_node_labels(claim: NodeClaim, instance: Instance) -> dict[str, str]:
    pool = claim.metadata.labels.get(names.NODEPOOL_LABEL, instance.node_pool)
    known = node_labels(pool, claim.metadata.labels, claim.spec.requirements)
    return {**known, **instance.labels}


def unique_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Each key and effect once, the first one's value."""
    found: dict[tuple[str, str], Taint] = {}
    for taint in taints:
        found.setdefault((taint.key, taint.effect), taint)
    return tuple(found.values())


def instance_labels(instance: Instance) -> dict[str, str]:
    """Labels of the NodeClaim that tell what was launched."""
    known = {
        **instance.labels,
        names.INSTANCE_TYPE_LABEL: instance.instance_type,
        names.ZONE_LABEL: instance.zone,
        names.CAPACITY_TYPE_LABEL: instance.capacity_type,
    }
    return {key: known[key] for key in NODE_CLAIM_LABELS if known.get(key)}


def launched_status(claim: NodeClaim, instance: Instance, now: datetime) -> dict[str, Any]:
    """Status of a NodeClaim whose instance is there."""
    message = f"{instance.instance_type} in {instance.zone} ({instance.capacity_type}), {instance.price:.4g} $/h"
    wanted = [Condition(type=ConditionType.LAUNCHED, status="True", reason="Launched", message=message)]
    if not any(condition.type == ConditionType.READY for condition in claim.status.conditions):
        why = "its node has not joined yet"
        wanted.append(Condition(type=ConditionType.READY, status="Unknown", reason="NodeNotReady", message=why))
    conditions = merged_conditions(claim.status.conditions, wanted, now) or claim.status.conditions
    status: dict[str, Any] = {
        "providerID": instance.provider_id,
        "capacity": format_resources(instance.capacity),
        "allocatable": format_resources(instance.allocatable),
        "conditions": [condition_json(condition) for condition in conditions],
    }
    if instance.node_name:
        status["nodeName"] = instance.node_name
    if instance.image_id:
        status["imageID"] = instance.image_id
    return status


def has_condition(conditions: Iterable[Condition], type_: str, status: str = "True") -> bool:
    return any(c.type == type_ and c.status == status for c in conditions)


# Adoption -------------------------------------------------------------------------------------------------------------


def adoptions(claims: Iterable[NodeClaim]) -> list[Adoption]:
    """Records for listed NodeClaims (design §4, rule 4), by name. Those with an instance come first: a pod that several
    claims have is counted on the first.
    """
    ours = sorted((c for c in claims if is_planned_claim(c)), key=lambda c: (not c.status.provider_id, c.name))
    pods = {claim.name: pods_of(claim) for claim in ours}
    holders: dict[str, list[str]] = {}
    for claim in ours:
        for pod in pods[claim.name]:
            holders.setdefault(pod.uid, []).append(claim.name)
    shared = Counter({uid: len(claim_names) for uid, claim_names in holders.items()})
    found = []
    for claim in ours:
        rivals = sorted(
            {
                other
                for pod in pods[claim.name]
                if shared[pod.uid] > 1
                for other in holders[pod.uid]
                if other != claim.name
            }
        )
        found.append(adoption(claim, rivals))
    return found


def adoption(claim: NodeClaim, rivals: Sequence[str] = ()) -> Adoption:
    """The record that a NodeClaim tells of itself. rivals: other claims that share pods with it."""
    kept = kept_options(claim)
    options = kept.unpack()
    owner = next((o for o in claim.metadata.owner_references if o.kind == NODE_POOLS.kind), None)
    launched = bool(claim.status.provider_id)
    state = State.LAUNCHED if launched else State.CREATED
    labels = claim.metadata.labels

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    fields = {
        "uid": claim.metadata.uid,
        "plan": claim.metadata.annotations.get(names.PLAN_ANNOTATION, ""),
        "nodepool": labels.get(names.NODEPOOL_LABEL, ""),
        "nodepool_uid": owner.uid if owner is not None else "",
        "node_class": text(claim.spec.node_class_ref),
        "requirements": text(claim.spec.requirements),
        "labels": text({k: v for k, v in labels.items() if k != names.NODEPOOL_LABEL}),
        "taints": text(claim.spec.taints),
        "startup_taints": text(claim.spec.startup_taints),
        "options": text(options),
        "requests": text(_resources(claim.spec.resources.requests)),
        "capacity": text(_resources(claim.status.capacity) if launched else kept.capacity),
        "allocatable": text(_resources(claim.status.allocatable) if launched else kept.allocatable),
        "attempts": claim.metadata.annotations.get(names.ATTEMPTS_ANNOTATION, ""),
        "price": f"{_price(claim, options):.6g}",
        "provider_id": claim.status.provider_id,
        "node": claim.status.node_name,
        "instance_type": labels.get(names.INSTANCE_TYPE_LABEL, "") if launched else "",
        "zone": labels.get(names.ZONE_LABEL, "") if launched else "",
        "capacity_type": labels.get(names.CAPACITY_TYPE_LABEL, "") if launched else "",
        "rivals": text(list(rivals)),
        "reason": "Adopted",
    }
    return Adoption(
        name=claim.name,
        state=State.FAILING if claim.is_terminating else state,
        settled=has_condition(claim.status.conditions, ConditionType.REGISTERED) and not claim.is_terminating,
        disputed=bool(rivals),
        fields=fields,
        pods=pods_of(claim),
    )


def _resources(quantities: Mapping[str, Any]) -> dict[str, int]:
    try:
        return parse_resources(quantities, round_up=False)
    except QuantityError:
        return {}


def _price(claim: NodeClaim, options: Sequence[Option]) -> float:
    labels = claim.metadata.labels
    launched = [
        option.price
        for option in options
        if option.instance_type == labels.get(names.INSTANCE_TYPE_LABEL)
        and option.zone == labels.get(names.ZONE_LABEL)
        and option.capacity_type == labels.get(names.CAPACITY_TYPE_LABEL)
    ]
    return launched[0] if launched else (options[0].price if options else 0.0)
