"""Follows one kind: lists it, then watches it for ever, and tells a sink what changed, in order.

A watch ends after ten seconds by the server's time-out and is resumed from the last resourceVersion; a broken or silent
one is resumed too, with back-off; a resourceVersion that is too old means listing anew. Nothing is kept here but the
resourceVersion.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import Any, Final, Protocol, TypeVar

from wainwright.clock import Clock, SystemClock
from wainwright.errors import Expired, KubeError, KubeUnavailable, NotFound, WainwrightError
from wainwright.kube.client import LIST_PAGE, SILENCE_SECONDS, WATCH_SECONDS, KubeClient, Undecodable, Watch
from wainwright.kube.resources import Resource

logger = logging.getLogger(__name__)
T = TypeVar("T")

SHORTEST_BACKOFF: Final = 0.2
LONGEST_BACKOFF: Final = 5.0
ABSENT_SECONDS: Final = 15.0
"""How often a kind is asked for that the API server does not serve."""


class Sink(Protocol):
    """Takes what a follower sees, in order, from the follower's thread; may block (back-pressure)."""

    def put(self, resource: Resource, thing: Any) -> None:
        """It exists, in this version."""

    def gone(self, resource: Resource, thing: Any) -> None:
        """It does not exist any more; thing: its last state."""

    def undecodable(self, resource: Resource, bad: Undecodable, *, gone: bool) -> None: ...

    def alive(self, resource: Resource, resource_version: str) -> None:
        """A sign of life: everything up to here was told."""

    def listing(self, resource: Resource) -> None:
        """A list begins: `put` follows for everything that exists."""

    def listed(self, resource: Resource, resource_version: str) -> None:
        """What was not put since `listing` does not exist."""


class Follower:
    """Follows one kind until stopped; `run` is for a thread of its own.

    required: False: a kind that the server does not serve counts as empty. was_listed: set after the first list.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        as_type: type[Any],
        sink: Sink,
        *,
        required: bool = True,
        watch_seconds: float = WATCH_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        page: int = LIST_PAGE,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._as_type = as_type
        self._sink = sink
        self._required = required
        self._watch_seconds = watch_seconds
        self._silence_seconds = silence_seconds
        self._page = page
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._watch: Watch[Any] | None = None
        self._version = ""
        self.was_listed = threading.Event()
        self._failures = 0
        self._expirations = 0
        self._failing_since = 0.0

    def stop(self) -> None:
        """Ends `run` at once, from another thread."""
        self._stop.set()
        watch = self._watch
        if watch is not None:
            watch.stop()

    def run(self) -> None:
        """Lists and watches until `stop`; no error ends it."""
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                else:
                    self._follow()
                    self._recovered()
            except Expired:
                logger.info("action=watch_expired kind=%s version=%s", self._resource.plural, self._version)
                self._version = ""
                self._expirations += 1
                self._back_off(self._expirations)
            except (KubeUnavailable, KubeError) as error:
                self._failed(error)
            except Exception as error:
                # A fault of ours: what it left undone is made good by listing anew.
                self._version = ""
                self._failed(error)

    def _list(self) -> None:
        """Leaves the version empty when the kind is not served (which is told as an empty list)."""
        resource, version = self._resource, ""
        self._sink.listing(resource)
        try:
            for page in self._client.pages(resource, self._as_type, limit=self._page):
                if self._stop.is_set():
                    return
                version = page.resource_version
                for thing in page.items:
                    self._sink.put(resource, thing)
                for bad in page.undecodable:
                    self._sink.undecodable(resource, bad, gone=False)
        except NotFound:
            if self._required:
                raise
            self._tell_listed("")
            self._stay_absent()
            return
        self._version = version
        self._tell_listed(version)

    def _tell_listed(self, version: str) -> None:
        self._sink.listed(self._resource, version)
        self.was_listed.set()

    def _stay_absent(self) -> None:
        """Shows life for a kind that is not there, for as long as it may not be asked for again."""
        until = self._clock.monotonic_seconds() + ABSENT_SECONDS
        while self._clock.monotonic_seconds() < until and not self._stop.wait(min(5.0, ABSENT_SECONDS)):
            self._sink.alive(self._resource, "")

    def _follow(self) -> None:
        """One watch, until it ends or breaks; `_version` moves with every event told, so nothing is told twice."""
        resource = self._resource
        # Spread a little, so that the watches of all kinds do not end together.
        seconds = max(1, round(self._watch_seconds * (0.9 + 0.2 * random.random())))
        watch = self._watch = self._client.watch(
            resource,
            self._as_type,
            self._version,
            timeout_seconds=seconds,
            silence_seconds=max(self._silence_seconds, seconds + 1),
        )
        try:
            for event in watch:
                if self._stop.is_set():
                    return
                if event.undecodable is not None:
                    self._sink.undecodable(resource, event.undecodable, gone=event.type == "DELETED")
                elif event.type == "BOOKMARK":
                    self._sink.alive(resource, event.resource_version)
                elif event.type == "DELETED":
                    self._sink.gone(resource, event.object)
                else:
                    self._sink.put(resource, event.object)
                self._version = event.resource_version or self._version
                self._recovered()
        finally:
            self._watch = None
        if not self._stop.is_set():
            self._sink.alive(resource, self._version)

    def _failed(self, error: Exception) -> None:
        """Waits before the next attempt; tells of the first failure of a row only."""
        if self._stop.is_set():
            return
        self._failures += 1
        if self._failures == 1:
            self._failing_since = self._clock.monotonic_seconds()
            logger.warning(
                "action=watch_broken kind=%s version=%s error=%s",
                self._resource.plural,
                self._version,
                error,
                exc_info=None if isinstance(error, WainwrightError) else error,
            )
        self._back_off(self._failures)

    def _recovered(self) -> None:
        self._expirations = 0
        if self._failures:
            seconds = self._clock.monotonic_seconds() - self._failing_since
            logger.info(
                "action=watch_recovered kind=%s attempts=%d after_s=%.1f",
                self._resource.plural,
                self._failures,
                seconds,
            )
            self._failures = 0

    def _back_off(self, attempts: int) -> None:
        longest = min(LONGEST_BACKOFF, SHORTEST_BACKOFF * 2 ** min(attempts, 10))
        self._stop.wait(longest * (0.5 + random.random() / 2))
