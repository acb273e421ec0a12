"""From what the followers see to writes of the view: one queue, one writer, many objects a write.

Keeps no objects: per pod its UID and what it looked like (a hash), per node the same; the rest is in flight for
milliseconds. Only what must happen in order with the write happens here; everything slow goes elsewhere.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node
from wainwright.api.pods import Pod
from wainwright.clock import Clock, SystemClock
from wainwright.errors import FenceLost, StoreUnavailable
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import NODE_CLAIMS, NODES, PODS, Resource
from wainwright.kube.view import Change, EpochOver, ViewWriter, shape

logger = logging.getLogger(__name__)

CHANGES_PER_WRITE: Final = 250
"""What one write holds Redis up for: about 25 ms."""
BYTES_PER_WRITE: Final = 4 << 20
LINGER_SECONDS: Final = 0.01
"""How long the writer waits for company before a write."""
QUEUE_LIMIT: Final = 2000
"""Changes waiting for the writer; followers wait when there are more, so that memory stays small."""
HEARTBEAT_SECONDS: Final = 1.0
"""Without changes the writer asks so often whether the epoch is still its own (Redis may have been emptied)."""
SHORTEST_BACKOFF: Final = 0.1
LONGEST_BACKOFF: Final = 2.0
QUIET_SECONDS: Final = 60.0
"""The same trouble is reported once in so long."""

Listener = Callable[[str, Any], None]
"""Called with `put`, `gone`, `undecodable` or `listed`, and the object (for `listed` the keys of all that exist), after
it is in the view, from the writer's thread: it must not wait."""


class _Flushed(NamedTuple):
    done: threading.Event


class _List(NamedTuple):
    """What a list has shown so far."""

    keys: set[str]
    uids: set[str]
    unbound: set[str]


class _Told(NamedTuple):
    """A change on its way, with what it means to others once it is in the view."""

    change: Change
    event: str
    thing: Any
    material: str


