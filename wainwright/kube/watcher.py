"""The watcher: one active process keeps the cluster view, others stand by.

The active one holds the Lease. For each epoch it runs a session: the view is begun anew, NodeClaims are listed and
adopted, Nodes and Pods follow, then the rest, then the view is complete; from then on watches keep it. A session ends
when the Lease is lost, when another watcher has written, or when Redis came back empty; the next one begins anew.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.pods import Pod
from wainwright.batching.store import Store
from wainwright.clock import Clock, SystemClock
from wainwright.errors import FenceLost, StoreUnavailable
from wainwright.kube.client import LIST_PAGE, SILENCE_SECONDS, WATCH_SECONDS, KubeClient
from wainwright.kube.feed import Listener, ViewFeed
from wainwright.kube.leases import LeaderElector
from wainwright.kube.view import KINDS, ORDERED_KINDS, EpochOver, Fenced, Kind, ViewWriter
from wainwright.kube.watch import Follower

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.5
"""How often the watcher looks at its Lease and its session."""
PAUSE_SECONDS: Final = 0.5
"""Between two sessions, so that a Redis that refuses everything costs nothing."""

Adopt = Callable[[Sequence[NodeClaim], str, int], None]
"""Gives the listed NodeClaims records and marks the data as adopted, all under this epoch and fence."""


class Epoch(Protocol):
    """What the consumers of a session may use: its name, and whether it is still the present one."""

    @property
    def name(self) -> str: ...

    @property
    def is_live(self) -> bool: ...

    def missing(self) -> list[tuple[str, str]]:
        """See ViewWriter.missing."""


class Consumer(Protocol):
    """Works with what the view shows. on_waiting, on_material: from the writer's thread, so they must be quick."""

    def begun(self, epoch: Epoch) -> None:
        """The view is complete in this epoch; called from the session's thread."""

    def waiting(self, epoch: Epoch, pods: Sequence[Pod]) -> None:
        """Pods that wait for capacity and are in no queue, plan, retry set or `dead`."""

    def material(self, epoch: Epoch, why: str) -> None:
        """Something changed that could help pods which could not be placed."""


class WatchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """watch_seconds: watches end and resume after it; silence_seconds: one without a sign of life is cut."""

    watch_seconds: float = WATCH_SECONDS
    silence_seconds: float = SILENCE_SECONDS
    page: int = LIST_PAGE


