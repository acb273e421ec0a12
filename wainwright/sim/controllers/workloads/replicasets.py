"""ReplicaSets: as many active pods as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.objects import REPLICA_SETS, Pod, ReplicaSet
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import BURST, PodWriter, counts, deletion_rank, pod_from


def pods_to_change(replica_set: ReplicaSet, pods: Sequence[Pod]) -> tuple[int, list[Pod]]:
    """How many pods to create, which to delete. pods: those the set owns."""
    active = [pod for pod in pods if pod.is_active]
    missing = replica_set.spec.replicas - len(active)
    if missing >= 0:
        return min(missing, BURST), []
    return 0, sorted(active, key=deletion_rank)[: min(-missing, BURST)]


def status_of(replica_set: ReplicaSet, pods: Sequence[Pod], now: datetime) -> dict[str, Any]:
    """The counters as they should be reported."""
    active = [pod for pod in pods if pod.is_active]
    total, ready, available = counts(active, min_ready_seconds=replica_set.spec.min_ready_seconds, now=now)
    return {
        "replicas": total,
        "fullyLabeledReplicas": total,
        "readyReplicas": ready,
        "availableReplicas": available,
        "observedGeneration": replica_set.metadata.generation,
    }


class ReplicaSets:
    """Keeps the number of each ReplicaSet's pods."""

    name = "replicaset"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sets = cluster.informer(REPLICA_SETS)
        self._pods = cluster.pods()
        self._writer = PodWriter(cluster, "replicaset-controller")
        self._queue = KeyQueue("replicaset", self._reconcile, workers=8)
        self._sets.on_change(lambda _old, new: self._queue.add(new.metadata.key) if new else None)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        await self._queue.run()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "ReplicaSet":
            self._queue.add_after(f"{pod.metadata.namespace}/{owner.name}", 0.02)  # many pods change together

    async def _reconcile(self, key: str) -> float | None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            return None
        uid = replica_set.metadata.uid
        if replica_set.metadata.deletion_timestamp is None:
            missing, surplus = pods_to_change(replica_set, self._pods.by("owner", uid))
            if missing:
                body = pod_from(replica_set.spec.template, REPLICA_SETS, replica_set)
                await self._writer.create(REPLICA_SETS, replica_set, [body] * missing)
            if surplus:
                await self._writer.delete(REPLICA_SETS, replica_set, surplus)
            if max(missing, len(surplus)) == BURST:
                self._queue.add(key)
        now = self._cluster.clock.now()
        pods = self._pods.by("owner", uid)
        status = status_of(replica_set, pods, now)
        shown = replica_set.status
        if (
            shown.replicas,
            shown.ready_replicas,
            shown.available_replicas,
            shown.observed_generation,
        ) != (
            status["replicas"],
            status["readyReplicas"],
            status["availableReplicas"],
            status["observedGeneration"],
        ):
            try:
                patch = {"metadata": {"uid": uid}, "status": status}
                content = await self._cluster.client.patch(REPLICA_SETS.item(key, "status"), patch)
            except ApiError as error:
                if error.status == 404:
                    return None
                raise
            self._sets.put(self._sets.decode(content))
        return 1.0 if status["availableReplicas"] < status["readyReplicas"] else None
