"""Which resources the API server serves."""

from __future__ import annotations

import asyncio

import msgspec

from wainwright.sim.controllers.client import ApiClient, ApiError
from wainwright.sim.controllers.objects import PartialObject, ResourceType


class _Resource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = True
    verbs: list[str] = []


class _ResourceList(msgspec.Struct, frozen=True):
    resources: list[_Resource]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version
    versions: list[_Version]


class _GroupList(msgspec.Struct, frozen=True):
    groups: list[_Group]


async def served_resources(client: ApiClient) -> list[ResourceType[PartialObject]]:
    """Every resource that can be listed, watched and deleted, once each, in its group's preferred version."""
    groups = msgspec.json.decode(await client.get("/apis"), type=_GroupList).groups
    prefixes = ["/api/v1", *(f"/apis/{group.preferred_version.group_version}" for group in groups)]
    lists = await asyncio.gather(*(_resources(client, prefix) for prefix in prefixes))
    return [
        ResourceType(prefix, resource.name, resource.kind, PartialObject, is_namespaced=resource.namespaced)
        for prefix, resources in zip(prefixes, lists, strict=True)
        for resource in resources
        if "/" not in resource.name and {"list", "watch", "delete"} <= set(resource.verbs)
    ]


async def _resources(client: ApiClient, prefix: str) -> list[_Resource]:
    try:
        return msgspec.json.decode(await client.get(prefix), type=_ResourceList).resources
    except ApiError as error:
        if error.status in (404, 503):  # a group that has just gone, or whose server is away
            return []
        raise
