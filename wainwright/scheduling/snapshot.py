"""The state of the cluster as a solve sees it: immutable, read at one instant, replayable."""

from __future__ import annotations

from datetime import datetime

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.daemonsets import DaemonSet
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Taint
from wainwright.api.pods import Pod
from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.instance_types import Catalog, OfferingKey


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that exists, or a claim in flight, with what is on it.

    allocatable, capacity: milli-CPU for cpu, whole units otherwise. For a claim whose instance is not chosen yet,
    allocatable is the least over the types it keeps (what rests on it fits whichever comes), capacity the most (what a
    limit is charged). pods: bound here or planned to be, daemons included. accepts: False keeps it in the counts but
    takes no new pods (being deleted, cordoned, failing).
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    pods: tuple[Pod, ...] = ()
    node_pool: str = ""
    claim: str = ""
    """Name of its NodeClaim; the plan's placements on nodes in flight use it."""
    initialized: bool = True
    in_flight: bool = False
    accepts: bool = True
    price: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Input of a solve besides the pods. taken_at: the instant it was read.

    node_pools: those that may get claims (validated, ready, not being deleted), any order. catalogs: by NodePool name;
    pools of one provider share one object. namespaces: labels by namespace name.
    """

    taken_at: datetime
    node_pools: tuple[NodePool, ...] = ()
    catalogs: dict[str, Catalog] = {}
    nodes: tuple[NodeState, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    unavailable: frozenset[OfferingKey] = frozenset()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CsiNode, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    reserved_mode: str = "strict"
    """strict: a pod for which reserved capacity would do waits for it; fallback: it takes what else there is."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way to launch a claim. price: US dollars an hour."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    reservation_id: str = ""

    @property
    def key(self) -> OfferingKey:
        return OfferingKey(self.capacity_type, self.instance_type, self.zone)


__all__ = ["NodeState", "Option", "PodUid", "Snapshot"]
