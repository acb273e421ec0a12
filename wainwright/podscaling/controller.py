"""The controller: what makes an autoscaler reconcile between two ticks.

Reconciling happens wherever `enqueue` leads; a key that is lost on the way is made good by the next tick.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.api.workloads import Workload
from wainwright.batching.store import Store
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import DEPLOYMENTS, POD_AUTOSCALERS, STATEFUL_SETS, Resource
from wainwright.podscaling.metrics import KPAMetrics, Watching

CONFIG_SECONDS: Final = 1.0
BATCH: Final = 500
"""Keys handed on together at most."""
_WORKLOADS: Final = (DEPLOYMENTS, STATEFUL_SETS)
_Target = tuple[str, str, str]

Enqueue = Callable[[Sequence[str]], None]
"""Takes keys ("namespace/name") that are to be reconciled soon."""


class Subscribable(Protocol):
    """The watcher, as far as it is needed here."""

    def subscribe(self, kind: str, listener: Callable[[str, Any], None]) -> None: ...


class Soon(Protocol):
    """Does small works one after the other, the same one never queued twice (`wainwright.provisioning.chores`)."""

    def soon(self, name: str, work: Callable[[], None]) -> None: ...

    def every(self, seconds: float, name: str, work: Callable[[], None]) -> None: ...


class Controller:
    """Collects keys that are to be reconciled, and hands them on in batches. Thread-safe; events only note."""

    def __init__(self, store: Store, metrics: KPAMetrics, chores: Soon, enqueue: Enqueue) -> None:
        self._store = store
        self._metrics = metrics
        self._chores = chores
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._due: set[str] = set()
        self._targets: dict[str, _Target] = {}
        self._scaled_by: defaultdict[_Target, set[str]] = defaultdict(set)
        self._pods: dict[_Target, tuple[int, int]] = {}
        self._config = ""
        self._watching: Watching | None = None

    def register(self, watcher: Subscribable) -> None:
        """Wires a PodAutoscaler's changes, and the replicas and ready pods of what is scaled."""
        watcher.subscribe(POD_AUTOSCALERS.plural, self._on_autoscaler)
        for kind in _WORKLOADS:
            watcher.subscribe(kind.plural, lambda event, thing, kind=kind: self._on_workload(kind, event, thing))  # type: ignore[misc]

    def start(self) -> None:
        """Begins to watch wishes. Raises StoreUnavailable."""
        self._watching = self._metrics.watch(self._wish_changed)

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.stop()

    def look_at_config(self) -> None:
        """Everything is to be reconciled when the configuration in force is another. Raises StoreUnavailable."""
        text = str(self._store.read(lambda redis: redis.get(self._store.keys.kpa_config)) or "")
        with self._lock:
            changed, self._config = bool(self._config) and text != self._config, text
            keys = list(self._targets) if changed else []
        self._add(*keys)

    def _wish_changed(self, key: str) -> None:
        """A standby watcher knows no autoscalers, and leaves them to the active one."""
        with self._lock:
            known = key in self._targets
        if known:
            self._add(key)

    # Events, from the watcher's writer thread -------------------------------------------------------------------------

    def _on_autoscaler(self, event: str, thing: Any) -> None:
        if isinstance(thing, PodAutoscaler):
            reference = thing.spec.scale_target_ref
            target = (reference.kind, thing.metadata.namespace, reference.name)
            self._aim(thing.key, target if event == "put" else None)
            self._add(thing.key)
        elif isinstance(thing, Undecodable):
            self._aim(thing.key, None)
            self._add(thing.key)

    def _on_workload(self, kind: Resource, event: str, thing: Any) -> None:
        if not isinstance(thing, Workload):
            return
        target = (kind.kind, thing.metadata.namespace, thing.metadata.name)
        pods = (thing.wanted_replicas, thing.status.ready_replicas) if event == "put" else None
        with self._lock:
            keys = list(self._scaled_by.get(target, ()))
            if not keys or self._pods.get(target) == pods:
                return
            if pods is None:
                self._pods.pop(target, None)
            else:
                self._pods[target] = pods
        self._add(*keys)

    def _aim(self, key: str, target: _Target | None) -> None:
        with self._lock:
            before = self._targets.pop(key, None)
            if before is not None and before != target:
                self._scaled_by[before].discard(key)
                if not self._scaled_by[before]:
                    del self._scaled_by[before]
                    self._pods.pop(before, None)
            if target is not None:
                self._targets[key] = target
                self._scaled_by[target].add(key)

    def _add(self, *keys: str) -> None:
        if not keys:
            return
        with self._lock:
            self._due.update(keys)
        self._chores.soon("autoscalers", self._hand_on)

    def _hand_on(self) -> None:
        with self._lock:
            due, self._due = sorted(self._due), set()
        for start in range(0, len(due), BATCH):
            self._enqueue(due[start : start + BATCH])


def new_controller(
    store: Store, watcher: Subscribable, metrics: KPAMetrics, chores: Soon, enqueue: Enqueue
) -> Controller:
    """Wires what makes a key reconcile: its PodAutoscaler changed, replicas or ready pods of its target changed, its
    wish changed, the configuration changed.
    """
    controller = Controller(store, metrics, chores, enqueue)
    controller.register(watcher)
    chores.every(CONFIG_SECONDS, "autoscaler config", controller.look_at_config)
    chores.soon("wishes", controller.start)
    return controller
