"""What Wainwright asks of a cloud. Providers implement `CloudProvider`; nothing else of them is seen outside."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeClassReference, NodePool
from wainwright.scheduling.instance_types import Catalog, OfferingKey
from wainwright.scheduling.snapshot import Option

REQUEST_LIFETIME: Final = timedelta(seconds=30)
"""How long after `LaunchRequest.issued_at` a request may still launch something; afterwards it never can."""
CREATE_TIMEOUT_SECONDS: Final = 25.0
CALL_TIMEOUT_SECONDS: Final = 10.0


class NodeClassKind(NamedTuple):
    group: str
    kind: str


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    TERMINATED = "terminated"

    @property
    def is_live(self) -> bool:
        """Is it there to be used (not on its way out)?"""
        return self in (InstanceState.PENDING, InstanceState.RUNNING)


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt to get one instance. Two requests with the same token must be equal in all but `issued_at`.

    token: NodeClaim UID and number of the attempt. issued_at: when the caller last found that it wants this; the cloud
    refuses the request REQUEST_LIFETIME later. options: cheapest first; the cloud takes the cheapest that has room.
    node_name: the name that the node will have, where the provider lets us choose it (see `names_nodes`); else empty.
    labels: those of the node besides what the instance type and offering bring. tags: on the instance, for people.
    """

    token: str
    issued_at: datetime
    cluster: str
    node_claim: str
    node_pool: str
    options: tuple[Option, ...]
    node_name: str = ""
    node_class: NodeClassReference = NodeClassReference()
    labels: dict[str, str] = {}
    tags: dict[str, str] = {}


class Instance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine in the cloud. capacity, allocatable: milli-CPU for cpu, whole units otherwise. price: dollars an hour.

    node_name: of the node it becomes; empty where that is not known beforehand. labels: what its node will carry.
    boots_at: when its kubelet is expected to report; None where unknown. sold_out: offerings of the request that were
    cheaper, but had no room: worth remembering as unavailable although the launch succeeded.
    """

    id: str
    provider_id: str
    token: str
    cluster: str
    node_claim: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float
    state: InstanceState
    launched_at: datetime
    node_name: str = ""
    image_id: str = ""
    reservation_id: str = ""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    labels: dict[str, str] = {}
    tags: dict[str, str] = {}
    boots_at: datetime | None = None
    sold_out: tuple[OfferingKey, ...] = ()

    @property
    def offering(self) -> OfferingKey:
        return OfferingKey(self.capacity_type, self.instance_type, self.zone)


class RepairPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose condition has had this status for longer than `toleration` is beyond repair."""

    condition_type: str
    condition_status: str
    toleration: timedelta


class CloudProvider(Protocol):
    """A cloud, from one cluster's point of view. Safe to use from many threads; make it after forking, not before.

    Every method may raise Throttled and CloudUnavailable (wainwright.cloud.errors says what each error asks of the
    caller). `create` ends within CREATE_TIMEOUT_SECONDS, others within CALL_TIMEOUT_SECONDS; none retries by itself.
    """

    @property
    def name(self) -> str:
        """Short and fixed: `simulated`, `aws`."""
        ...

    @property
    def names_nodes(self) -> bool:
        """Is `LaunchRequest.node_name` obeyed, so that the Node object may be created before its kubelet reports?"""
        ...

    @property
    def node_class_kinds(self) -> frozenset[NodeClassKind]:
        """The NodeClass kinds that are this provider's own; NodePools naming another kind are served all the same."""
        ...

    def instance_types(self, node_pool: NodePool) -> Catalog:
        """What can be launched for this NodePool. Cheap when nothing changed: then the same object comes again.

        Raises NodeClassNotReady when the NodePool names a NodeClass of our own kind that is missing or broken.
        """
        ...

    def create(self, request: LaunchRequest) -> Instance:
        """The instance of this token: launched now, or earlier by the same request.

        Raises InsufficientCapacity, RequestRefused, TokenMismatch, InstanceTerminated, RequestExpired,
        NodeClassNotReady.
        """
        ...

    def find(self, token: str) -> Instance | None:
        """What was ever launched under this token, a terminated instance included; None: nothing.

        Consistent: it sees every launch that was carried out before it was asked.
        """
        ...

    def get(self, provider_id: str) -> Instance:
        """Raises InstanceNotFound once it is terminated, or when it never was."""
        ...

    def list(self, cluster: str) -> list[Instance]:
        """The cluster's instances that are not terminated, by id. Consistent."""
        ...

    def delete(self, provider_id: str) -> None:
        """Begin to terminate it; a no-op while that is under way. Raises InstanceNotFound once it is gone."""
        ...

    def is_drifted(self, node_claim: NodeClaim, node_pool: NodePool) -> str | None:
        """Why the claim's instance is no longer what its NodeClass asks for (a CamelCase reason); None: it is."""
        ...

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        """Which node conditions mean that a node should be replaced."""
        ...
