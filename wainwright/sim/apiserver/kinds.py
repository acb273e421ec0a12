"""What the server knows about each resource: names, scope, sub-resources. Built-in kinds stand in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale sub-resource finds its numbers, as tuples of keys; `selector` is None where there is none."""

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] | None = ("spec", "selector")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom resource: name, JSON path, OpenAPI type and format, priority (0 is always shown)."""

    name: str
    path: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, eq=False)
class Kind:
    """One served resource of one group and version.

    storage: key of the collection that holds the objects; kinds that are two views of the same objects share it.
    unconditional_update: may a PUT leave out metadata.resourceVersion?
    fields: extra field selectors, path by label; metadata.name and metadata.namespace always work.
    has_rules: are there CEL rules in the schema?
    inward, outward: conversion of a whole object to and from what is stored; None where only apiVersion differs.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: ScalePaths | None = None
    has_generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    schema: Mapping[str, Any] | None = None
    has_rules: bool = False
    custom: bool = False
    storage: str = ""
    inward: Callable[[Object], Object] | None = None
    outward: Callable[[Object], Object] | None = None

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """Name in messages: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def title(self) -> str:
        """Name of the kind in messages: `Pod`, `Deployment.apps`."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @cached_property
    def collection(self) -> str:
        """Key of the store's collection: `pods`, `deployments.apps`."""
        return self.storage or self.resource

    @cached_property
    def opening(self) -> bytes:
        """How the JSON of each object starts."""
        return f'{{"kind":"{self.name}","apiVersion":"{self.api_version}",'.encode()


def _event_inward(event: Object) -> Object:
    """events.k8s.io/v1 to the core form that is stored."""
    return _renamed(event, {new: old for old, new in _EVENT_FIELDS.items()}, "v1")


def _event_outward(event: Object) -> Object:
    renamed = _renamed(event, _EVENT_FIELDS, "events.k8s.io/v1")
    return {key: value for key, value in renamed.items() if value != ""}


