"""Builders with defaults, and a solve that is always judged by the checker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from wainwright.api.daemonsets import DaemonSet
from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.scheduling.checker import check
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering
from wainwright.scheduling.plan import SolveBudget
from wainwright.scheduling.snapshot import NodeState, Snapshot
from wainwright.scheduling.solver import solve

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
GI = 2**30
ZONES = ("zone-a", "zone-b", "zone-c")


def a_pod(name="p", *, cpu="1", memory="1Gi", uid=None, labels=None, namespace="default", age=0, **spec):
    requests = {k: v for k, v in {"cpu": cpu, "memory": memory, **spec.pop("requests", {})}.items() if v is not None}
    raw = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "labels": labels or {},
            "creationTimestamp": (NOW - timedelta(hours=1) + timedelta(seconds=age)).isoformat(),
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}], **spec},
    }
    return msgspec.convert(raw, Pod, strict=False)


def pods(count, name="p", **kwargs):
    return [a_pod(f"{name}-{i}", age=i, **kwargs) for i in range(count)]


def requirement(key, operator, *values, min_values=None):
    raw = {"key": key, "operator": operator, "values": list(values)}
    return raw if min_values is None else {**raw, "minValues": min_values}


def a_pool(name="general", *, requirements=(), labels=None, taints=(), startup_taints=(), weight=None, limits=None):
    raw = {
        "metadata": {"name": name, "uid": f"pool-{name}"},
        "spec": {
            "weight": weight,
            "limits": limits or {},
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "requirements": list(requirements),
                    "taints": list(taints),
                    "startupTaints": list(startup_taints),
                },
            },
        },
    }
    return msgspec.convert(raw, NodePool)


def a_type(name="m2", *, cpu=2, memory=4, price=0.1, pods=20, zones=ZONES, capacity_types=("on-demand",), **more):
    discounts = {"on-demand": 1.0, "spot": 0.4}
    offerings = tuple(
        Offering(zone=zone, capacity_type=kind, price=round(price * discounts[kind], 6))
        for zone in zones
        for kind in capacity_types
    )
    extra = more.pop("capacity", {})
    return InstanceType(
        name=name,
        capacity={"cpu": int(cpu * 1000), "memory": int(memory * GI), "pods": pods, **extra},
        offerings=more.pop("offerings", offerings),
        labels=more.pop("labels", {"example.com/cpu": str(cpu)}),
        **more,
    )


def a_catalog(*types, well_known=("example.com/cpu",), region="region-1"):
    types = types or (
        a_type("m2", cpu=2, memory=4, price=0.1),
        a_type("m4", cpu=4, memory=8, price=0.195),
        a_type("m8", cpu=8, memory=16, price=0.38),
    )
    return Catalog(version="1", region=region, well_known=frozenset(well_known), instance_types=tuple(types))


def a_node(name="n", *, cpu=4, memory=8, pods=(), zone="zone-a", labels=None, pool="general", max_pods=20, **more):
    room = {"cpu": int(cpu * 1000), "memory": int(memory * GI), "pods": max_pods}
    return NodeState(
        name=name,
        labels={
            "topology.kubernetes.io/zone": zone,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "karpenter.sh/capacity-type": "on-demand",
            **({"karpenter.sh/nodepool": pool} if pool else {}),
            **(labels or {}),
        },
        allocatable=room,
        capacity=room,
        pods=tuple(pods),
        node_pool=pool,
        **more,
    )


def a_daemon_set(name="agent", *, cpu="100m", memory="128Mi", namespace="kube-system", **spec):
    raw = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                    **spec,
                }
            }
        },
    }
    return msgspec.convert(raw, DaemonSet)


def a_snapshot(*, pools=None, catalog=None, **more):
    pools = tuple(pools if pools is not None else [a_pool()])
    catalog = catalog or a_catalog()
    return Snapshot(taken_at=NOW, node_pools=pools, catalogs={pool.name: catalog for pool in pools}, **more)


def solved(snapshot, some_pods, budget=None):
    """The plan, after the checker found nothing wrong with it."""
    plan = solve(snapshot, some_pods, NOW, budget or SolveBudget())
    assert check(snapshot, some_pods, plan) == []
    return plan


def reasons_of(plan, uid):
    return next(left.reasons for left in plan.unplaced if left.pod == uid)


def claim_of(plan, uid):
    return next(claim for claim in plan.claims if uid in claim.pods)


def zone_spread(max_skew=1, app="web", key="topology.kubernetes.io/zone", **more):
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def affinity_to(app, key="topology.kubernetes.io/zone", *, anti=False, preferred=None):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    side = "podAntiAffinity" if anti else "podAffinity"
    if preferred is None:
        return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": preferred, "podAffinityTerm": term}]}}


def node_affinity(*terms):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]
            }
        }
    }
