"""Objects with defaults: a test names only what matters to it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from wainwright.sim.controllers.objects import (
    DaemonSet,
    Deployment,
    Job,
    Node,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    StatefulSet,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
_uids = itertools.count(1)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _object(struct, name, spec, status, metadata):
    uid = f"uid-{next(_uids)}"
    meta = {"name": name, "uid": uid, "resourceVersion": "1", "creationTimestamp": text(NOW), **metadata}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, struct)


def a_pod(
    name: str = "pod",
    *,
    cpu: str = "",
    requests: dict[str, str] | None = None,
    on: str = "",
    ready: bool | None = None,
    phase: str = "Pending",
    labels: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """owner: kind and uid of the controlling owner. ready: the Ready condition, none if None."""
    wanted = {**({"cpu": cpu} if cpu else {}), **(requests or {})}
    containers = spec.pop("containers", [{"name": "c", "image": "i", "resources": {"requests": wanted}}])
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready), "lastTransitionTime": text(NOW)}]
    meta: dict[str, Any] = {"namespace": "default", "labels": labels or {}, **(metadata or {})}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner[0], "name": "owner", "uid": owner[1], "controller": True}
        ]
    whole = {"containers": containers, **({"nodeName": on} if on else {}), **spec}
    return _object(Pod, name, whole, {"phase": phase, "conditions": conditions, **(status or {})}, meta)


def a_node(
    name: str = "node",
    *,
    cpu: str = "4",
    pods: str = "110",
    more: dict[str, str] | None = None,
    zone: str = "",
    labels: dict[str, str] | None = None,
    ready: str = "True",
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Node:
    """ready: status of the Ready condition, no condition if empty."""
    room = {"cpu": cpu, "memory": "16Gi", "pods": pods, **(more or {})}
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    every = {
        "kubernetes.io/hostname": name,
        **({"topology.kubernetes.io/zone": zone} if zone else {}),
        **(labels or {}),
    }
    whole = {"capacity": room, "allocatable": room, "conditions": conditions, **(status or {})}
    return _object(Node, name, spec, whole, {"labels": every, "annotations": annotations or {}})


def _workload(struct, kind_spec, status, metadata, template_spec=None, template_metadata=None):
    template = {
        "metadata": template_metadata or {"labels": {"app": "x"}},
        "spec": template_spec or {"containers": [{"name": "c", "image": "i"}]},
    }
    raw = msgspec.json.encode(
        {
            "metadata": {
                "namespace": "default",
                "name": "owner",
                "uid": f"uid-{next(_uids)}",
                "generation": 1,
                **metadata,
            },
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **kind_spec},
            "status": status,
        }
    )
    return msgspec.json.decode(raw, type=struct)


def a_replica_set(name="owner", *, replicas=3, revision=1, available=None, status=None, **spec) -> ReplicaSet:
    counts = {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}
    if available is not None:
        counts["availableReplicas"] = counts["readyReplicas"] = available
    metadata = {"name": name, "annotations": {"deployment.kubernetes.io/revision": str(revision)}}
    return _workload(ReplicaSet, {"replicas": replicas, **spec}, {**counts, **(status or {})}, metadata)


def a_deployment(*, replicas=4, status=None, template_spec=None, metadata=None, **spec) -> Deployment:
    return _workload(Deployment, {"replicas": replicas, **spec}, status or {}, metadata or {}, template_spec)


def a_stateful_set(*, replicas=3, status=None, template_spec=None, **spec) -> StatefulSet:
    return _workload(StatefulSet, {"replicas": replicas, **spec}, status or {}, {"name": "db"}, template_spec)


def a_daemon_set(*, template_spec=None, status=None, **spec) -> DaemonSet:
    return _workload(DaemonSet, spec, status or {}, {}, template_spec)


def a_job(*, status=None, template_spec=None, **spec) -> Job:
    return _workload(Job, spec, status or {}, {}, template_spec)


def a_budget(*, status=None, **spec) -> PodDisruptionBudget:
    selector = {"matchLabels": {"app": "x"}}
    return _object(
        PodDisruptionBudget,
        "budget",
        {"selector": selector, **spec},
        status or {},
        {"namespace": "default", "generation": 1},
    )
