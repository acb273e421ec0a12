"""Kubernetes Events: what happened to an object, for whoever runs `kubectl describe`.

Recording is best effort and never in the way: it costs a place in a bounded queue, one thread sends, what is too much
is dropped, and nothing is ever raised.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from typing import Final, Literal, NamedTuple

from wainwright.api.meta import ObjectMeta
from wainwright.api.reasons import EventReason
from wainwright.clock import Clock, SystemClock
from wainwright.errors import WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import EVENTS, Resource

logger = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

DEDUPE_SECONDS: Final = 120.0
"""The same event about the same object is recorded once in so long (as Karpenter does it)."""
EVENTS_PER_SECOND: Final = 10.0
BURST: Final = 50
QUEUE_LIMIT: Final = 500
LONGEST_MESSAGE: Final = 1024
"""The API server refuses longer ones."""
QUIET_SECONDS: Final = 60.0


class ObjectReference(NamedTuple):
    """What an event is about. uid may be empty; `kubectl describe` then matches by name."""

    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: Resource, meta: ObjectMeta) -> ObjectReference:
        return cls(resource, meta.name, meta.namespace, meta.uid)


class _Event(NamedTuple):
    about: ObjectReference
    reason: str
    type: EventType
    message: str
    at: str


class EventRecorder:
    """Records events as `component`. Thread-safe; make it after forking. Its thread starts with the first event."""

    def __init__(
        self,
        client: KubeClient,
        *,
        component: str = "wainwright",
        clock: Clock | None = None,
        dedupe_seconds: float = DEDUPE_SECONDS,
        per_second: float = EVENTS_PER_SECOND,
        burst: int = BURST,
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock or SystemClock()
        self._dedupe_seconds = dedupe_seconds
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = self._clock.monotonic_seconds()
        self._recorded: dict[tuple[ObjectReference, str, str], float] = {}
        self._lock = threading.Lock()
        self._queue: queue.Queue[_Event] = queue.Queue(QUEUE_LIMIT)
        self._thread: threading.Thread | None = None
        self._complained_at = float("-inf")

    def event(self, about: ObjectReference, reason: EventReason | str, type: EventType, message: str) -> None:  # noqa: A002
        """Records an event, unless the same was recorded lately or too many were. Never raises, never waits."""
        with self._lock:
            if not self._admits((about, str(reason), message)):
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            self._queue.put_nowait(_Event(about, str(reason), type, message, at))
        except queue.Full:
            self._complain("too many at once")

    def drain(self) -> None:
        """Returns when all that was admitted has been sent or given up."""
        self._queue.join()

    def _admits(self, key: tuple[ObjectReference, str, str]) -> bool:
        now = self._clock.monotonic_seconds()
        last = self._recorded.get(key)
        if last is not None and now - last < self._dedupe_seconds:
            return False
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        if len(self._recorded) >= 10_000:
            fresh = {k: at for k, at in self._recorded.items() if now - at < self._dedupe_seconds}
            self._recorded = fresh if len(fresh) < 10_000 else {}
        self._recorded[key] = now
        return True

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            try:
                self._send(event)
            except WainwrightError as error:
                self._complain(str(error))
            except Exception as error:
                self._complain(repr(error))
            finally:
                self._queue.task_done()

    def _send(self, event: _Event) -> None:
        about, namespace = event.about, event.about.namespace or "default"
        message = event.message
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        body = {
            "metadata": {"name": f"{about.name[:230]}.{secrets.token_hex(8)}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.resource.api_version,
                "kind": about.resource.kind,
                "name": about.name,
                **({"namespace": about.namespace} if about.namespace else {}),
                **({"uid": about.uid} if about.uid else {}),
            },
            "reason": event.reason,
            "type": event.type,
            "message": message,
            "count": 1,
            "firstTimestamp": event.at,
            "lastTimestamp": event.at,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
        }
        self._client.create(EVENTS, body, namespace)

    def _complain(self, why: str) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._complained_at >= QUIET_SECONDS:
            self._complained_at = now
            logger.warning("action=event_dropped why=%s", why)
