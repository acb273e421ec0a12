"""NodeClaim (`karpenter.sh/v1`): one wanted node."""

from __future__ import annotations

from datetime import datetime

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodepools import NodeClassReference, NodeSelectorRequirement
from wainwright.api.nodes import Taint
from wainwright.api.pods import Quantity


class RequestedResources(Resource):
    requests: dict[str, Quantity] = {}


class NodeClaimSpec(Resource):
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    resources: RequestedResources = RequestedResources()
    node_class_ref: NodeClassReference = NodeClassReference()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimStatus(Resource):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()
    last_pod_event_time: datetime | None = None


class NodeClaim(Resource):
    metadata: ObjectMeta
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None
