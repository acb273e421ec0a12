"""Get, list and watch: selection, paging, consistency by resource version, and the three forms of an answer.

The forms are the object itself, a Table, and metadata alone; the Accept header chooses.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import ApiError, Fault, bad_request, expired, invalid_object, too_large_version
from wainwright.sim.apiserver.kinds import Kind, Object
from wainwright.sim.apiserver.requests import JSON, Request, Response, WatchStream
from wainwright.sim.apiserver.selectors import FieldSelector, LabelTest, parse_field_selector, parse_label_selector
from wainwright.sim.apiserver.store import Collection, Record, RecordTest, Store, Watch
from wainwright.sim.apiserver.tables import partial_metadata, table

_encode = msgspec.json.Encoder().encode

DEFAULT_WATCH_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Form:
    """How an object is shown: `Object`, `Table` or `Partial` (metadata only)."""

    name: str
    content_type: str = JSON


def form_of(request: Request) -> Form:
    """The first form in the Accept header that this server has; protobuf is passed over."""
    for option in request.headers.get("accept", "").split(","):
        media, *parameters = (part.strip() for part in option.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        shown = given.get("as", "")
        if media not in (JSON, "*/*", "application/*", "application/yaml"):
            continue
        if shown == "Table" and given.get("v") == "v1":
            return Form("Table", f"{JSON};as=Table;v=v1;g=meta.k8s.io")
        if shown.startswith("PartialObjectMetadata") and given.get("v") == "v1":
            return Form("Partial", f"{JSON};as={shown};v=v1;g=meta.k8s.io")
        if not shown:
            break
    return Form("Object")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of a collection a request is about."""

    namespace: str
    labels: LabelTest | None
    fields: FieldSelector | None

    @property
    def node(self) -> str | None:
        return self.fields.exact("spec.nodeName") if self.fields else None

    def test(self) -> RecordTest | None:
        """None when everything matches."""
        namespace, labels, fields = self.namespace, self.labels, self.fields
        if labels is None and fields is None:
            if not namespace:
                return None
            return lambda record: record.namespace == namespace
        return lambda record: (
            (not namespace or record.namespace == namespace)
            and (labels is None or labels(record.labels))
            and (fields is None or fields.matches(record.fields))
        )


def selection_of(kind: Kind, namespace: str, request: Request) -> Selection:
    return Selection(
        namespace,
        parse_label_selector(request.query.get("labelSelector", "")),
        parse_field_selector(request.query.get("fieldSelector", ""), kind),
    )


