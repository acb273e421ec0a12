"""What carrying out a plan asks of Kubernetes; `wainwright.kube.client.KubeClient` is the implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from wainwright.kube.events import EventType, ObjectReference
from wainwright.kube.resources import Resource

T = TypeVar("T")


class KubeApi(Protocol):
    """Reads are consistent (from the store, not from a cache). Every call may raise KubeUnavailable and KubeError."""

    def get(self, resource: Resource, name: str, namespace: str = "", *, as_type: type[T]) -> T:
        """Raises NotFound."""
        ...

    def list(
        self, resource: Resource, as_type: type[T], *, label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[T], str]:
        """Everything of a kind, in all namespaces, with the list's resourceVersion."""
        ...

    def create(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
        """The object as stored. Raises AlreadyExists."""
        ...

    def merge_patch(
        self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """The object as stored. Raises NotFound, and Conflict where metadata.uid or resourceVersion do not match."""
        ...

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> dict[str, Any]:
        """Raises NotFound, and Conflict where a precondition does not hold."""
        ...

    def bind(self, namespace: str, name: str, pod_uid: str, node: str) -> None:
        """Raises Conflict when the pod is bound already, being deleted, or another one; NotFound."""
        ...

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        """Raises Refused when a disruption budget holds the pod; NotFound."""
        ...


class Events(Protocol):
    """Tells people what happened to an object. Never raises, never waits."""

    def event(self, about: ObjectReference, reason: str, type: EventType, message: str) -> None: ...  # noqa: A002