class ViewFeed:
    """The sink of all followers of one session. `run` is for a thread of its own; it ends with `stop`, or when the
    view is in other hands (`over` tells why).

    may_write: asked before every write. on_waiting: pods that wait for capacity and are nowhere yet, after their write.
    on_material: why pods that could not be placed should be looked at again. listeners: by plural.
    """

    def __init__(
        self,
        writer: ViewWriter,
        *,
        may_write: Callable[[], bool],
        on_waiting: Callable[[list[Pod]], None],
        on_material: Callable[[str], None],
        listeners: Mapping[str, Sequence[Listener]],
        clock: Clock | None = None,
    ) -> None:
        self.over: FenceLost | None = None
        self._writer = writer
        self._may_write = may_write
        self._on_waiting = on_waiting
        self._on_material = on_material
        self._listeners = listeners
        self._clock = clock or SystemClock()
        self._queue: queue.Queue[_Told | _Flushed] = queue.Queue(QUEUE_LIMIT)
        self._stop = threading.Event()
        self._shapes: dict[Resource, dict[str, int]] = {PODS: {}, NODES: {}}
        """UID → what it looked like."""
        self._lists: dict[Resource, _List] = {}
        self._listed_at: dict[Resource, str] = {}
        self._bad: set[str] = set()
        """`plural/key` of what could not be decoded when last seen."""
        self._complained_at = float("-inf")
        self._claims: list[NodeClaim] | None = []
        self._first_claims: list[NodeClaim] = []

    # From the followers' threads, each with kinds of its own ----------------------------------------------------------

    def put(self, resource: Resource, thing: Any) -> None:
        """See Sink. A pod that is over (Succeeded, Failed) holds nothing and counts as gone."""
        meta = thing.metadata
        shapes = self._shapes.get(resource, {})
        if isinstance(thing, Pod) and thing.is_terminal:
            if meta.uid in shapes:
                self.gone(resource, thing)
            return
        before = shapes.get(meta.uid)
        changed = False
        if isinstance(thing, (Pod, Node)):
            shapes[meta.uid] = shape(thing)
            changed = before is not None and before != shapes[meta.uid]
        name = f"{resource.plural}/{meta.key}"
        if name in self._bad:
            self._bad.discard(name)
            changed = True
        material = ""
        if resource is NODES and (changed or before is None):
            material = f"node {meta.name} {'changed' if before is not None else 'appeared'}"
        listing = self._lists.get(resource)
        if listing is not None:
            material = ""
            listing.keys.add(meta.key)
            listing.uids.add(meta.uid)
            if isinstance(thing, Pod) and not thing.is_bound:
                listing.unbound.add(meta.uid)
        if self._claims is not None and isinstance(thing, NodeClaim):
            self._claims.append(thing)
        change = Change.put(resource.plural, thing, shape_changed=changed)
        self._tell(_Told(change, "put", self._for_listeners(resource, thing), material))

    def gone(self, resource: Resource, thing: Any) -> None:
        """See Sink."""
        meta = thing.metadata
        self._shapes.get(resource, {}).pop(meta.uid, None)
        material = f"claim {meta.name} gone" if resource is NODE_CLAIMS else ""
        change = Change.delete(resource.plural, meta)
        self._tell(_Told(change, "gone", self._for_listeners(resource, thing), material))

    def undecodable(self, resource: Resource, bad: Undecodable, *, gone: bool) -> None:
        """See Sink."""
        name = f"{resource.plural}/{bad.key}"
        if gone:
            self._bad.discard(name)
            change = Change("del", resource.plural, bad.key, bad.uid, bad.resource_version, "", b"")
        else:
            if name not in self._bad:
                logger.warning("action=undecodable what=%s why=%s", name, bad.why)
            self._bad.add(name)
            change = Change.undecodable(resource.plural, bad)
        listing = self._lists.get(resource)
        if listing is not None:
            listing.keys.add(bad.key)
            listing.unbound.add(bad.uid)
        event = "gone" if gone else "undecodable"
        self._tell(_Told(change, event, self._for_listeners(resource, bad), ""))

    def alive(self, resource: Resource, resource_version: str) -> None:
        """See Sink."""
        self._tell(_Told(Change.progress(resource.plural, resource_version), "", None, ""))

    def listing(self, resource: Resource) -> None:
        """See Sink."""
        self._lists[resource] = _List(set(), set(), set())
        if resource is NODE_CLAIMS and self._claims:
            self._claims.clear()

    def listed(self, resource: Resource, resource_version: str) -> None:
        """See Sink."""
        listing = self._lists.pop(resource)
        if resource is NODE_CLAIMS and self._claims is not None:
            self._first_claims, self._claims = self._claims, None
        shapes = self._shapes.get(resource, {})
        for uid in [uid for uid in shapes if uid not in listing.uids]:
            del shapes[uid]
        unbound = listing.unbound if resource is PODS else ()
        change = Change.listed(resource.plural, resource_version, listing.keys, unbound)
        told = self._for_listeners(resource, frozenset(listing.keys))
        self._tell(_Told(change, "listed", told, f"{resource.plural} listed anew"))
        self._check_history(resource, resource_version)

    def _check_history(self, resource: Resource, resource_version: str) -> None:
        """An API server whose versions went back (restored from a backup) shows another history: what the view holds is
        newer by number only, so the view must begin anew.
        """
        last, self._listed_at[resource] = self._listed_at.get(resource, ""), resource_version
        if last.isdigit() and resource_version.isdigit() and int(resource_version) < int(last):
            self.over = EpochOver(
                f"{resource.plural} were listed at version {resource_version}, after {last}: the history went back"
            )
            self._stop.set()

    # From the session -------------------------------------------------------------------------------------------------

    def take_claims(self) -> list[NodeClaim]:
        """The NodeClaims of the first list, once that is through; none are kept here any more."""
        claims, self._first_claims = self._first_claims, []
        return claims

    def flush(self) -> bool:
        """Waits until everything told so far is in the view; False when the session ended first."""
        mark = _Flushed(threading.Event())
        self._tell(mark)
        while not self._stop.is_set():
            if mark.done.wait(0.1):
                return True
        return False

    def stop(self) -> None:
        """Nothing is written any more; `run` and waiting followers end."""
        self._stop.set()

    # The writer -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Writes until `stop`, or until the view is in other hands."""
        while not self._stop.is_set():
            told, mark = self._collect()
            try:
                waiting = self._write([one.change for one in told])
            except FenceLost as error:
                self.over = error
                self._stop.set()
                return
            if waiting is None:
                return
            self._after(told, waiting)
            if mark is not None:
                mark.done.set()

    def _collect(self) -> tuple[list[_Told], _Flushed | None]:
        told: list[_Told] = []
        size = 0
        wait = HEARTBEAT_SECONDS
        deadline = 0.0
        while len(told) < CHANGES_PER_WRITE and size < BYTES_PER_WRITE:
            try:
                one = self._queue.get(timeout=wait)
            except queue.Empty:
                break
            if isinstance(one, _Flushed):
                return told, one
            told.append(one)
            size += len(one.change.value)
            if len(told) == 1:
                deadline = self._clock.monotonic_seconds() + LINGER_SECONDS
            wait = max(0.0, deadline - self._clock.monotonic_seconds())
            if wait == 0.0 and self._queue.empty():
                break
        return told, None

    def _write(self, changes: list[Change]) -> list[Pod] | None:
        """Writes until it has worked (a write may be repeated); None when the session was stopped meanwhile."""
        failures = 0
        while not self._stop.is_set():
            if not self._may_write():
                self._stop.wait(0.05)
                continue
            try:
                waiting = self._writer.apply(changes)
            except FenceLost:
                raise
            except Exception as error:
                # StoreUnavailable, or Redis refuses (out of memory, loading): both end, and nothing may be left out.
                failures += 1
                if failures == 1:
                    known = isinstance(error, StoreUnavailable)
                    logger.warning("action=view_write_failed error=%s", error, exc_info=None if known else error)
                self._stop.wait(min(LONGEST_BACKOFF, SHORTEST_BACKOFF * 2 ** min(failures, 10)))
            else:
                if failures:
                    logger.info("action=view_write_recovered attempts=%d", failures)
                return waiting
        return None

    def _after(self, told: list[_Told], waiting: list[Pod]) -> None:
        """Tells consumers and listeners. A fault of theirs must not end the writer: resyncs make good what it cost."""
        try:
            if waiting:
                self._on_waiting(waiting)
            material = [one.material for one in told if one.material]
            if material:
                more = f" and {len(material) - 1} more" if len(material) > 1 else ""
                self._on_material(material[-1] + more)
            for one in told:
                for listener in self._listeners.get(one.change.kind, ()) if one.event else ():
                    listener(one.event, one.thing)
        except Exception:
            now = self._clock.monotonic_seconds()
            if now - self._complained_at >= QUIET_SECONDS:
                self._complained_at = now
                logger.exception("action=consumer_failed")

    def _for_listeners(self, resource: Resource, thing: Any) -> Any:
        return thing if resource.plural in self._listeners else None

    def _tell(self, told: _Told | _Flushed) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(told, timeout=0.5)
            except queue.Full:
                continue
            return
