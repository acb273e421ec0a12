"""Nodes."""

from __future__ import annotations

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.pods import Quantity


class Taint(Resource):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Resource):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Resource):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Resource):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None