_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def _renamed(event: Object, names: Mapping[str, str], api_version: str) -> Object:
    renamed = {names.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = api_version
    return renamed


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_POD_FIELDS = {
    path: tuple(path.split("."))
    for path in (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )
}
_EVENT_SELECTORS = {
    **{f"involvedObject.{name}": ("involvedObject", name) for name in _INVOLVED},
    "reason": ("reason",),
    "reportingComponent": ("reportingComponent",),
    "source": ("source", "component"),
    "type": ("type",),
}
_EVENT_SELECTORS_NEW = {
    **{f"regarding.{name}": ("involvedObject", name) for name in _INVOLVED},
    "reason": ("reason",),
    "reportingController": ("reportingComponent",),
    "type": ("type",),
}
_ALL = ("all",)


def _core(name: str, plural: str, **options: Any) -> Kind:
    return Kind("", "v1", name, plural, **options)


def _workload(name: str, plural: str, *short_names: str, scaled: bool = True) -> Kind:
    return Kind(
        "apps",
        "v1",
        name,
        plural,
        short_names=short_names,
        categories=_ALL,
        status=True,
        scale=ScalePaths() if scaled else None,
        has_generation=True,
        fields={"status.replicas": ("status", "replicas")} if name == "ReplicaSet" else {},
    )


def _storage(name: str, plural: str, **options: Any) -> Kind:
    return Kind("storage.k8s.io", "v1", name, plural, **options)


def _rbac(name: str, plural: str, *, namespaced: bool) -> Kind:
    return Kind("rbac.authorization.k8s.io", "v1", name, plural, namespaced=namespaced, create_on_update=True)


BUILT_IN: tuple[Kind, ...] = (
    _core("ConfigMap", "configmaps", short_names=("cm",)),
    _core("Endpoints", "endpoints", short_names=("ep",), create_on_update=True),
    _core("Event", "events", short_names=("ev",), fields=_EVENT_SELECTORS, create_on_update=True),
    _core("LimitRange", "limitranges", short_names=("limits",)),
    _core(
        "Namespace",
        "namespaces",
        namespaced=False,
        short_names=("ns",),
        status=True,
        fields={"status.phase": ("status", "phase")},
    ),
    _core(
        "Node",
        "nodes",
        namespaced=False,
        short_names=("no",),
        status=True,
        fields={"spec.unschedulable": ("spec", "unschedulable")},
    ),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), status=True, returns_deleted=True),
    _core(
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        short_names=("pv",),
        status=True,
        returns_deleted=True,
    ),
    _core(
        "Pod",
        "pods",
        short_names=("po",),
        categories=_ALL,
        status=True,
        has_generation=True,
        returns_deleted=True,
        fields=_POD_FIELDS,
    ),
    _core("PodTemplate", "podtemplates", has_generation=True, returns_deleted=True),
    _core(
        "ReplicationController",
        "replicationcontrollers",
        short_names=("rc",),
        categories=_ALL,
        status=True,
        scale=ScalePaths(),
        has_generation=True,
    ),
    _core("ResourceQuota", "resourcequotas", short_names=("quota",), status=True, returns_deleted=True),
    _core("Secret", "secrets", fields={"type": ("type",)}),
    _core("ServiceAccount", "serviceaccounts", short_names=("sa",), returns_deleted=True),
    _core("Service", "services", short_names=("svc",), categories=_ALL, status=True, returns_deleted=True),
    _workload("DaemonSet", "daemonsets", "ds", scaled=False),
    _workload("Deployment", "deployments", "deploy"),
    _workload("ReplicaSet", "replicasets", "rs"),
    _workload("StatefulSet", "statefulsets", "sts"),
    Kind("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Kind(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short_names=("hpa",),
        categories=_ALL,
        status=True,
    ),
    Kind(
        "batch",
        "v1",
        "Job",
        "jobs",
        categories=_ALL,
        status=True,
        has_generation=True,
        fields={"status.successful": ("status", "succeeded")},
    ),
    Kind(
        "batch",
        "v1",
        "CronJob",
        "cronjobs",
        short_names=("cj",),
        categories=_ALL,
        status=True,
        has_generation=True,
    ),
    Kind(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        short_names=("pdb",),
        status=True,
        has_generation=True,
        unconditional_update=False,
    ),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", unconditional_update=False),
    Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", has_generation=True),
    Kind(
        "events.k8s.io",
        "v1",
        "Event",
        "events",
        short_names=("ev",),
        fields=_EVENT_SELECTORS_NEW,
        create_on_update=True,
        storage="events",
        inward=_event_inward,
        outward=_event_outward,
    ),
    Kind(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclasses",
        namespaced=False,
        short_names=("pc",),
        has_generation=True,
    ),
    _storage("StorageClass", "storageclasses", namespaced=False, short_names=("sc",), returns_deleted=True),
    _storage("CSINode", "csinodes", namespaced=False, returns_deleted=True),
    _storage("CSIDriver", "csidrivers", namespaced=False, returns_deleted=True),
    _storage("CSIStorageCapacity", "csistoragecapacities"),
    _storage("VolumeAttachment", "volumeattachments", namespaced=False, status=True, returns_deleted=True),
    Kind(
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
        short_names=("netpol",),
        has_generation=True,
    ),
    Kind("networking.k8s.io", "v1", "Ingress", "ingresses", short_names=("ing",), status=True, has_generation=True),
    Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    _rbac("ClusterRole", "clusterroles", namespaced=False),
    _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _rbac("Role", "roles", namespaced=True),
    _rbac("RoleBinding", "rolebindings", namespaced=True),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        status=True,
        has_generation=True,
        unconditional_update=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Review:
    """A kind that is answered and not stored: POST only."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = False


REVIEWS: tuple[Review, ...] = (
    Review("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    Review("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    Review("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"),
    Review("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
    Review("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews"),
)


class Registry:
    """All served kinds, by group, version and plural. Custom kinds come and go."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in BUILT_IN:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        self._kinds.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def all(self) -> list[Kind]:
        return list(self._kinds.values())

    def served(self, group: str, version: str) -> list[Kind]:
        return [kind for kind in self._kinds.values() if (kind.group, kind.version) == (group, version)]

    def versions(self) -> dict[str, list[str]]:
        """Versions by group, in the order in which they were added; the core group is ""."""
        found: dict[str, list[str]] = {}
        served = [(kind.group, kind.version) for kind in self._kinds.values()]
        for group, version in served + [(review.group, review.version) for review in REVIEWS]:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found
