"""Watches the demo's pods as any client would, and notes when each became pending, bound and running."""

from __future__ import annotations

import threading
import time

from wainwright.api.pods import Pod
from wainwright.errors import Expired, WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import PODS


class Seen:
    """What was seen of one pod. *_at: monotonic seconds of this process; None: not yet."""

    __slots__ = ("bound_at", "created_at", "key", "node", "pending_at", "phase", "reason", "running_at")

    def __init__(self, key: str) -> None:
        self.key = key
        self.node = ""
        self.phase = ""
        self.reason = ""
        self.created_at: float | None = None
        self.pending_at: float | None = None
        self.bound_at: float | None = None
        self.running_at: float | None = None


class Observer:
    """Follows the pods that a label selector matches from its own thread until `stop`. pods: by UID."""

    def __init__(self, kube: KubeClient, selector: str = "demo=wainwright") -> None:
        self.pods: dict[str, Seen] = {}
        self._kube = kube
        self._selector = selector
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def count(self) -> dict[str, int]:
        pods = list(self.pods.values())
        return {
            "seen": len(pods),
            "pending": sum(p.pending_at is not None and p.bound_at is None for p in pods),
            "bound": sum(p.bound_at is not None for p in pods),
            "running": sum(p.running_at is not None for p in pods),
        }

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    pods, version = self._kube.list(PODS, Pod, label_selector=self._selector)
                    for pod in pods:
                        self._note(pod)
                for event in self._kube.watch(PODS, Pod, version, label_selector=self._selector):
                    version = event.resource_version or version
                    if event.object is not None:
                        self._note(event.object, deleted=event.type == "DELETED")
                    if self._stop.is_set():
                        return
            except Expired:
                version = ""
            except WainwrightError:
                self._stop.wait(0.5)

    def _note(self, pod: Pod, *, deleted: bool = False) -> None:
        now = time.monotonic()
        seen = self.pods.setdefault(pod.uid, Seen(pod.key))
        if deleted:
            seen.phase = "Deleted"
            return
        if seen.created_at is None:
            seen.created_at = now
        seen.phase = pod.status.phase
        if pod.is_provisionable and seen.pending_at is None:
            seen.pending_at = now
        if pod.is_bound and seen.bound_at is None:
            seen.bound_at = now
            seen.node = pod.spec.node_name
        if pod.status.phase in ("Running", "Succeeded") and seen.running_at is None:
            seen.running_at = now
