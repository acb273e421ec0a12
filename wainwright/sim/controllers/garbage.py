"""Garbage collection by ownerReferences: background, foreground and orphan."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wainwright.api.meta import ObjectMeta, OwnerReference
from wainwright.sim.controllers.client import ApiError, Unreachable
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.discovery import served_resources
from wainwright.sim.controllers.objects import KubernetesObject, PartialObject, ResourceType
from wainwright.sim.controllers.queues import KeyQueue

_log = logging.getLogger(__name__)
_DISCOVER_SECONDS = 5.0
_LEFT_OUT = {"events"}
"""Have no owners, and come in numbers."""
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Known:
    """An object as far as ownership goes."""

    resource: ResourceType[PartialObject]
    metadata: ObjectMeta

    @property
    def path(self) -> str:
        return self.resource.item(self.metadata.key)

    @property
    def is_waiting_for(self) -> str:
        """The collector's finalizer that holds this deleted object: foregroundDeletion, orphan, or none (empty)."""
        if self.metadata.deletion_timestamp is None:
            return ""
        return next((f for f in self.metadata.finalizers if f in (FOREGROUND, ORPHAN)), "")


def surviving_owners(metadata: ObjectMeta, gone: Sequence[str]) -> tuple[OwnerReference, ...]:
    """The owner references that are left without those to uids that are gone."""
    return tuple(owner for owner in metadata.owner_references if owner.uid not in gone)


