"""Shared informers: one list and one watch a resource, kept as typed objects with indexes and change handlers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from wainwright.sim.controllers.client import ApiClient, ApiError, Unreachable
from wainwright.sim.controllers.objects import KubernetesObject, ResourceType

T = TypeVar("T", bound=KubernetesObject)
Handler = Callable[[T | None, T | None], None]
"""Called with (old, new) after the store has changed; None stands for "was not there" or "is gone"."""

_log = logging.getLogger(__name__)
_PAGE = 5000
_TOMBSTONES = 20_000
_WATCH_SECONDS = 300
_RESUMES = 3


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = "0"
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Mark(msgspec.Struct, frozen=True):
    """What bookmarks and errors carry."""

    metadata: _ListMeta = _ListMeta()
    code: int = 0
    message: str = ""


class HistoryGone(Exception):
    """The server no longer keeps the events after our version: list again."""


def without_nulls(value: Any) -> Any:
    """Decoded JSON without the keys whose value is null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def version_of(item: KubernetesObject) -> int:
    """The resourceVersion as a number (versions of one resource can be ordered)."""
    return int(item.metadata.resource_version or 0)


class Store(Generic[T]):
    """Objects by key, with indexes; never replaces an object by an older one, never revives a deleted one."""

    def __init__(self) -> None:
        self.objects: dict[str, T] = {}
        self._indexes: dict[str, tuple[Callable[[T], Iterable[str]], dict[str, dict[str, T]]]] = {}
        self._handlers: list[Handler[T]] = []
        self._deleted: dict[str, None] = {}

    def get(self, key: str) -> T | None:
        return self.objects.get(key)

    def on_change(self, handler: Handler[T]) -> None:
        self._handlers.append(handler)

    def index(self, name: str, keys: Callable[[T], Iterable[str]]) -> None:
        """Keep `by(name, key)` answered: `keys` gives the index keys of an object."""
        if name not in self._indexes:
            self._indexes[name] = (keys, {})

    def by(self, name: str, key: str) -> list[T]:
        return list(self._indexes[name][1].get(key, {}).values())

    def put(self, item: T, *, force: bool = False) -> None:
        """Take `item` unless the store knows something newer (or that it is gone). force: history was reset."""
        key = item.metadata.key
        old = self.objects.get(key)
        if not force:
            if item.metadata.uid in self._deleted:
                return
            if old is not None and version_of(old) >= version_of(item):
                return
        if old is not None and old.metadata.uid != item.metadata.uid:
            self.remove(old)
            old = None
        self._reindex(key, old, item)
        self.objects[key] = item
        for handler in self._handlers:
            handler(old, item)

    def remove(self, item: T) -> None:
        """Forget this incarnation of the object."""
        key = item.metadata.key
        self._deleted[item.metadata.uid] = None
        if len(self._deleted) > _TOMBSTONES:
            del self._deleted[next(iter(self._deleted))]
        old = self.objects.get(key)
        if old is None or old.metadata.uid != item.metadata.uid:
            return
        self._reindex(key, old, None)
        del self.objects[key]
        for handler in self._handlers:
            handler(item, None)

    def _reindex(self, key: str, old: T | None, new: T | None) -> None:
        for keys, index in self._indexes.values():
            before = set(keys(old)) if old is not None else set()
            after = set(keys(new)) if new is not None else set()
            for gone in before - after:
                index[gone].pop(key, None)
                if not index[gone]:
                    del index[gone]
            for entry in after:
                assert new is not None
                index.setdefault(entry, {})[key] = new


class Informer(Store[T]):
    """A store kept equal to the server's collection. `put` one's own writes' answers to read them back at once."""

    def __init__(self, client: ApiClient, resource: ResourceType[T]) -> None:
        super().__init__()
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._decoder = msgspec.json.Decoder(resource.struct)
        self._version = 0

    def decode(self, content: bytes | msgspec.Raw) -> T:
        """The object in an answer. Nulls stand for what is left out. Raises msgspec.ValidationError."""
        try:
            return self._decoder.decode(content)
        except msgspec.ValidationError:
            return msgspec.convert(without_nulls(msgspec.json.decode(content)), self.resource.struct)

    def _readable(self, contents: Iterable[msgspec.Raw]) -> Iterator[T]:
        """Objects that can be read; one that cannot is told of and left out, so that it stops nobody else."""
        for content in contents:
            try:
                yield self.decode(content)
            except msgspec.ValidationError as error:
                _log.warning("%s: an object is left out: %s", self.resource.plural, error)

    async def run(self) -> None:
        """List, then watch, for ever: resumes where a watch ended, lists anew when history is gone.

        A watch that breaks or ends at once three times at the same version is given up for a list.
        """
        failures = 0
        needs_list = True
        while True:
            seen, began = self._version, asyncio.get_running_loop().time()
            try:
                if needs_list:
                    await self._list()
                    needs_list = False
                await self._watch()
                was_cut = self._version == seen and asyncio.get_running_loop().time() - began < 1
                failures = failures + 1 if was_cut else 0
                needs_list = failures >= _RESUMES
            except HistoryGone:
                needs_list = True
            except ApiError as error:
                if error.status == 404:  # this server does not have the resource (yet): it is empty
                    self.synced.set()
                needs_list = needs_list or error.status in (404, 410)
                failures += 1
                level = logging.WARNING if failures == 1 and error.status != 410 else logging.DEBUG
                _log.log(level, "%s: %s", self.resource.plural, error)
            except Unreachable as error:
                failures = failures + 1 if self._version == seen else 1
                needs_list = needs_list or failures >= _RESUMES
                level = logging.INFO if failures == 1 else logging.DEBUG
                _log.log(level, "%s: %s", self.resource.plural, error)
            if failures:
                await asyncio.sleep(min(0.1 * 2**failures, 10) * random.uniform(0.5, 1))

    async def _list(self) -> None:
        query = {"limit": str(_PAGE)}
        pages: list[T] = []
        while True:
            page = msgspec.json.decode(await self._client.get(self.resource.collection(), query), type=_Page)
            pages.extend(self._readable(page.items or ()))
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        version = int(page.metadata.resource_version or 0)
        is_reset = version < self._version  # the server lost its data and counts from the start again
        listed = {item.metadata.uid for item in pages}
        for old in list(self.objects.values()):
            if old.metadata.uid not in listed and (is_reset or version_of(old) <= version):
                self.remove(old)
        for item in pages:
            self.put(item, force=is_reset)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._version),
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        rest = b""
        decoder = msgspec.json.Decoder(_Event)
        async for chunk in self._client.watch(self.resource.collection(), query):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    self._take(decoder.decode(line))

    def _take(self, event: _Event) -> None:
        if event.type in ("BOOKMARK", "ERROR"):
            mark = msgspec.json.decode(event.object, type=_Mark)
            if event.type == "BOOKMARK":
                self._version = max(self._version, int(mark.metadata.resource_version))
                return
            if mark.code == 410:
                raise HistoryGone(mark.message)
            raise ApiError(mark.code, "", mark.message)
        for item in self._readable((event.object,)):
            self._version = max(self._version, version_of(item))
            if event.type == "DELETED":
                self.remove(item)
            else:
                self.put(item)
