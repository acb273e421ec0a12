"""From the cluster view, the claims' records and the live plans to the Snapshot that a solve works on. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from wainwright.api import names
from wainwright.api.base import PodUid
from wainwright.api.daemonsets import DaemonSet
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Node, Taint
from wainwright.api.pods import Pod
from wainwright.api.quantities import QuantityError, parse_resources
from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.instance_types import Catalog, OfferingKey
from wainwright.scheduling.snapshot import NodeState, Snapshot


class ClaimState(msgspec.Struct, frozen=True, kw_only=True):
    """What a solve needs of a claim's record. allocatable, capacity: see NodeState; empty once its Node is in view."""

    name: str
    state: str
    node: str = ""
    node_pool: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    price: float = 0.0

    @property
    def is_failing(self) -> bool:
        return self.state in ("failing", "failed")


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read in one atomic step. planned: pod UID → `claim/NAME` or `node/NAME`. refused: UID of a
    NodePool whose launches the cloud refuses → why.
    """

    epoch: str
    version: int
    read_at: datetime
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    node_claims: tuple[NodeClaim, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CsiNode, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    claims: tuple[ClaimState, ...] = ()
    planned: dict[PodUid, str] = {}
    unavailable: frozenset[OfferingKey] = frozenset()
    refused: dict[str, str] = {}


def usable_node_pools(node_pools: Iterable[NodePool]) -> tuple[NodePool, ...]:
    """NodePools that may get new claims, in priority order: not being deleted, not static, not found invalid.

    A NodePool whose conditions nobody has written yet counts as valid; its own requirements are checked by the solve.
    """

    def is_refused(pool: NodePool) -> bool:
        return any(
            c.type in ("ValidationSucceeded", "NodeClassReady") and c.status == "False" for c in pool.status.conditions
        )

    return tuple(
        sorted(
            (
                pool
                for pool in node_pools
                if pool.metadata.deletion_timestamp is None and pool.spec.replicas is None and not is_refused(pool)
            ),
            key=lambda pool: pool.priority,
        )
    )


def is_temporary(taint: Taint) -> bool:
    """Taints that a node which is still starting sheds by itself: ours, and Kubernetes' not-ready and unreachable."""
    return taint.key in (
        names.NOT_READY_TAINT.key,
        names.UNREGISTERED_TAINT.key,
        names.NODE_NOT_READY_KEY,
        names.NODE_UNREACHABLE_KEY,
        "node.cloudprovider.kubernetes.io/uninitialized",
    )


def build_snapshot(
    state: ClusterState,
    node_pools: tuple[NodePool, ...],
    catalogs: Mapping[str, Catalog],
    *,
    preference_policy: str = "Respect",
    min_values_policy: str = "Strict",
) -> Snapshot:
    """The Snapshot of `state`, every plan counted that the view does not show yet, each claim and pod once.

    A planned pod counts on its target until the view shows it bound or gone; a claim counts from its record until its
    Node is in the view, and from its NodeClaim where it has no record (about to be withdrawn: takes no new pods).
    """
    by_uid = {pod.uid: pod for pod in state.pods}
    claims = {claim.name: claim for claim in state.claims}
    node_of_claim = {claim.name: claim.node for claim in state.claims if claim.node}
    claim_of_node = {node: claim for claim, node in node_of_claim.items()}
    shown = {node.metadata.name for node in state.nodes}

    on_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in state.pods:
        if pod.is_bound and not pod.is_terminal:
            on_node[pod.spec.node_name].append(pod)
    on_claim: dict[str, list[Pod]] = defaultdict(list)
    for uid, target in sorted(state.planned.items()):
        planned_pod = by_uid.get(uid)
        if planned_pod is None or planned_pod.is_bound:
            continue
        kind, _, name = target.partition("/")
        if kind == "claim" and node_of_claim.get(name, "") not in shown:
            on_claim[name].append(planned_pod)
        else:
            on_node[node_of_claim.get(name, name) if kind == "claim" else name].append(planned_pod)

    startup = {pool.name: pool.spec.template.spec.startup_taints for pool in state.node_pools}
    nodes = [
        _existing(node, claims.get(claim_of_node.get(node.metadata.name, "")), on_node, startup) for node in state.nodes
    ]
    nodes += [
        _in_flight(claim, on_claim[claim.name])
        for claim in state.claims
        if claim.state != "failed" and claim.node not in shown
    ]
    return Snapshot(
        taken_at=state.read_at,
        node_pools=node_pools,
        catalogs=dict(catalogs),
        nodes=tuple(sorted(nodes, key=lambda node: node.name)),
        daemon_sets=state.daemon_sets,
        unavailable=state.unavailable,
        persistent_volume_claims=state.persistent_volume_claims,
        persistent_volumes=state.persistent_volumes,
        storage_classes=state.storage_classes,
        csi_nodes=state.csi_nodes,
        namespaces=state.namespaces,
        preference_policy=preference_policy,
        min_values_policy=min_values_policy,
    )


def _existing(
    node: Node,
    claim: ClaimState | None,
    on_node: Mapping[str, list[Pod]],
    startup_taints: Mapping[str, tuple[Taint, ...]],
) -> NodeState:
    name = node.metadata.name
    pool = node.metadata.labels.get(names.NODEPOOL_LABEL, "")
    starting = startup_taints.get(pool, ())
    initialized = claim is None or node.metadata.labels.get(names.INITIALIZED_LABEL) == "true"
    try:
        allocatable = parse_resources(node.status.allocatable, round_up=False)
        capacity = parse_resources(node.status.capacity, round_up=False)
    except QuantityError:
        allocatable, capacity = {}, {}
    if claim is not None and not allocatable:
        allocatable, capacity = dict(claim.allocatable), dict(claim.capacity)
    return NodeState(
        name=name,
        labels=node.metadata.labels,
        taints=tuple(t for t in node.spec.taints if initialized or not (is_temporary(t) or t in starting)),
        allocatable=allocatable,
        capacity=capacity,
        pods=tuple(on_node.get(name, ())),
        node_pool=pool,
        claim="" if claim is None else claim.name,
        initialized=initialized,
        accepts=not (node.spec.unschedulable or node.is_terminating or (claim is not None and claim.is_failing)),
        price=0.0 if claim is None else claim.price,
    )


def _in_flight(claim: ClaimState, pods: list[Pod]) -> NodeState:
    return NodeState(
        name=claim.node or claim.name,
        labels=claim.labels,
        taints=claim.taints,
        allocatable=claim.allocatable,
        capacity=claim.capacity,
        pods=tuple(pods),
        node_pool=claim.node_pool,
        claim=claim.name,
        initialized=False,
        in_flight=True,
        accepts=not claim.is_failing,
        price=claim.price,
    )