class Reader:
    def __init__(self, store: Store, *, watch_limit_bytes: int) -> None:
        self._store = store
        self._watch_limit_bytes = watch_limit_bytes
        self.stale_version: int | None = None
        """Fault switch: gets and lists answer as of this version, as a lagging replica would."""

    def show(self, kind: Kind, record: Record, form: Form, now: datetime, include: str = "Metadata") -> bytes:
        if form.name == "Object":
            if kind.outward is None:
                return kind.opening + record.tail
            return _encode(kind.outward(record.decode(kind)))
        obj = record.decode(kind)
        if form.name == "Partial":
            return _encode(partial_metadata(obj))
        shown = table(kind, [obj], now, include=include)
        shown["metadata"] = {"resourceVersion": str(record.version)}
        return _encode(shown)

    def get(self, kind: Kind, namespace: str, name: str, request: Request, now: datetime) -> Response | None:
        """None when there is no such object."""
        version = _version(request.query.get("resourceVersion", ""))
        if version > self._store.version:
            raise too_large_version(version, self._store.version)
        collection = self._store.collection(kind)
        record = collection.get(namespace, name)
        if self.stale_version is not None:
            key = f"{namespace}/{name}" if namespace else name
            record = next((r for r in self._current(collection, namespace, None) if r.key == key), None)
        if record is None:
            return None
        form = form_of(request)
        return Response(
            200, self.show(kind, record, form, now, request.query.get("includeObject", "Metadata")), form.content_type
        )

    def _current(self, collection: Collection, namespace: str, node: str | None) -> Iterator[Record]:
        if self.stale_version is not None:
            return collection.select_at(max(self.stale_version, collection.compacted), namespace)
        return collection.select(namespace, node)

    # Lists --------------------------------------------------------------------------------------------------------

    def list_objects(self, kind: Kind, namespace: str, request: Request, now: datetime) -> Response:
        selection = selection_of(kind, namespace, request)
        collection = self._store.collection(kind)
        version, start, records = self._listed(collection, selection, request)
        test = selection.test()
        if start:
            records = (record for record in records if record.key > start)
        if test is not None:
            records = filter(test, records)
        limit = _count(request.query.get("limit", ""))
        page = list(islice(records, limit)) if limit else list(records)
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(page) == limit:
            rest = sum(1 for _ in records)
            if rest:
                metadata["continue"] = _token(version, page[-1].key)
                if selection.labels is None and selection.fields is None:
                    metadata["remainingItemCount"] = rest
        return self._rendered(kind, page, metadata, request, now)

    def _listed(
        self, collection: Collection, selection: Selection, request: Request
    ) -> tuple[int, str, Iterator[Record]]:
        """The version that a list is of, the key after which it starts, and the records from there on or before."""
        current = self._store.version
        token = request.query.get("continue", "")
        wanted = request.query.get("resourceVersion", "")
        match = request.query.get("resourceVersionMatch", "")
        if token:
            if wanted not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            version, start = _read_token(token)
            if version < 0:
                return current, start, self._current(collection, selection.namespace, None)
            try:
                return version, start, collection.select_at(version, selection.namespace)
            except ApiError as error:
                fresh = _token(-1, start)
                refusal = expired(
                    "The provided continue parameter is too old to display a consistent list result. "
                    "You can start a new "
                    "list without the continue parameter, or use the continue token in this response to retrieve the "
                    "remainder of the results. Continuing with the provided token results in an inconsistent list - "
                    "objects that were created, modified, or deleted between the time the first chunk was returned and "
                    "now may show up in the list."
                )
                refusal.continuation = fresh
                raise refusal from error
        if match and not wanted:
            raise _bad_list_option(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if match not in ("", "Exact", "NotOlderThan"):
            raise _bad_list_option("resourceVersionMatch", f'Unsupported value: "{match}"')
        asked = _version(wanted)
        if asked > current:
            raise too_large_version(asked, current)
        if match == "Exact":
            if asked == 0:
                raise _bad_list_option(
                    "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            return asked, "", collection.select_at(asked, selection.namespace)
        version = current if self.stale_version is None else max(self.stale_version, collection.compacted)
        return version, "", self._current(collection, selection.namespace, selection.node)

    def _rendered(
        self, kind: Kind, records: list[Record], metadata: Object, request: Request, now: datetime
    ) -> Response:
        form = form_of(request)
        if form.name == "Table":
            include = request.query.get("includeObject", "Metadata")
            shown = table(kind, (record.decode(kind) for record in records), now, include=include)
            shown["metadata"] = metadata
            return Response(200, _encode(shown), form.content_type)
        if form.name == "Partial":
            items = [partial_metadata(record.decode(kind)) for record in records]
            shown = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items,
            }
            return Response(200, _encode(shown), form.content_type)
        head = (
            f'{{"kind":"{kind.name}List","apiVersion":"{kind.api_version}","metadata":'.encode()
            + _encode(metadata)
            + b',"items":['
        )
        if kind.outward is not None:
            return Response(200, head + b",".join(self.show(kind, r, form, now) for r in records) + b"]}")
        opening = kind.opening if kind.custom else b"{"
        if not records:
            return Response(200, head + b"]}")
        return Response(200, b"".join((head, opening, (b"," + opening).join([r.tail for r in records]), b"]}")))

    # Watches ------------------------------------------------------------------------------------------------------

    def watch(self, kind: Kind, namespace: str, request: Request, now: Callable[[], datetime]) -> WatchStream:
        """now: asked anew for each event that is shown as a Table."""
        collection = self._store.collection(kind)
        selection = selection_of(kind, namespace, request)
        form = form_of(request)
        wanted = request.query.get("resourceVersion", "")
        bookmarks = request.flag("allowWatchBookmarks")
        initial = self._wants_initial(request, wanted, bookmarks=bookmarks)
        timeout = _count(request.query.get("timeoutSeconds", "")) or DEFAULT_WATCH_SECONDS
        version = _version(wanted)
        watch = Watch(
            collection,
            matches=selection.test(),
            render=self._renderer(kind, form, request.query.get("includeObject", "Metadata"), now),
            kind=kind,
            limit_bytes=self._watch_limit_bytes,
        )
        if version == 0 or initial:
            test = selection.test()
            for record in collection.select(selection.namespace, selection.node):
                if test is None or test(record):
                    watch.replay("ADDED", record)
            if initial:
                watch.append(self.bookmark(kind, initial_end=True))
        else:
            try:
                events = collection.since(version)
            except ApiError as error:
                watch.append(_encode({"type": "ERROR", "object": error.status()}) + b"\n")
                watch.close()
                return WatchStream(watch, float(timeout), bookmarks, form.content_type)
            for event in events:
                watch.offer(event, {})
            watch.forgive()
        collection.watches.add(watch)
        return WatchStream(watch, float(timeout), bookmarks, form.content_type)

    def _wants_initial(self, request: Request, wanted: str, *, bookmarks: bool) -> bool:
        given = request.query.get("sendInitialEvents")
        match = request.query.get("resourceVersionMatch", "")
        if given is None:
            if match:
                raise _bad_list_option("resourceVersionMatch", "resourceVersionMatch is forbidden for watch")
            return False
        if match != "NotOlderThan":
            raise _bad_list_option(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        version = _version(wanted)
        if version > self._store.version:
            raise too_large_version(version, self._store.version)
        return request.flag("sendInitialEvents") and bookmarks

    def bookmark(self, kind: Kind, *, initial_end: bool = False) -> bytes:
        """A line that tells a watcher how far it has come: everything up to the current version."""
        metadata: Object = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _renderer(
        self, kind: Kind, form: Form, include: str, now: Callable[[], datetime]
    ) -> Callable[[Record], bytes] | None:
        if form.name == "Object" and kind.outward is None:
            return None
        if form.name != "Table":
            return lambda record: self.show(kind, record, form, now())
        shown = 0

        def row(record: Record) -> bytes:
            nonlocal shown
            shown += 1
            rendered = table(kind, [record.decode(kind)], now(), include=include, header=shown == 1)
            rendered["metadata"] = {"resourceVersion": str(record.version)}
            return _encode(rendered)

        return row


def _version(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit() or len(text) > 20:
        detail = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": {detail}')
    return int(text)


def _count(text: str) -> int:
    if not text:
        return 0
    try:
        return max(int(text), 0)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _bad_list_option(field: str, why: str) -> ApiError:
    options = Kind("meta.k8s.io", "v1", "ListOptions", "listoptions")
    return invalid_object(options, "", [Fault(field, "FieldValueForbidden", f"Forbidden: {why}")])


def _token(version: int, key: str) -> str:
    raw = _encode({"v": "meta.k8s.io/v1", "rv": version, "start": key})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        raw: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(raw["rv"]), str(raw["start"])
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request("continue key is not valid: not a token of this server") from error
