"""What the controllers read of each resource, trimmed to the fields they use, and where each resource lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec

from wainwright.api import meta, nodes, pods
from wainwright.api.base import Resource
from wainwright.api.meta import LabelSelector, OwnerReference
from wainwright.api.pods import Quantity
from wainwright.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

IntOrString = int | str


class ObjectMeta(meta.ObjectMeta):
    deletion_grace_period_seconds: int | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Probe(Resource):
    initial_delay_seconds: int = 0


class Container(pods.Container):
    readiness_probe: Probe | None = None


class PodReadinessGate(Resource):
    condition_type: str = ""


class PodSpec(pods.PodSpec):
    containers: tuple[Container, ...] = ()
    restart_policy: str = "Always"
    readiness_gates: tuple[PodReadinessGate, ...] = ()


class ContainerStatus(Resource):
    name: str = ""
    ready: bool = False
    restart_count: int = 0


class PodStatus(pods.PodStatus):
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(pods.Pod):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_active(self) -> bool:
        """Counts as a replica: neither over nor on its way out."""
        return not self.is_terminal and not self.is_terminating

    def condition(self, kind: str) -> meta.Condition | None:
        return next((c for c in self.status.conditions if c.type == kind), None)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Ready, and for at least `min_ready_seconds`."""
        ready = self.condition("Ready")
        if ready is None or ready.status != "True":
            return False
        since = ready.last_transition_time
        return not min_ready_seconds or (since is not None and (now - since).total_seconds() >= min_ready_seconds)


class NodeAddress(Resource):
    type: str = ""
    address: str = ""


class NodeStatus(nodes.NodeStatus):
    addresses: tuple[NodeAddress, ...] = ()


class Node(nodes.Node):
    metadata: ObjectMeta
    status: NodeStatus = NodeStatus()

    @property
    def ready_status(self) -> str:
        """`True`, `False` or `Unknown` as the Ready condition says; empty if there is none yet."""
        return next((c.status for c in self.status.conditions if c.type == "Ready"), "")


class LeaseSpec(Resource):
    renew_time: datetime | None = None


class Lease(Resource):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The template as sent: pods are made from its bytes, whatever fields it has."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class ReplicaSetSpec(Resource):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class ReplicaCounts(Resource):
    """The counters that ReplicaSets, Deployments and StatefulSets report."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[meta.Condition, ...] = ()


class ReplicaSet(Resource):
    metadata: ObjectMeta
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaCounts = ReplicaCounts()


class RollingUpdate(Resource):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    partition: int = 0


class UpdateStrategy(Resource):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(ReplicaSetSpec):
    strategy: UpdateStrategy = UpdateStrategy()
    paused: bool = False
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600


class Deployment(Resource):
    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: ReplicaCounts = ReplicaCounts()


class VolumeClaimTemplate(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class StatefulSetSpec(ReplicaSetSpec):
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    service_name: str = ""
    volume_claim_templates: tuple[VolumeClaimTemplate, ...] = ()


class StatefulSetStatus(ReplicaCounts):
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Resource):
    metadata: ObjectMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class DaemonSetSpec(Resource):
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSet(Resource):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()
    status: dict[str, object] = {}


class JobSpec(Resource):
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class JobStatus(Resource):
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[meta.Condition, ...] = ()


class Job(Resource):
    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class CronJob(Resource):
    metadata: ObjectMeta


class PodDisruptionBudgetSpec(Resource):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Resource):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, datetime] = {}
    conditions: tuple[meta.Condition, ...] = ()


class PodDisruptionBudget(Resource):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class NamespaceSpec(Resource):
    finalizers: tuple[str, ...] = ()


class Namespace(Resource):
    metadata: ObjectMeta
    spec: NamespaceSpec = NamespaceSpec()


class PartialObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Any object, as far as ownership goes."""

    metadata: ObjectMeta
    api_version: str = ""
    kind: str = ""


class KubernetesObject(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> meta.ObjectMeta: ...


T = TypeVar("T", bound=KubernetesObject)


@dataclass(frozen=True, slots=True)
class ResourceType(Generic[T]):
    """Where a resource lives and what is read of it. `prefix`: `/api/v1` or `/apis/GROUP/VERSION`."""

    prefix: str
    plural: str
    kind: str
    struct: type[T]
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    def collection(self, namespace: str = "") -> str:
        return f"{self.prefix}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.prefix}/{self.plural}"

    def item(self, key: str, subresource: str = "") -> str:
        """Path of the object `namespace/name` (or `name`), or of one of its sub-resources."""
        namespace, _, name = key.rpartition("/")
        path = f"{self.collection(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def decode(self, content: bytes) -> T:
        return msgspec.json.decode(content, type=self.struct)

    def owner_reference(self, owner: KubernetesObject) -> dict[str, object]:
        """The controller reference that makes `owner` (of this type) the owner of what carries it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


PODS = ResourceType("/api/v1", "pods", "Pod", Pod)
NODES = ResourceType("/api/v1", "nodes", "Node", Node, is_namespaced=False)
NAMESPACES = ResourceType("/api/v1", "namespaces", "Namespace", Namespace, is_namespaced=False)
CLAIMS = ResourceType("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim", PersistentVolumeClaim)
VOLUMES = ResourceType("/api/v1", "persistentvolumes", "PersistentVolume", PersistentVolume, is_namespaced=False)
STORAGE_CLASSES = ResourceType(
    "/apis/storage.k8s.io/v1", "storageclasses", "StorageClass", StorageClass, is_namespaced=False
)
LEASES = ResourceType("/apis/coordination.k8s.io/v1", "leases", "Lease", Lease)
REPLICA_SETS = ResourceType("/apis/apps/v1", "replicasets", "ReplicaSet", ReplicaSet)
DEPLOYMENTS = ResourceType("/apis/apps/v1", "deployments", "Deployment", Deployment)
STATEFUL_SETS = ResourceType("/apis/apps/v1", "statefulsets", "StatefulSet", StatefulSet)
DAEMON_SETS = ResourceType("/apis/apps/v1", "daemonsets", "DaemonSet", DaemonSet)
JOBS = ResourceType("/apis/batch/v1", "jobs", "Job", Job)
CRON_JOBS = ResourceType("/apis/batch/v1", "cronjobs", "CronJob", CronJob)
BUDGETS = ResourceType("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", PodDisruptionBudget)

__all__ = ["PersistentVolume", "PersistentVolumeClaim", "Quantity", "StorageClass"]
