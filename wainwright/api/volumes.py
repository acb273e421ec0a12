"""Volumes and their classes, as far as they narrow where a pod can run."""

from __future__ import annotations

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.api.pods import NodeSelector


class PersistentVolumeClaimSpec(Resource):
    storage_class_name: str | None = None
    volume_name: str = ""


class PersistentVolumeClaimStatus(Resource):
    phase: str = ""


class PersistentVolumeClaim(Resource):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(Resource):
    required: NodeSelector | None = None


class CsiPersistentVolumeSource(Resource):
    driver: str = ""


class PersistentVolumeSpec(Resource):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiPersistentVolumeSource | None = None
    storage_class_name: str = ""


class PersistentVolume(Resource):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyRequirement(Resource):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Resource):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Resource):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Resource):
    count: int | None = None


class CsiNodeDriver(Resource):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(Resource):
    drivers: tuple[CsiNodeDriver, ...] = ()


class CsiNode(Resource):
    metadata: ObjectMeta
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)
