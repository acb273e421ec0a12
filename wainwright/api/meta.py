"""Object metadata, conditions, label selectors."""

from __future__ import annotations

from datetime import datetime

from wainwright.api.base import Resource


class OwnerReference(Resource):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Resource):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for what lives in no namespace: the field name in the cluster view."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Resource):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class LabelSelectorRequirement(Resource):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Resource):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
