"""Objects in memory: one collection a resource, one resource version over all, a ring of recent events, and watches.

An object is held as JSON bytes with what selectors ask of it; it is decoded when it is written to or printed, never
when it is listed. So lists join ready bytes, and 10,000 pods of 2.5 KB take some 50 MB.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from wainwright.sim.apiserver.errors import expired
from wainwright.sim.apiserver.kinds import Kind, Object

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_LABELS: Mapping[str, str] = {}


class Record:
    """One version of one object.

    tail: its JSON behind the opening `{"kind":…,"apiVersion":…,`: every served version puts its own before it.
    fields: the values that field selectors ask for, as text.
    """

    __slots__ = ("fields", "key", "labels", "name", "namespace", "tail", "uid", "version")

    def __init__(self, kind: Kind, obj: Object, version: int) -> None:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        self.version = version
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        self.uid: str = metadata["uid"]
        self.labels: Mapping[str, str] = metadata.get("labels") or _NO_LABELS
        fields = {"metadata.name": self.name, "metadata.namespace": self.namespace}
        for label, path in kind.fields.items():
            fields[label] = _text_at(obj, path)
        self.fields: Mapping[str, str] = fields
        body = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        self.tail: bytes = _encode(body)[1:]

    def decode(self, kind: Kind) -> Object:
        """A fresh object, the caller's to change."""
        obj: Object = {"kind": kind.name, "apiVersion": kind.api_version}
        obj.update(_decode(b"{" + self.tail))
        return obj


def _text_at(obj: Object, path: tuple[str, ...]) -> str:
    value: Any = obj
    for key in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(key)
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Event:
    """One change: what it was (None when added) and what it became (the last state when deleted)."""

    __slots__ = ("previous", "record", "type", "version")

    def __init__(self, version: int, type_: EventType, record: Record, previous: Record | None) -> None:
        self.version = version
        self.type: EventType = type_
        self.record = record
        self.previous = previous


RecordTest = Callable[[Record], bool]


class Watch:
    """What one watcher has not read yet.

    The reader takes `take()` whenever `wake` was called; `closed` says that nothing follows. A watcher that lets more
    than `limit_bytes` gather is closed: it can resume from the last version it saw.
    """

    def __init__(
        self,
        collection: Collection,
        *,
        matches: RecordTest | None,
        render: Callable[[Record], bytes] | None,
        kind: Kind,
        limit_bytes: int,
    ) -> None:
        self.kind = kind
        self.wake: Callable[[], None] | None = None
        self.closed = False
        self.overflowed = False
        self._collection = collection
        self._matches = matches
        self._render = render
        self._limit_bytes = limit_bytes
        self._pending: list[bytes] = []
        self._waiting_bytes = 0

    def take(self) -> list[bytes]:
        taken, self._pending, self._waiting_bytes = self._pending, [], 0
        return taken

    def replay(self, type_: str, record: Record) -> None:
        """Queue one event that is not news, whatever its size."""
        self._pending.append(_line(type_, self._object(record)))

    def forgive(self) -> None:
        """What waits now is a replay: its size does not count."""
        self._waiting_bytes = 0
        self.overflowed = self.closed = False

    def append(self, line: bytes) -> None:
        """Queue a ready line: a bookmark or an error."""
        self._pending.append(line)
        if self.wake:
            self.wake()

    def offer(self, event: Event, lines: dict[tuple[str, Kind], bytes]) -> None:
        """Queue what this watcher should see of a change. lines: those already built for other watchers."""
        type_, record = event.type, event.record
        if self._matches is not None:
            before = event.previous is not None and self._matches(event.previous)
            after = type_ != "DELETED" and self._matches(record)
            if not before and not after:
                return
            if before and not after:
                if type_ != "DELETED" and event.previous is not None:
                    record = self._collection.at_version(event.previous, event.version)
                line = _line("DELETED", self._object(record))
                self._push(line)
                return
            if not before:
                type_ = "ADDED"
        if self._render is None:
            line = lines.get((type_, self.kind), b"")
            if not line:
                line = lines[type_, self.kind] = _line(type_, self.kind.opening + record.tail)
        else:
            line = _line(type_, self._object(record))
        self._push(line)

    def _push(self, line: bytes) -> None:
        self._pending.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > self._limit_bytes:
            self.overflowed = True
            self.close()
        elif self.wake:
            self.wake()

    def _object(self, record: Record) -> bytes:
        return self._render(record) if self._render else self.kind.opening + record.tail

    def close(self) -> None:
        self.closed = True
        self._collection.watches.discard(self)
        if self.wake:
            self.wake()


