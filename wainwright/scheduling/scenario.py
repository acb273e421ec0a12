"""Packing scenarios (`packing-scenario/v1`) and catalogs (`packing-catalog/v1`) as input of a solve."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from wainwright.api.daemonsets import DaemonSet, DaemonSetSpec, PodTemplate
from wainwright.api.meta import ObjectMeta, OwnerReference
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Taint
from wainwright.api.pods import Pod, PodSpec, Quantity
from wainwright.api.quantities import parse_resources
from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering, OfferingKey
from wainwright.scheduling.snapshot import NodeState, Snapshot

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""When a scenario's first pod was created; each further one a second later, so that list order is age."""


_T = TypeVar("_T")


class ScenarioError(ValueError):
    """A file that is not what it says it is; the message names the place."""


class _Type(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arch: str = "amd64"
    os: tuple[str, ...] = ("linux",)
    labels: dict[str, str] = {}
    capacity: dict[str, Quantity] = {}
    overhead: dict[str, Quantity] = {}
    offerings: tuple[Offering, ...] = ()


class _Catalog(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "packing-catalog/v1"
    name: str = ""
    region: str = ""
    well_known_labels: tuple[str, ...] = ()
    instance_types: tuple[_Type, ...] = ()


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    count: int | None = None
    daemon: bool = False


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    managed: bool = True
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    pods: tuple[_Pod, ...] = ()
    initialized: bool = True
    in_flight: bool = False


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    reserved_mode: str = "strict"


class _Scenario(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = "packing-scenario/v1"
    name: str = ""
    catalog: str = ""
    inline_catalog: _Catalog | None = None
    node_pools: tuple[NodePool, ...] = ()
    pods: tuple[_Pod, ...] = ()
    daemonsets: tuple[_Pod, ...] = ()
    nodes: tuple[_Node, ...] = ()
    unavailable_offerings: tuple[OfferingKey, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CsiNode, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    options: _Options = _Options()


class Scenario(NamedTuple):
    """A scenario as the solver takes it. Pods' UIDs are `uid/` and their name, unless the file gives one."""

    name: str
    snapshot: Snapshot
    pods: tuple[Pod, ...]


def read_catalog(text: bytes) -> Catalog:
    """A `packing-catalog/v1` document. Its version is a hash of its text. Raises ScenarioError."""
    raw = _decoded(text, _Catalog)
    if raw.schema != "packing-catalog/v1":
        raise ScenarioError(f"schema {raw.schema!r}: a catalog has packing-catalog/v1")
    return _catalog(raw, hashlib.sha256(text).hexdigest()[:16])


def read_scenario(text: bytes, catalog: Catalog | None = None) -> Scenario:
    """A `packing-scenario/v1` document. catalog: takes the place of the file it names. Raises ScenarioError."""
    raw = _decoded(text, _Scenario)
    if raw.schema != "packing-scenario/v1":
        raise ScenarioError(f"schema {raw.schema!r}: a scenario has packing-scenario/v1")
    if raw.inline_catalog is not None:
        catalog = _catalog(raw.inline_catalog, f"inline-{raw.name}")
    if catalog is None:
        raise ScenarioError(f"the catalog it names ({raw.catalog!r}) was not given")
    daemons = tuple(_daemon_set(each) for each in raw.daemonsets)
    snapshot = Snapshot(
        taken_at=EPOCH,
        node_pools=raw.node_pools,
        catalogs={pool.name: catalog for pool in raw.node_pools},
        nodes=tuple(_node(node, daemons) for node in raw.nodes),
        daemon_sets=daemons,
        unavailable=frozenset(raw.unavailable_offerings),
        persistent_volume_claims=raw.persistent_volume_claims,
        persistent_volumes=raw.persistent_volumes,
        storage_classes=raw.storage_classes,
        csi_nodes=raw.csi_nodes,
        namespaces=raw.namespaces,
        preference_policy=raw.options.preference_policy,
        min_values_policy=raw.options.min_values_policy,
        reserved_mode=raw.options.reserved_mode,
    )
    return Scenario(raw.name, snapshot, tuple(_expanded(raw.pods)))


def catalog_named_in(text: bytes) -> str:
    """The path of the catalog that a scenario names, relative to the scenario's file; "" when it brings its own."""
    raw = _decoded(text, _Scenario)
    return "" if raw.inline_catalog is not None else raw.catalog


def _decoded(text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise ScenarioError(str(error)) from error


def _catalog(raw: _Catalog, version: str) -> Catalog:
    return Catalog(
        version=version,
        region=raw.region,
        well_known=frozenset(raw.well_known_labels),
        instance_types=tuple(
            InstanceType(
                name=each.name,
                arch=each.arch,
                os=each.os,
                labels=each.labels,
                capacity=parse_resources(each.capacity, round_up=False),
                overhead=parse_resources(each.overhead),
                offerings=each.offerings,
            )
            for each in raw.instance_types
        ),
    )


def _expanded(pods: Iterable[_Pod]) -> Iterable[Pod]:
    age = 0
    for each in pods:
        for number in range(1 if each.count is None else each.count):
            name = each.metadata.name if each.count is None else f"{each.metadata.name}-{number}"
            yield Pod(metadata=_pod_meta(each.metadata, name, age), spec=each.spec)
            age += 1


def _pod_meta(raw: ObjectMeta, name: str, age: int, owner: str = "") -> ObjectMeta:
    changes: Mapping[str, Any] = {
        "name": name,
        "namespace": raw.namespace or "default",
        "uid": raw.uid or f"uid/{raw.namespace or 'default'}/{name}",
        "creation_timestamp": raw.creation_timestamp or EPOCH + timedelta(seconds=age),
        "owner_references": (OwnerReference(kind="DaemonSet", name=owner),) if owner else raw.owner_references,
    }
    return msgspec.structs.replace(raw, **changes)


def _daemon_set(raw: _Pod) -> DaemonSet:
    return DaemonSet(
        metadata=ObjectMeta(name=raw.metadata.name, namespace=raw.metadata.namespace or "kube-system"),
        spec=DaemonSetSpec(template=PodTemplate(metadata=raw.metadata, spec=raw.spec)),
    )


def _node(raw: _Node, daemons: tuple[DaemonSet, ...]) -> NodeState:
    pods: list[Pod] = []
    for each in raw.pods:
        for number in range(1 if each.count is None else each.count):
            name = each.metadata.name if each.count is None else f"{each.metadata.name}-{number}"
            owner = _owner(name, daemons) if each.daemon else ""
            meta = _pod_meta(each.metadata, f"{raw.name}/{name}", 0, owner)
            if owner:
                meta = msgspec.structs.replace(meta, namespace=_namespace(owner, daemons))
            spec = msgspec.structs.replace(each.spec, node_name=raw.name)
            pods.append(Pod(metadata=meta, spec=spec))
    return NodeState(
        name=raw.name,
        labels=raw.labels,
        taints=raw.taints,
        allocatable=parse_resources(raw.allocatable or raw.capacity, round_up=False),
        capacity=parse_resources(raw.capacity, round_up=False),
        pods=tuple(pods),
        node_pool=raw.labels.get("karpenter.sh/nodepool", "") if raw.managed else "",
        claim=raw.name if raw.in_flight else "",
        initialized=raw.initialized and not raw.in_flight,
        in_flight=raw.in_flight,
    )


def _owner(pod: str, daemons: tuple[DaemonSet, ...]) -> str:
    """The DaemonSet whose name the pod's begins with; the pod's own where there is none."""
    names = [d.metadata.name for d in daemons if pod.startswith(d.metadata.name)]
    return max(names, key=len, default=pod)


def _namespace(owner: str, daemons: tuple[DaemonSet, ...]) -> str:
    return next((d.metadata.namespace for d in daemons if d.metadata.name == owner), "default")
