"""Pods, as far as they matter for capacity."""

from __future__ import annotations

from datetime import datetime

import msgspec

from wainwright.api.base import PodUid, Resource
from wainwright.api.meta import Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta

Quantity = str | int | float
"""A Kubernetes quantity as it stands in JSON; `wainwright.api.quantities` parses it."""


class ResourceRequirements(Resource):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class ContainerPort(Resource):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Resource):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar."""


class Toleration(Resource):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorTerm(Resource):
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Resource):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Resource):
    weight: int = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Resource):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Resource):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Resource):
    weight: int = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Resource):
    """Serves pod affinity and pod anti-affinity alike."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Resource):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Resource):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimSource(Resource):
    claim_name: str = ""


class PersistentVolumeClaimTemplate(Resource):
    spec: dict[str, object] = {}


class EphemeralVolumeSource(Resource):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class CsiVolumeSource(Resource):
    driver: str = ""


class Volume(Resource):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CsiVolumeSource | None = None


class PodSchedulingGate(Resource):
    name: str = ""


class PodResourceClaim(Resource):
    name: str = ""


class PodSpec(Resource):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    """Pod-level requests, which take the place of the containers' where given."""
    overhead: dict[str, Quantity] = {}
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    host_network: bool = False
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodStatus(Resource):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")


class Pod(Resource):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> PodUid:
        return PodUid(self.metadata.uid)

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def is_bound(self) -> bool:
        return bool(self.spec.node_name)

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_ready(self) -> bool:
        """Runs, is Ready, and is not being deleted."""
        ready = any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
        return ready and self.status.phase == "Running" and not self.is_terminating

    @property
    def is_daemon(self) -> bool:
        return any(owner.kind == "DaemonSet" for owner in self.metadata.owner_references)

    @property
    def is_mirror(self) -> bool:
        return any(owner.kind == "Node" for owner in self.metadata.owner_references)

    @property
    def is_provisionable(self) -> bool:
        """Should capacity be made for this pod?

        - not bound to a node, not being deleted, not over
        - not waiting for a preemption (`status.nominatedNodeName` is empty)
        - the scheduler tried and failed (`PodScheduled` is False with reason Unschedulable)
        - not owned by a DaemonSet
        - not a mirror pod (owned by a Node)

        Source: Karpenter `pod/scheduling.go`, IsProvisionable.
        """
        return (
            not self.is_bound
            and not self.is_terminal
            and not self.is_terminating
            and not self.status.nominated_node_name
            and any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in self.status.conditions)
            and not self.is_daemon
            and not self.is_mirror
        )
