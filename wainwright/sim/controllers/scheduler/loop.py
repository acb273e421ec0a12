"""The scheduler's loop: takes pods from its queue, places them, binds them or writes why not."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from wainwright.sim.controllers.client import STRATEGIC_PATCH, ApiError, Unreachable
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.objects import (
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    Namespace,
    Node,
    Pod,
)
from wainwright.sim.controllers.scheduler.filters import Shape, TopologyFilter, VolumeLimits, shape_of
from wainwright.sim.controllers.scheduler.placement import Placement, Placer
from wainwright.sim.controllers.scheduler.state import SchedulerState
from wainwright.sim.controllers.scheduler.volumes import volume_limits

SCHEDULER_NAME = "default-scheduler"

_log = logging.getLogger(__name__)
_TURN = 200
"""Pods placed before other coroutines get their turn."""
_WRITES = 600
"""Bindings and conditions under way at most; above, the loop waits."""
_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 10.0
_REFRESH_SECONDS = 5.0
_REWRITE_SECONDS = 10.0
_MAX_REWRITE_SECONDS = 60.0


@dataclass(slots=True)
class Waiting:
    """A pod the scheduler has to place. Times are loop times.

    message, told_at, rewrite_seconds: the condition last written, when, and how long it then stands even though the
    text has changed (a cluster that grows by a node a second must not rewrite thousands of conditions each time).
    """

    pod: Pod
    shape: Shape
    is_special: bool
    """Has constraints beyond its shape (topology, volumes)."""
    sequence: int
    attempts: int = 0
    not_before: float = 0.0
    message: str = ""
    told_at: float = -1e9
    rewrite_seconds: float = _REWRITE_SECONDS
    is_refresh: bool = False
    """Looked at again for its message only: no attempt, no back-off."""


def is_mine(pod: Pod) -> bool:
    """Should this scheduler place the pod? Its own name, unbound, neither over nor being deleted, no gates."""
    return (
        pod.spec.scheduler_name == SCHEDULER_NAME
        and not pod.spec.node_name
        and pod.is_active
        and not pod.spec.scheduling_gates
    )


def told_message(pod: Pod) -> str:
    """The message of an Unschedulable condition the pod carries already, else empty."""
    condition = pod.condition("PodScheduled")
    return (
        condition.message if condition and condition.status == "False" and condition.reason == "Unschedulable" else ""
    )


class Scheduler:
    """Places pods by priority, then age. A pod that fits nowhere is parked until something changes that could help."""

    name = "scheduler"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state = SchedulerState()
        self._placer = Placer(self._state)
        self._waiting: dict[str, Waiting] = {}
        self._active: list[tuple[int, int, str]] = []
        self._parked: dict[bytes, dict[str, None]] = {}
        self._parked_special: dict[str, None] = {}
        self._assumed: set[str] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._sequence = 0
        self._looked_at_generation = -1
        self._next_refresh = 0.0
        self._claims = cluster.informer(CLAIMS)
        self._volumes = cluster.informer(VOLUMES)
        self._classes = cluster.informer(STORAGE_CLASSES)
        for informer in (self._claims, self._volumes, self._classes):
            informer.on_change(lambda _old, _new: self._revive_special())
        cluster.informer(NAMESPACES).on_change(self._on_namespace)
        cluster.informer(NODES).on_change(self._on_node)
        cluster.pods().on_change(self._on_pod)

    def _on_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        if new is not None:
            self._state.namespaces[new.metadata.name] = new.metadata.labels
        elif old is not None:
            self._state.namespaces.pop(old.metadata.name, None)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._state.remove_node(old.metadata.name)
        elif old is None or not _same_to_scheduler(old, new):
            self._state.set_node(new)
        else:
            return
        self._wake.set()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod.metadata.uid
        if new is None or new.is_terminal:
            self._forget(uid)
            self._state.displace(uid)
            self._assumed.discard(uid)
            if pod.status.nominated_node_name:
                self._state.nominate(_without_nomination(pod))
            self._wake.set()
            return
        if new.spec.node_name:
            self._forget(uid)
            self._assumed.discard(uid)
            placed = self._state.placed.get(uid)
            if (
                placed is None
                or placed.node_name != new.spec.node_name
                or placed.pod.metadata.labels != new.metadata.labels
                or placed.pod.is_terminating != new.is_terminating
            ):
                self._state.place(new, new.spec.node_name)
                self._wake.set()
            return
        if (old.status.nominated_node_name if old else "") != new.status.nominated_node_name:
            self._state.nominate(new)
        if not is_mine(new):
            self._forget(uid)
        elif uid not in self._assumed:
            self._enqueue(old, new)

    def _enqueue(self, old: Pod | None, new: Pod) -> None:
        """New pods, and waiting ones whose own demands changed, are tried; mere status changes are noted."""
        uid = new.metadata.uid
        waiting = self._waiting.get(uid)
        if waiting is None:
            self._sequence += 1
            waiting = Waiting(new, shape_of(new.spec), is_special=False, sequence=self._sequence)
            waiting.message = told_message(new)
            self._waiting[uid] = waiting
        else:
            waiting.pod = new
            if old is not None and old.spec == new.spec and old.metadata.labels == new.metadata.labels:
                return
            waiting.shape = shape_of(new.spec)
        self._activate(waiting)

    def _forget(self, uid: str) -> None:
        waiting = self._waiting.pop(uid, None)
        if waiting is not None:
            self._unpark(waiting)

    def _activate(self, waiting: Waiting) -> None:
        self._unpark(waiting)
        heapq.heappush(self._active, (-waiting.shape.priority, waiting.sequence, waiting.pod.metadata.uid))
        self._wake.set()

    def _park(self, waiting: Waiting) -> None:
        uid = waiting.pod.metadata.uid
        if waiting.is_special:
            self._parked_special[uid] = None
        else:
            self._parked.setdefault(waiting.shape.key, {})[uid] = None

    def _unpark(self, waiting: Waiting) -> None:
        uid = waiting.pod.metadata.uid
        self._parked_special.pop(uid, None)
        group = self._parked.get(waiting.shape.key)
        if group is not None:
            group.pop(uid, None)
            if not group:
                del self._parked[waiting.shape.key]

    def _revive_special(self) -> None:
        for uid in list(self._parked_special):
            self._revive(uid)

    def _revive(self, uid: str) -> None:
        """Try a parked pod again, once its back-off is over."""
        waiting = self._waiting.get(uid)
        if waiting is None:
            return
        self._unpark(waiting)
        delay = waiting.not_before - asyncio.get_running_loop().time()
        if delay <= 0:
            self._activate(waiting)
        else:
            asyncio.get_running_loop().call_later(delay, self._wake_up, uid)

    def _wake_up(self, uid: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._activate(waiting)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFRESH_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                self._look_at_parked(loop.time())
                while self._active:
                    for _ in range(min(_TURN, len(self._active))):
                        uid = heapq.heappop(self._active)[2]
                        waiting = self._waiting.get(uid)
                        if waiting is not None and uid not in self._assumed:
                            self._attempt(waiting, loop.time())
                    await asyncio.sleep(0)
                    while len(self._writes) > _WRITES:
                        await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._writes:
                task.cancel()

    def _look_at_parked(self, now: float) -> None:
        """Revive what a change may have helped: shapes that a node has room for. Refresh old messages now and then."""
        has_changed = self._state.generation != self._looked_at_generation
        if has_changed:
            self._looked_at_generation = self._state.generation
            for group in list(self._parked.values()):
                if self._placer.has_room(self._waiting[next(iter(group))].shape):
                    for uid in list(group):
                        self._revive(uid)
            for uid in list(self._parked_special):
                if self._placer.has_room(self._waiting[uid].shape):
                    self._revive(uid)
        if now < self._next_refresh:
            return
        self._next_refresh = now + _REFRESH_SECONDS
        for uid in [uid for group in (*self._parked.values(), self._parked_special) for uid in group]:
            waiting = self._waiting[uid]
            if now >= waiting.told_at + waiting.rewrite_seconds:
                waiting.is_refresh = True
                self._activate(waiting)

    def _attempt(self, waiting: Waiting, now: float) -> None:
        pod = waiting.pod
        limits = VolumeLimits()
        if pod.spec.volumes:
            limits = volume_limits(pod, self._claims.objects, self._volumes.objects, self._classes.objects)
        waiting.is_special = limits != VolumeLimits() or TopologyFilter.concerns(pod, self._state)
        placement = self._placer.place(pod, waiting.shape, limits)
        if not waiting.is_refresh:
            waiting.attempts += 1
            backoff = min(_BACKOFF_SECONDS * 2.0 ** (waiting.attempts - 1), _MAX_BACKOFF_SECONDS)
            waiting.not_before = now + backoff
        waiting.is_refresh = False
        if placement.node_name:
            self._assumed.add(pod.metadata.uid)
            self._state.place(pod, placement.node_name)
            self._spawn(self._bind(waiting, placement))
            return
        self._park(waiting)
        if placement.message == waiting.message:
            return
        if waiting.message and now < waiting.told_at + waiting.rewrite_seconds:
            return
        if waiting.message:
            waiting.rewrite_seconds = min(2 * waiting.rewrite_seconds, _MAX_REWRITE_SECONDS)
        waiting.message = placement.message
        waiting.told_at = now
        self._spawn(self._tell(waiting, placement.message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _bind(self, waiting: Waiting, placement: Placement) -> None:
        pod = waiting.pod
        meta = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node_name},
        }
        try:
            await self._cluster.client.create(PODS.item(meta.key, "binding"), binding)
        except (ApiError, Unreachable) as error:
            _log.info("binding %s to %s: %s", meta.key, placement.node_name, error)
            self._assumed.discard(meta.uid)
            current = self._cluster.pods().get(meta.key)
            if current is None or current.metadata.uid != meta.uid or not current.spec.node_name:
                self._state.displace(meta.uid)
            if meta.uid in self._waiting:
                self._revive(meta.uid)
            return
        self._cluster.events.tell(
            PODS,
            pod,
            reason="Scheduled",
            message=f"Successfully assigned {meta.key} to {placement.node_name}",
            component=SCHEDULER_NAME,
            action="Binding",
        )

    async def _tell(self, waiting: Waiting, message: str) -> None:
        pod = waiting.pod
        now = rfc3339(self._cluster.clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        known = pod.condition("PodScheduled")
        if known is not None and known.status == "False":
            del condition["lastTransitionTime"]
        try:
            await self._cluster.client.patch(
                PODS.item(pod.metadata.key, "status"),
                {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}},
                STRATEGIC_PATCH,
            )
        except ApiError as error:
            if error.status != 404:
                self._tell_later(waiting, error)
            return
        except Unreachable as error:
            self._tell_later(waiting, error)
            return
        self._cluster.events.tell(
            PODS,
            pod,
            reason="FailedScheduling",
            message=message,
            component=SCHEDULER_NAME,
            kind="Warning",
            action="Scheduling",
        )

    def _tell_later(self, waiting: Waiting, error: Exception) -> None:
        """The condition was not written: the next attempt, after the back-off, writes it."""
        _log.warning("condition of %s: %s", waiting.pod.metadata.key, error)
        waiting.message = ""
        self._revive(waiting.pod.metadata.uid)


def _same_to_scheduler(old: Node, new: Node) -> bool:
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.status.allocatable == new.status.allocatable
        and old.status.capacity == new.status.capacity
    )


def _without_nomination(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=""))
