"""From manifests, a catalog and, where asked for, the running cluster to what the solver takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.api.names import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODEPOOL_LABEL,
    OS_LABEL,
    ZONE_LABEL,
)
from wainwright.api.nodepools import (
    NodeClaimTemplate,
    NodePool,
    NodePoolSpec,
    NodeSelectorRequirement,
    TemplateSpec,
)
from wainwright.api.nodes import Node
from wainwright.api.pods import Pod
from wainwright.api.quantities import format_quantity
from wainwright.api.volumes import CsiNode
from wainwright.cloud.errors import CloudError
from wainwright.provisioning.snapshots import ClusterState, build_snapshot, usable_node_pools
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Reason, ReasonCode
from wainwright.scheduling.scenario import EPOCH
from wainwright.scheduling.snapshot import Snapshot
from workers.plan.admission import Admission, namespaces_with_labels
from workers.plan.findings import Findings
from workers.plan.manifests import Manifests
from workers.plan.storage import read_storage, with_guesses
from workers.plan.workloads import daemon_sets, gather

CatalogOf = Callable[[NodePool], Catalog]
"""What a NodePool can launch. Raises CloudError."""

DEFAULT_POOL = "default"


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned. name: of the scenario. refusals: why NodePools were left out, told to pods without a place."""

    name: str = ""
    snapshot: Snapshot
    pods: tuple[Pod, ...]
    refusals: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """preferences: Respect or Ignore; min_values: Strict or BestEffort."""

    preferences: str = "Respect"
    min_values: str = "Strict"


class CurrentCluster(NamedTuple):
    """A running Wainwright's view of its cluster, what its cloud offers, and how it is set to solve."""

    state: ClusterState
    catalog_of: CatalogOf
    policies: Policies


def empty_cluster(now: datetime = EPOCH) -> ClusterState:
    """No cluster: nothing runs. The instant is fixed, so that the same manifests give the same plan on any day."""
    return ClusterState(epoch="", version=0, read_at=now)


def assemble(
    manifests: Manifests,
    cluster: ClusterState,
    catalog_of: CatalogOf,
    findings: Findings,
    *,
    policies: Policies = Policies(),  # noqa: B008 - frozen
    guess: bool = True,
) -> PlanInput:
    """Manifests laid over the cluster: what they name takes the place of what it has; the rest of it stays.

    guess: make up what was not given and a cluster would have (a NodePool, StorageClasses), each with a warning.
    """
    admission = Admission(manifests, findings)
    force = gather(manifests, admission, findings, cluster.read_at, cluster.pods)
    waiting = [pod for pod in cluster.pods if pod.is_provisionable and pod.uid not in cluster.planned]
    if waiting:
        findings.warn(f"{len(waiting)} pods that wait in the cluster now are planned too")
    pods = (*waiting, *force.pending)
    storage = read_storage(manifests, findings, force.claims)
    storage = storage._replace(
        claims=_laid_over(cluster.persistent_volume_claims, storage.claims),
        volumes=_laid_over(cluster.persistent_volumes, storage.volumes),
        classes=_laid_over(cluster.storage_classes, storage.classes),
    )
    if guess:
        storage = with_guesses(storage, pods, findings)
    pools, refusals = _node_pools(manifests, cluster, findings, guess=guess)
    catalogs, pools, sold = _catalogs(pools, catalog_of)
    names = {pod.metadata.namespace for pod in (*cluster.pods, *pods)}
    state = msgspec.structs.replace(
        cluster,
        pods=(*cluster.pods, *force.pending, *force.bound),
        nodes=_nodes(manifests, cluster, catalogs, findings),
        node_pools=_laid_over(cluster.node_pools, manifests.node_pools.values()),
        daemon_sets=_laid_over(cluster.daemon_sets, daemon_sets(manifests, admission, findings)),
        persistent_volume_claims=storage.claims,
        persistent_volumes=storage.volumes,
        storage_classes=storage.classes,
        csi_nodes=_laid_over(cluster.csi_nodes, manifests.typed("CSINode", CsiNode, findings)),
        namespaces=namespaces_with_labels(manifests, names) | cluster.namespaces | _given_namespaces(manifests),
    )
    _tell_stray_pods(force.bound, state, findings)
    snapshot = build_snapshot(
        state,
        pools,
        catalogs,
        preference_policy=policies.preferences,
        min_values_policy=policies.min_values,
    )
    if not pods:
        findings.warn("there is no pod to place in what was read")
    return PlanInput(snapshot=snapshot, pods=pods, refusals=(*refusals, *sold), warnings=findings.all_texts())


def _laid_over(below: Iterable[Resource], above: Iterable[Resource]) -> tuple:  # type: ignore[type-arg]
    """Both, by key; what is above takes the place of what has the same key below. In order of the key."""
    found = {each.metadata.key: each for each in (*below, *above)}  # type: ignore[attr-defined]
    return tuple(found[key] for key in sorted(found))


