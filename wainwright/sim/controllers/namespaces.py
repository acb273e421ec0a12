"""Deleted namespaces: their content goes, then their finalizer."""

from __future__ import annotations

import asyncio

import msgspec

from wainwright.sim.controllers.client import ApiClient, ApiError
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.discovery import served_resources
from wainwright.sim.controllers.objects import NAMESPACES, PartialObject, ResourceType
from wainwright.sim.controllers.queues import KeyQueue

_FINALIZER = "kubernetes"
_LOOK_AGAIN_SECONDS = 0.5


class _Items(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class Namespaces:
    """Empties every namespace that is being deleted, and lets it go when nothing is left in it."""

    name = "namespace"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._namespaces = cluster.informer(NAMESPACES)
        self._queue = KeyQueue("namespace", self._reconcile, workers=4)
        self._namespaces.on_change(lambda _old, new: self._queue.add(new.metadata.name) if new else None)

    async def run(self) -> None:
        await self._queue.run()

    async def _reconcile(self, name: str) -> float | None:
        namespace = self._namespaces.get(name)
        if (
            namespace is None
            or namespace.metadata.deletion_timestamp is None
            or _FINALIZER not in namespace.spec.finalizers
        ):
            return None
        client = self._cluster.client
        resources = [resource for resource in await served_resources(client) if resource.is_namespaced]
        left = await asyncio.gather(*(_empty(client, resource, name) for resource in resources))
        if any(left):
            return _LOOK_AGAIN_SECONDS
        rest = [finalizer for finalizer in namespace.spec.finalizers if finalizer != _FINALIZER]
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "uid": namespace.metadata.uid},
            "spec": {"finalizers": rest},
        }
        try:
            await client.replace(NAMESPACES.item(name, "finalize"), body)
        except ApiError as error:
            if error.status != 404:
                raise
        return None


async def _empty(client: ApiClient, resource: ResourceType[PartialObject], namespace: str) -> bool:
    """Delete what there is of one resource in the namespace; is anything left (for graceful ends, finalizers)?"""
    path = resource.collection(namespace)

    async def remains() -> bool:
        content = await client.get(path, {"limit": "1"})
        return bool(msgspec.json.decode(content, type=_Items).items)

    if not await remains():
        return False
    try:
        await client.request(
            "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        )
    except ApiError as error:
        if error.status not in (404, 405):
            raise
    return await remains()
