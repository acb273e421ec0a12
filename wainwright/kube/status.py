"""Conditions in an object's status: merged with those of others, written only when they say something new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from wainwright.api.meta import Condition, ObjectMeta
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import Resource


def merged_conditions(
    current: Sequence[Condition], wanted: Sequence[Condition], now: datetime
) -> tuple[Condition, ...] | None:
    """`current` with `wanted` in it, by type; None when nothing changes.

    A condition keeps its transition time while its status stays; types that are not wanted stay as they are.
    """
    by_type = {condition.type: condition for condition in current}
    changed = False
    for condition in wanted:
        old = by_type.get(condition.type)
        same_status = old is not None and old.status == condition.status
        since = old.last_transition_time if old is not None and same_status else None
        new = msgspec.structs.replace(condition, last_transition_time=since or now)
        if old is None or msgspec.structs.replace(old, last_transition_time=new.last_transition_time) != new:
            changed = True
            by_type[condition.type] = new
    return tuple(by_type.values()) if changed else None


def write_conditions(
    client: KubeClient,
    resource: Resource,
    meta: ObjectMeta,
    current: Sequence[Condition],
    wanted: Sequence[Condition],
    now: datetime,
    *,
    beside: Mapping[str, Any] | None = None,
    beside_changed: bool = False,
) -> bool:
    """Patches the status where a condition says something new (or beside_changed); whether it did.

    beside: other fields of the status, written in the same patch. Raises Conflict when the object is another version
    than the one that meta and current are from: look again when that version arrives.
    """
    conditions = merged_conditions(current, wanted, now)
    if conditions is None:
        if not beside_changed:
            return False
        conditions = tuple(current)
    body: dict[str, Any] = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {**(beside or {}), "conditions": [condition_json(condition) for condition in conditions]},
    }
    client.merge_patch(resource, meta.name, body, meta.namespace, subresource="status")
    return True


def condition_json(condition: Condition) -> dict[str, Any]:
    """As API servers want it: the required fields present though empty, times in whole seconds."""
    body: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or condition.type,
        "message": condition.message,
    }
    if condition.observed_generation:
        body["observedGeneration"] = condition.observed_generation
    if condition.last_transition_time is not None:
        body["lastTransitionTime"] = condition.last_transition_time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return body