def _line(type_: str, obj: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + obj + b"}\n"


class Collection:
    """All objects of one resource, by `namespace/name`, in the order of their keys."""

    def __init__(self, kind: Kind, *, ring_size: int, compacted: int) -> None:
        self.kind = kind
        self.records: dict[str, Record] = {}
        self.order: list[str] = []
        self.watches: set[Watch] = set()
        self.compacted = compacted
        """Events up to this version are forgotten: watches from before it end with 410."""
        self._ring: deque[Event] = deque()
        self._ring_size = ring_size
        self._by_node: dict[str, set[str]] = {}
        self._has_nodes = "spec.nodeName" in kind.fields

    def get(self, namespace: str, name: str) -> Record | None:
        return self.records.get(f"{namespace}/{name}" if namespace else name)

    def select(self, namespace: str, node: str | None = None) -> Iterator[Record]:
        """Records in the order of their keys; of one namespace, or all (""); of one node, when it is given."""
        records = self.records
        if node is not None and self._has_nodes:
            keys: Iterable[str] = sorted(self._by_node.get(node, ()))
            return (records[key] for key in keys if not namespace or records[key].namespace == namespace)
        if namespace:
            low, high = bisect_left(self.order, f"{namespace}/"), bisect_left(self.order, f"{namespace}0")
            return (records[key] for key in self.order[low:high])
        return (records[key] for key in self.order)

    def select_at(self, version: int, namespace: str) -> Iterator[Record]:
        """The same as of an earlier version. Raises ApiError 410 when the ring does not reach back that far."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        changed: dict[str, Record | None] = {}
        for event in reversed(self._ring):
            if event.version <= version:
                break
            changed[event.record.key] = event.previous
        if not changed:
            return self.select(namespace)
        then = {**self.records, **{key: record for key, record in changed.items() if record is not None}}
        gone = {key for key, record in changed.items() if record is None}
        return (
            then[key] for key in sorted(then) if key not in gone and (not namespace or then[key].namespace == namespace)
        )

    def at_version(self, record: Record, version: int) -> Record:
        """The same object under another resource version, as events of deletion carry it."""
        return Record(self.kind, record.decode(self.kind), version)

    def apply(self, event: Event) -> None:
        """Store a change, remember it, and offer it to every watch."""
        key, records = event.record.key, self.records
        previous = records.get(key)
        if event.type == "DELETED":
            del records[key]
            del self.order[bisect_left(self.order, key)]
        else:
            if previous is None:
                insort(self.order, key)
            records[key] = event.record
        if self._has_nodes:
            self._index(previous, event.record if event.type != "DELETED" else None)
        self._ring.append(event)
        if len(self._ring) > self._ring_size:
            self.compacted = self._ring.popleft().version
        lines: dict[tuple[str, Kind], bytes] = {}
        for watch in tuple(self.watches):
            watch.offer(event, lines)

    def _index(self, before: Record | None, after: Record | None) -> None:
        old = before.fields["spec.nodeName"] if before is not None else None
        new = after.fields["spec.nodeName"] if after is not None else None
        if old == new:
            return
        if old is not None and before is not None:
            keys = self._by_node[old]
            keys.discard(before.key)
            if not keys:
                del self._by_node[old]
        if new is not None and after is not None:
            self._by_node.setdefault(new, set()).add(after.key)

    def since(self, version: int) -> Iterator[Event]:
        """Remembered events after a version, oldest first. Raises ApiError 410 when some are forgotten."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        events: list[Event] = []
        for event in reversed(self._ring):
            if event.version <= version:
                break
            events.append(event)
        return reversed(events)

    def forget(self, version: int) -> None:
        """Compact: keep no event."""
        self._ring.clear()
        self.compacted = max(self.compacted, version)


class Store:
    """Collections by resource, and the one resource version that grows with every write."""

    def __init__(self, *, ring_size: int = 10_000, version: int = 0) -> None:
        self.version = version
        self._ring_size = ring_size
        self._collections: dict[str, Collection] = {}

    def collection(self, kind: Kind) -> Collection:
        found = self._collections.get(kind.collection)
        if found is None:
            found = Collection(kind, ring_size=self._ring_size, compacted=self.version)
            self._collections[kind.collection] = found
        return found

    def collections(self) -> list[Collection]:
        return list(self._collections.values())

    def drop(self, kind: Kind) -> None:
        """Forget a resource; its watches end."""
        collection = self._collections.pop(kind.collection, None)
        for watch in tuple(collection.watches) if collection else ():
            watch.close()

    def add(self, collection: Collection, obj: Object) -> Record:
        self.version += 1
        record = Record(collection.kind, obj, self.version)
        collection.apply(Event(self.version, "ADDED", record, None))
        return record

    def replace(self, collection: Collection, previous: Record, obj: Object) -> Record:
        self.version += 1
        record = Record(collection.kind, obj, self.version)
        collection.apply(Event(self.version, "MODIFIED", record, previous))
        return record

    def remove(self, collection: Collection, previous: Record) -> Record:
        self.version += 1
        record = collection.at_version(previous, self.version)
        collection.apply(Event(self.version, "DELETED", record, previous))
        return record

    def restore(self, collection: Collection, obj: Object) -> None:
        """Put back an object under its own resource version, without an event."""
        record = Record(collection.kind, obj, int(obj["metadata"]["resourceVersion"]))
        collection.records[record.key] = record
        insort(collection.order, record.key)
        if collection._has_nodes:  # noqa: SLF001
            collection._index(None, record)  # noqa: SLF001

    def forget_history(self) -> None:
        for collection in self._collections.values():
            collection.forget(self.version)