def _given_namespaces(manifests: Manifests) -> dict[str, dict[str, str]]:
    labels = namespaces_with_labels(manifests)
    return {item.name: labels[item.name] for item in manifests.of("Namespace")}


def _node_pools(
    manifests: Manifests, cluster: ClusterState, findings: Findings, *, guess: bool
) -> tuple[tuple[NodePool, ...], list[Reason]]:
    kept = [pool for pool in cluster.node_pools if pool.name not in manifests.refused_pools]
    given = _laid_over(kept, manifests.node_pools.values())
    refused = dict(manifests.refused_pools)
    usable = usable_node_pools(given)
    for pool in given:
        if pool not in usable:
            bad = [c.message for c in pool.status.conditions if c.status == "False" and c.type != "Ready"]
            refused[pool.name] = "; ".join(bad) or "it is being deleted or has a fixed number of replicas"
    refusals = [
        Reason(where=f"nodepool/{name}", code=ReasonCode.INVALID, message=f"not used: {why}")
        for name, why in sorted(refused.items())
    ]
    if not given and not refused and guess:
        findings.warn(
            f"no NodePool is given: planned with one, {DEFAULT_POOL!r}, that allows every type, zone and architecture, "
            "spot and on-demand (give yours with --nodepools)"
        )
        return (default_node_pool(),), refusals
    return usable, refusals


def default_node_pool() -> NodePool:
    """Allows everything that runs Linux."""
    linux = NodeSelectorRequirement(key=OS_LABEL, operator="In", values=("linux",))
    template = NodeClaimTemplate(spec=TemplateSpec(requirements=(linux,)))
    return NodePool(metadata=ObjectMeta(name=DEFAULT_POOL), spec=NodePoolSpec(template=template))


def _catalogs(
    pools: Sequence[NodePool], catalog_of: CatalogOf
) -> tuple[dict[str, Catalog], tuple[NodePool, ...], list[Reason]]:
    catalogs: dict[str, Catalog] = {}
    usable: list[NodePool] = []
    refusals: list[Reason] = []
    for pool in pools:
        try:
            catalogs[pool.name] = catalog_of(pool)
            usable.append(pool)
        except CloudError as error:
            where = f"nodepool/{pool.name}"
            refusals.append(Reason(where=where, code=ReasonCode.NO_INSTANCE_TYPES, message=str(error)))
    return catalogs, tuple(usable), refusals


def _nodes(
    manifests: Manifests, cluster: ClusterState, catalogs: Mapping[str, Catalog], findings: Findings
) -> tuple[Node, ...]:
    given = [_sized(node, catalogs, findings) for node in manifests.typed("Node", Node, findings)]
    return _laid_over(cluster.nodes, given)


def _sized(node: Node, catalogs: Mapping[str, Catalog], findings: Findings) -> Node:
    """A node with its size; where it does not say, that of its instance type."""
    status, labels = node.status, node.metadata.labels
    if status.allocatable:
        return node
    name = node.metadata.name
    kind = labels.get(INSTANCE_TYPE_LABEL, "")
    for catalog in catalogs.values():
        for each in catalog.instance_types:
            if each.name == kind:
                findings.warn(
                    f"Node {name}: has no status.allocatable and no capacity; taken from the catalog's {kind}"
                )
                sizes = {
                    "allocatable": {n: format_quantity(n, amount) for n, amount in each.allocatable.items()},
                    "capacity": {n: format_quantity(n, amount) for n, amount in each.capacity.items()},
                }
                return msgspec.structs.replace(node, status=msgspec.structs.replace(status, **sizes))
    findings.warn(
        f"Node {name}: has no status.allocatable, no capacity and no known instance type; nothing can be placed on it"
    )
    return node


def _tell_stray_pods(bound: Sequence[Pod], state: ClusterState, findings: Findings) -> None:
    known = {node.metadata.name for node in state.nodes}
    stray = [pod for pod in bound if pod.spec.node_name not in known]
    if stray:
        names = sorted({pod.spec.node_name for pod in stray})
        findings.warn(
            f"{len(stray)} pods are bound to nodes that are not given ({', '.join(names[:3])}"
            f"{', …' if len(names) > 3 else ''}); they are left out"
        )


def price_of_node(labels: Mapping[str, str], catalogs: Mapping[str, Catalog]) -> float | None:
    """US dollars an hour of a node, by its labels; None where the catalogs do not know it."""
    catalog = catalogs.get(labels.get(NODEPOOL_LABEL, ""))
    for each in catalog.instance_types if catalog is not None else ():
        if each.name == labels.get(INSTANCE_TYPE_LABEL):
            for offering in each.offerings:
                if (offering.zone, offering.capacity_type) == (labels.get(ZONE_LABEL), labels.get(CAPACITY_TYPE_LABEL)):
                    return offering.price
    return None
