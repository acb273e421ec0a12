"""What the workload controllers share: pods made from a template, percentages, template hashes, pod writes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.informers import T, without_nulls
from wainwright.sim.controllers.objects import PODS, IntOrString, Pod, PodTemplate, ResourceType

_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
BURST = 500
"""Pods created or deleted in one pass; the rest follows in the next."""


def template_hash(template: PodTemplate) -> str:
    """Ten characters that stand for the template's content, whatever the order of its keys; null means left out."""
    whole = [msgspec.json.decode(template.metadata), msgspec.json.decode(template.spec)]
    content = msgspec.json.encode(without_nulls(whole), order="sorted")
    digest = int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
    letters = []
    for _ in range(10):
        digest, place = divmod(digest, len(_HASH_ALPHABET))
        letters.append(_HASH_ALPHABET[place])
    return "".join(letters)


def pod_from(
    template: PodTemplate,
    resource: ResourceType[T],
    owner: T,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod of the owner as it is to be created. labels, annotations, spec: added to the template's; spec by key."""
    metadata: dict[str, Any] = msgspec.json.decode(template.metadata)
    made: dict[str, Any] = {
        "labels": {**(metadata.get("labels") or {}), **(labels or {})},
        "annotations": {**(metadata.get("annotations") or {}), **(annotations or {})},
        "finalizers": metadata.get("finalizers") or [],
        "ownerReferences": [resource.owner_reference(owner)],
    }
    if name:
        made["name"] = name
    else:
        made["generateName"] = f"{owner.metadata.name}-"
    whole = {**msgspec.json.decode(template.spec), **spec} if spec else template.spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": whole}


def share(value: IntOrString | None, total: int, *, default: IntOrString, round_up: bool) -> int:
    """A count, or a percentage of `total` (`25%`), as a whole number."""
    value = default if value is None else value
    if isinstance(value, int):
        return value
    percent = int(value.rstrip("%")) * total
    return -(-percent // 100) if round_up else percent // 100


def deletion_rank(pod: Pod) -> tuple[Any, ...]:
    """Sorts pods so that those to delete first come first: unbound, not running, not ready, cheap, young."""
    cost = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")
    created = pod.metadata.creation_timestamp
    return (
        bool(pod.spec.node_name),
        pod.status.phase == "Running",
        pod.is_ready,
        int(cost) if cost.lstrip("+-").isdigit() else 0,
        -created.timestamp() if created else 0.0,
        pod.metadata.name,
    )


def counts(pods: Iterable[Pod], *, min_ready_seconds: int, now: datetime) -> tuple[int, int, int]:
    """How many there are, are Ready, are available."""
    total = ready = available = 0
    for pod in pods:
        total += 1
        ready += pod.is_ready
        available += pod.is_available(min_ready_seconds, now)
    return total, ready, available


class PodWriter:
    """Creates and deletes pods of owners; own writes show in the shared store at once, so nothing is made twice."""

    def __init__(self, cluster: Cluster, component: str) -> None:
        self._cluster = cluster
        self._component = component
        self._pods = cluster.pods()

    async def create(self, resource: ResourceType[T], owner: T, bodies: Iterable[Mapping[str, Any]]) -> None:
        """Create the pods side by side. A name that exists already is left alone; other refusals raise at the end."""
        path = PODS.collection(owner.metadata.namespace)
        answers = await asyncio.gather(
            *(self._cluster.client.create(path, body) for body in bodies), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, bytes):
                pod = self._pods.decode(answer)
                self._pods.put(pod)
                self._tell(resource, owner, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        for answer in answers:
            if isinstance(answer, BaseException) and not (
                isinstance(answer, ApiError) and answer.reason in ("AlreadyExists", "NotFound")
            ):
                self._tell(resource, owner, "FailedCreate", f"Error creating: {answer}", kind="Warning")
                raise answer

    async def delete(self, resource: ResourceType[T], owner: T, pods: Iterable[Pod]) -> None:
        """Delete the pods gracefully, side by side."""
        await asyncio.gather(*(self._delete(resource, owner, pod) for pod in pods))

    async def _delete(self, resource: ResourceType[T], owner: T, pod: Pod) -> None:
        key, uid = pod.metadata.key, pod.metadata.uid
        if await self._cluster.client.delete(PODS.item(key), uid=uid):
            self._tell(resource, owner, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
        current = self._pods.get(key)
        if current is None or current.metadata.uid != uid or current.is_terminating:
            return
        try:
            self._pods.put(self._pods.decode(await self._cluster.client.get(PODS.item(key))))
        except ApiError as error:
            if error.status != 404:
                raise
            self._pods.remove(pod)

    def _tell(self, resource: ResourceType[T], owner: T, reason: str, message: str, kind: str = "Normal") -> None:
        self._cluster.events.tell(resource, owner, reason=reason, message=message, component=self._component, kind=kind)
