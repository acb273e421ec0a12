"""Binding, eviction, scale: writes to a part of an object under rules of their own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wainwright.sim.apiserver.errors import (
    ApiError,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    too_many_requests,
)
from wainwright.sim.apiserver.kinds import Kind, Object
from wainwright.sim.apiserver.requests import timestamp
from wainwright.sim.apiserver.selectors import matches_selector, selector_text
from wainwright.sim.apiserver.store import Record
from wainwright.sim.apiserver.writes import Writer

_BINDING = Kind("", "v1", "Binding", "bindings")


def success(kind: Kind | None = None, record: Record | None = None) -> Object:
    """The Status that answers what has no object to show."""
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if kind is not None and record is not None:
        details = {"name": record.name, "group": kind.group, "kind": kind.plural, "uid": record.uid}
        body["details"] = {key: value for key, value in details.items() if value}
    else:
        body["code"] = 201
    return body


def with_condition(conditions: Any, condition: Object) -> list[Object]:
    """Conditions with this one in the place of its type; the time of transition stays while the status does."""
    kept: list[Object] = [dict(item) for item in conditions or ()]
    for index, old in enumerate(kept):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                condition = {**condition, "lastTransitionTime": old.get("lastTransitionTime")}
            kept[index] = condition
            return kept
    return [*kept, condition]


def bind(
    writer: Writer, pods: Kind, namespace: str, name: str, binding: Object, now: datetime, *, dry_run: bool
) -> None:
    """Put a pod on a node, once. The node need not exist."""
    target = binding.get("target")
    node = target.get("name") if isinstance(target, dict) else None
    if not node:
        raise ApiError(500, "", "target.name: Required value")
    if isinstance(target, dict) and target.get("kind") not in (None, "", "Node"):
        fault = invalid("target.kind", target["kind"], 'must be empty, "Node"')
        raise invalid_object(_BINDING, name, [fault])
    record = writer.record(pods, namespace, name)
    pod = record.decode(pods)
    metadata = binding.get("metadata") or {}
    if metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    uid = metadata.get("uid")
    if uid and uid != record.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        raise conflict(pods, name, why)
    subject = f'pods/binding "{name}"'
    if pod["metadata"].get("deletionTimestamp"):
        raise _binding_conflict(subject, name, f"pod {name} is being deleted, cannot be assigned to a host")
    bound = pod["spec"].get("nodeName")
    if bound:
        raise _binding_conflict(subject, name, f'pod {name} is already assigned to node "{bound}"')
    if pod["spec"].get("schedulingGates"):
        raise _binding_conflict(subject, name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    if metadata.get("annotations"):
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **metadata["annotations"]}
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(now),
    }
    pod["status"]["conditions"] = with_condition(pod["status"].get("conditions"), condition)
    if not dry_run:
        writer.store.replace(writer.store.collection(pods), record, pod)


def _binding_conflict(subject: str, name: str, why: str) -> ApiError:
    message = f"Operation cannot be fulfilled on {subject}: {why}"
    return ApiError(409, "Conflict", message, details={"name": name, "kind": "pods/binding"})


def evict(
    writer: Writer, pods: Kind, namespace: str, name: str, eviction: Object, now: datetime, *, dry_run: bool
) -> None:
    """Delete a pod if its disruption budget allows it, and charge the budget at once."""
    record = writer.record(pods, namespace, name)
    own = (eviction.get("metadata") or {}).get("name")
    if own and own != name:
        raise bad_request(f"name in URL does not match name in Eviction object: {name} and {own}")
    options = {**(eviction.get("deleteOptions") or {})}
    pod = record.decode(pods)
    status = pod.get("status") or {}
    free = status.get("phase") in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp")
    if not free:
        _charge_budget(writer, namespace, record, pod, now, dry_run=dry_run)
    if not dry_run and not pod["metadata"].get("deletionTimestamp"):
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(now),
        }
        pod["status"] = {**status, "conditions": with_condition(status.get("conditions"), condition)}
        record = writer.store.replace(writer.store.collection(pods), record, pod)
    writer.delete(pods, record, options, now, dry_run=dry_run)


def _charge_budget(
    writer: Writer, namespace: str, record: Record, pod: Object, now: datetime, *, dry_run: bool
) -> None:
    budgets = writer.builtin("policy", "poddisruptionbudgets")
    found = [
        (budget, obj)
        for budget in writer.store.collection(budgets).select(namespace)
        if matches_selector((obj := budget.decode(budgets)).get("spec", {}).get("selector"), record.labels)
    ]
    if not found:
        return
    if len(found) > 1:
        raise ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    budget, obj = found[0]
    status = obj.get("status") or {}
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )
    if not ready:
        always = obj["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        healthy = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
        if always or healthy:
            return
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        raise _exhausted(f"The disruption budget {budget.name} is still being processed by the server.", 10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _exhausted(
            f"The disruption budget {budget.name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
    obj["status"] = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**(status.get("disruptedPods") or {}), record.name: timestamp(now)},
    }
    if not dry_run:
        writer.store.replace(writer.store.collection(budgets), budget, obj)


def _exhausted(cause: str, retry_after_seconds: int = 0) -> ApiError:
    return too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after_seconds,
        [{"reason": "DisruptionBudget", "message": cause}],
    )


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def scale_of(kind: Kind, obj: Object) -> Object:
    """The Scale of an object: how many replicas it wants and has, and which pods they are."""
    assert kind.scale is not None
    metadata = obj["metadata"]
    status: Object = {"replicas": _at(obj, kind.scale.status_replicas) or 0}
    selector = _at(obj, kind.scale.selector) if kind.scale.selector else None
    if isinstance(selector, dict):
        plain = kind.plural == "replicationcontrollers"
        selector = selector_text({"matchLabels": selector} if plain else selector)
    if selector:
        status["selector"] = selector
    replicas = _at(obj, kind.scale.spec_replicas)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in metadata
        },
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def rescale(writer: Writer, kind: Kind, record: Record, scale: Object, now: datetime, *, dry_run: bool) -> Object:
    """Take the wanted replicas of a Scale over; the Scale as it is then."""
    assert kind.scale is not None
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    title = Kind("autoscaling", "v1", "Scale", "scales")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
    if replicas < 0:
        fault = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object(title, record.name, [fault])
    obj = record.decode(kind)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    holder = obj
    for key in kind.scale.spec_replicas[:-1]:
        holder = holder.setdefault(key, {})
    holder[kind.scale.spec_replicas[-1]] = replicas
    stored = writer.update(kind, record, obj, now, dry_run=dry_run, from_patch=not version)
    return scale_of(kind, stored.decode(kind))