class GarbageCollector:
    """Deletes what has lost all its owners; ends foreground and orphaning deletions. Follows every served resource."""

    name = "garbage-collector"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Known] = {}
        self._dependents: dict[str, set[str]] = defaultdict(set)
        """Uids of objects by the uid of an owner."""
        self._absent: set[str] = set()
        """Owners that the server said do not exist."""
        self._followed: set[str] = set()
        self._by_kind: dict[tuple[str, str], ResourceType[PartialObject]] = {}
        self._is_complete = asyncio.Event()
        self._queue = KeyQueue("garbage", self._reconcile, workers=24)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            while True:
                await self._follow_new()
                await asyncio.sleep(_DISCOVER_SECONDS)

    async def _follow_new(self) -> None:
        """Follow resources that have come to be served; nothing is judged before all were listed once."""
        try:
            resources = await served_resources(self._cluster.client)
        except (ApiError, Unreachable) as error:
            _log.warning("discovery: %s", error)
            return
        for resource in resources:
            path = resource.collection()
            self._by_kind[resource.api_version, resource.kind] = resource
            if path in self._followed or resource.plural in _LEFT_OUT:
                continue
            self._followed.add(path)
            informer = self._cluster.follow(resource)
            for item in informer.objects.values():
                self._on_change(resource, None, item)
            informer.on_change(partial(self._on_change, resource))
            await informer.synced.wait()
        self._is_complete.set()

    def _on_change(
        self, resource: ResourceType[PartialObject], old: KubernetesObject | None, new: KubernetesObject | None
    ) -> None:
        before = old.metadata if old is not None else None
        if new is None:
            assert before is not None
            self._forget(before)
            return
        metadata = new.metadata
        uid = metadata.uid
        self._known[uid] = Known(resource, metadata)
        if before is not None and (
            (before.owner_references, before.deletion_timestamp, before.finalizers)
            == (metadata.owner_references, metadata.deletion_timestamp, metadata.finalizers)
        ):
            return
        if before is not None and before.owner_references != metadata.owner_references:
            self._disown(before)
        for owner in metadata.owner_references:
            self._dependents[owner.uid].add(uid)
        if metadata.owner_references or self._known[uid].is_waiting_for:
            self._queue.add(uid)

    def _forget(self, metadata: ObjectMeta) -> None:
        self._known.pop(metadata.uid, None)
        self._disown(metadata)
        for dependent in self._dependents.get(metadata.uid, ()):
            self._queue.add(dependent)

    def _disown(self, metadata: ObjectMeta) -> None:
        for owner in metadata.owner_references:
            self._dependents[owner.uid].discard(metadata.uid)
            if not self._dependents[owner.uid]:
                del self._dependents[owner.uid]
                self._absent.discard(owner.uid)
            if owner.uid in self._known:
                self._queue.add(owner.uid)

    async def _reconcile(self, uid: str) -> None:
        await self._is_complete.wait()
        known = self._known.get(uid)
        if known is None:
            return
        match known.is_waiting_for:
            case "foregroundDeletion":
                await self._end_foreground(known)
            case "orphan":
                await self._end_orphaning(known)
            case _:
                pass
        if known.metadata.owner_references and known.metadata.deletion_timestamp is None:
            await self._judge(known)

    async def _judge(self, known: Known) -> None:
        """Delete the object if all its owners are gone; if some are, drop the references to those."""
        owners = known.metadata.owner_references
        gone = [owner.uid for owner in owners if await self._is_gone(known, owner)]
        left = surviving_owners(known.metadata, gone)
        if gone and not left:
            await self._cluster.client.delete(known.path, uid=known.metadata.uid, propagation="Background")
        elif gone:
            await self._set_owners(known, left)
        elif all(self._is_ending(owner) for owner in owners):
            await self._cluster.client.delete(known.path, uid=known.metadata.uid, propagation="Foreground")

    def _is_ending(self, owner: OwnerReference) -> bool:
        """The owner is being deleted in the foreground: its dependents go first."""
        holder = self._known.get(owner.uid)
        return holder is not None and holder.is_waiting_for == FOREGROUND

    async def _is_gone(self, known: Known, owner: OwnerReference) -> bool:
        """Unknown here, and unknown to the server when asked. Kinds that are not served cannot be judged."""
        if owner.uid in self._known:
            return False
        if owner.uid in self._absent:
            return True
        resource = self._by_kind.get((owner.api_version, owner.kind))
        if resource is None:
            return False
        namespace = known.metadata.namespace if resource.is_namespaced else ""
        key = f"{namespace}/{owner.name}" if namespace else owner.name
        try:
            found = resource.decode(await self._cluster.client.get(resource.item(key)))
        except ApiError as error:
            if error.status != 404:
                raise
            if error.name != owner.name:  # the path is unknown, not the object: the kind is not served (any more)
                return False
        else:
            if found.metadata.uid == owner.uid:
                return False
        self._absent.add(owner.uid)
        return True

    async def _end_foreground(self, known: Known) -> None:
        """Dependents that block the owner go first; with none left, the finalizer comes off."""
        uid = known.metadata.uid
        blocking = [
            dependent
            for dependent in (self._known.get(d) for d in self._dependents.get(uid, ()))
            if dependent is not None
            and any(o.uid == uid and o.block_owner_deletion for o in dependent.metadata.owner_references)
        ]
        for dependent in self._dependents.get(uid, ()):
            self._queue.add(dependent)
        if not blocking:
            await self._remove_finalizer(known, FOREGROUND)

    async def _end_orphaning(self, known: Known) -> None:
        uid = known.metadata.uid
        for dependent in [self._known[d] for d in self._dependents.get(uid, ()) if d in self._known]:
            await self._set_owners(dependent, surviving_owners(dependent.metadata, [uid]))
        await self._remove_finalizer(known, ORPHAN)

    async def _set_owners(self, known: Known, owners: Sequence[OwnerReference]) -> None:
        metadata = {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
        await self._patch(known, {**metadata, "ownerReferences": list(owners) or None})

    async def _remove_finalizer(self, known: Known, finalizer: str) -> None:
        left = [name for name in known.metadata.finalizers if name != finalizer]
        metadata = {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
        await self._patch(known, {**metadata, "finalizers": left or None})

    async def _patch(self, known: Known, metadata: dict[str, object]) -> None:
        """Merge-patch metadata, for the version it was computed from (a newer one comes through the watch)."""
        try:
            await self._cluster.client.patch(known.path, {"metadata": metadata})
        except ApiError as error:
            if error.status != 404:
                raise
