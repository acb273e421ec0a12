"""Eviction by NoExecute taints: pods that do not tolerate them go, those that do for a time go later."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from wainwright.api.nodes import Taint
from wainwright.sim.controllers.client import STRATEGIC_PATCH, ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.matching import tolerates
from wainwright.sim.controllers.objects import NODES, PODS, Node, Pod
from wainwright.sim.controllers.queues import KeyQueue


def seconds_tolerated(pod: Pod, taints: tuple[Taint, ...]) -> float | None:
    """How long the pod may stay under these taints, from when they were put on: 0 not at all, None for ever.

    The shortest of all tolerations counts; one without tolerationSeconds is for ever.
    """
    shortest: float | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        fitting = [t for t in pod.spec.tolerations if tolerates(t, taint)]
        if not fitting:
            return 0.0
        limits = [max(0, t.toleration_seconds) for t in fitting if t.toleration_seconds is not None]
        if limits:
            shortest = min([*limits] if shortest is None else [*limits, shortest])
    return shortest


def eviction_condition(now: datetime) -> dict[str, Any]:
    """What tells a pod's owner that the pod was not at fault."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": rfc3339(now),
    }


class TaintEviction:
    """Deletes pods from nodes whose NoExecute taints they do not tolerate (any longer)."""

    name = "taint-eviction"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.informer(NODES)
        self._pods = cluster.pods()
        self._since: dict[str, dict[Taint, float]] = {}
        """Per node: its NoExecute taints and when (loop time) each was first seen."""
        self._queue = KeyQueue("taint eviction", self._reconcile, workers=16)
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        await self._queue.run()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._since.pop(old.metadata.name, None)
            return
        name = new.metadata.name
        now = asyncio.get_running_loop().time()
        known = self._since.get(name, {})
        taints = {taint: known.get(taint, now) for taint in new.spec.taints if taint.effect == "NoExecute"}
        if taints:
            self._since[name] = taints
        else:
            self._since.pop(name, None)
        if taints.keys() - known.keys():
            for pod in self._pods.by("node", name):
                self._queue.add(pod.metadata.key)

    def _on_pod(self, _old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name in self._since:
            self._queue.add(new.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not pod.is_active:
            return None
        taints = self._since.get(pod.spec.node_name)
        if not taints:
            return None
        seconds = seconds_tolerated(pod, tuple(taints))
        if seconds is None:
            return None
        left = max(taints.values()) + seconds - asyncio.get_running_loop().time()
        if left > 0:
            return left
        uid = pod.metadata.uid
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [eviction_condition(self._cluster.clock.now())]}}
        try:
            await self._cluster.client.patch(PODS.item(key, "status"), patch, STRATEGIC_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
        self._cluster.events.tell(
            PODS,
            pod,
            reason="TaintManagerEviction",
            message=f"Marking for deletion Pod {key}",
            component="taint-eviction-controller",
        )
        await self._cluster.client.delete(PODS.item(key), uid=uid)
        return None