class Session:
    """One epoch of the active watcher, from the empty view to its end."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        *,
        fence: int,
        holder: str,
        adopt: Adopt,
        consumer: Consumer,
        may_write: Callable[[], bool],
        listeners: dict[str, list[Listener]],
        policy: WatchPolicy,
        kinds: Sequence[Kind] = KINDS,
        clock: Clock | None = None,
    ) -> None:
        self.name = secrets.token_hex(8)
        self._clock = clock or SystemClock()
        self._writer = ViewWriter(store, epoch=self.name, fence=fence, holder=holder)
        self._adopt = adopt
        self._consumer = consumer
        self._may_write = may_write
        self._stop = threading.Event()
        self._complete = False
        self._over: FenceLost | None = None
        self.feed = ViewFeed(
            self._writer,
            may_write=may_write,
            on_waiting=lambda pods: consumer.waiting(self, pods),
            on_material=self._material,
            listeners=listeners,
            clock=self._clock,
        )
        self._followers = [
            Follower(
                client,
                kind.resource,
                kind.as_type,
                self.feed,
                required=kind.required,
                watch_seconds=policy.watch_seconds,
                silence_seconds=policy.silence_seconds,
                page=policy.page,
                clock=self._clock,
            )
            for kind in kinds
        ]
        self._kinds = kinds

    @property
    def over(self) -> FenceLost | None:
        """Why the session cannot go on; None while it can."""
        return self.feed.over or self._over

    @property
    def is_live(self) -> bool:
        return not self._stop.is_set() and self.over is None and self._may_write()

    def missing(self) -> list[tuple[str, str]]:
        """See Epoch."""
        return self._writer.missing()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"session-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """Ends it at once: nothing is written after this (one write may be under way; its fence decides)."""
        self._stop.set()
        self.feed.stop()
        for follower in self._followers:
            follower.stop()

    def _run(self) -> None:
        try:
            began = self._clock.monotonic_seconds()
            adopted = self._insist("begin", self._writer.begin)
            if adopted is None:
                return
            logger.info("action=epoch_begun epoch=%s fence=%d adopted=%s", self.name, self._writer.fence, adopted)
            threading.Thread(target=self.feed.run, name="view-writer", daemon=True).start()
            if not self._list_all():
                return
            if not self._insist("complete", self._writer.complete):
                return
            self._complete = True
            seconds = self._clock.monotonic_seconds() - began
            logger.info("action=view_complete epoch=%s after_s=%.2f", self.name, seconds)
            self._consumer.begun(self)
        except FenceLost as error:
            self._over = error

    def _list_all(self) -> bool:
        """Claims first, and adopted; nodes, pods; then the rest together. False when the session ended meanwhile."""
        for index, follower in enumerate(self._followers):
            threading.Thread(target=follower.run, name=f"follow-{self._kinds[index].name}", daemon=True).start()
            if index < ORDERED_KINDS and not self._wait(follower):
                return False
            if index == 0:
                claims = self.feed.take_claims()
                if self._insist("adopt", lambda claims=claims: self._adopted(claims)) is None:  # type: ignore[misc]
                    return False
        return all(self._wait(follower) for follower in self._followers[ORDERED_KINDS:]) and self.feed.flush()

    def _adopted(self, claims: Sequence[NodeClaim]) -> bool:
        self._adopt(claims, self.name, self._writer.fence)
        return True

    def _wait(self, follower: Follower) -> bool:
        while not self._stop.is_set() and self.over is None:
            if follower.was_listed.wait(0.2):
                return True
        return False

    def _insist(self, what: str, step: Callable[[], Any]) -> Any:
        """Repeats a step until it answers something other than False; None when the session ended first."""
        failures = 0
        while not self._stop.is_set() and self.over is None:
            if self._may_write():
                try:
                    answer = step()
                except FenceLost:
                    raise
                except Exception as error:
                    failures += 1
                    if failures == 1:
                        known = isinstance(error, StoreUnavailable)
                        logger.warning("action=%s_failed error=%s", what, error, exc_info=None if known else error)
                else:
                    if answer is not False:
                        return answer
            self._stop.wait(min(2.0, 0.1 * 2 ** min(failures, 5)))
        return None

    def _material(self, why: str) -> None:
        if self._complete:
            self._consumer.material(self, why)


class Watcher:
    """Stands by, leads, and runs sessions, until stopped. `run` blocks."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        elector: LeaderElector,
        *,
        holder: str,
        adopt: Adopt,
        consumer: Consumer,
        policy: WatchPolicy = WatchPolicy(),  # noqa: B008 - frozen
        kinds: Sequence[Kind] = KINDS,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._elector = elector
        self._holder = holder
        self._adopt = adopt
        self._consumer = consumer
        self._policy = policy
        self._kinds = kinds
        self._clock = clock or SystemClock()
        self._listeners: dict[str, list[Listener]] = defaultdict(list)
        self._stop = threading.Event()
        self.session: Session | None = None

    def subscribe(self, kind: str, listener: Listener) -> None:
        """Before `run`: tells every change of a kind (plural) after it is in the view. See Listener."""
        self._listeners[kind].append(listener)

    def run(self) -> None:
        """Until `stop`; then the Lease is released, so that a standby goes on at once."""
        try:
            while not self._stop.is_set():
                self._step()
                self._stop.wait(STEP_SECONDS)
        finally:
            if self.session is not None:
                self.session.stop()
            self._elector.release()

    def stop(self) -> None:
        """From any thread, or a signal handler."""
        self._stop.set()

    def _step(self) -> None:
        leads = self._elector.step()
        session = self.session
        if session is not None and not leads:
            logger.warning("action=lease_lost epoch=%s other=%s", session.name, self._elector.other)
            session.stop()
            self.session = None
        elif session is not None and session.over is not None:
            logger.warning("action=epoch_over epoch=%s why=%s", session.name, session.over)
            session.stop()
            self.session = None
            if isinstance(session.over, Fenced):
                # Somebody wrote under a higher fence. If the Lease is still ours, that one is deposed: outdo it.
                leads = self._elector.raise_fence(session.over.fence)
            if not isinstance(session.over, EpochOver):
                self._stop.wait(PAUSE_SECONDS)
        if leads and self.session is None and not self._stop.is_set():
            self.session = Session(
                self._client,
                self._store,
                fence=self._elector.fence,
                holder=self._holder,
                adopt=self._adopt,
                consumer=self._consumer,
                may_write=lambda: self._elector.leads,
                listeners=dict(self._listeners),
                policy=self._policy,
                kinds=self._kinds,
                clock=self._clock,
            )
            self.session.start()
