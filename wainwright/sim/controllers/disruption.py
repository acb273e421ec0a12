"""PodDisruptionBudgets: how many pods are healthy, how many have to be, how many evictions that allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.matching import selects
from wainwright.sim.controllers.objects import (
    BUDGETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Pod,
    PodDisruptionBudget,
)
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import share

_EVICTION_SECONDS = 120
"""An eviction the API server allowed counts as under way for this long, unless its pod is seen going before."""

Wanted = Callable[[Pod], tuple[str, int] | None]
"""A pod's topmost controller (its uid) and how many replicas that wants; None if it has none with a scale."""


def expected_pods(pods: Sequence[Pod], wanted: Wanted) -> int:
    """Replicas that the pods' controllers want together; a pod without one counts as itself."""
    scales: dict[str, int] = {}
    alone = 0
    for pod in pods:
        found = wanted(pod)
        if found is None:
            alone += 1
        else:
            scales[found[0]] = found[1]
    return sum(scales.values()) + alone


def status_of(budget: PodDisruptionBudget, pods: Sequence[Pod], wanted: Wanted, now: datetime) -> dict[str, Any]:
    """The status as of now. pods: all that the selector means.

    minAvailable as a number: all pods there are count as expected; as a percentage, and for maxUnavailable: what their
    controllers want. Healthy: Ready, not being deleted, no eviction under way.
    """
    spec = budget.spec
    alive = [pod for pod in pods if not pod.is_terminal]
    if spec.max_unavailable is not None:
        expected = expected_pods(alive, wanted)
        desired = max(0, expected - share(spec.max_unavailable, expected, default=0, round_up=True))
    elif isinstance(spec.min_available, str):
        expected = expected_pods(alive, wanted)
        desired = share(spec.min_available, expected, default=0, round_up=True)
    else:
        expected = len(alive)
        desired = 1 if spec.min_available is None else spec.min_available
    under_way = {
        name: since
        for name, since in budget.status.disrupted_pods.items()
        if (now - since).total_seconds() < _EVICTION_SECONDS
        and any(pod.metadata.name == name and not pod.is_terminating for pod in alive)
    }
    healthy = sum(pod.is_ready and not pod.is_terminating and pod.metadata.name not in under_way for pod in alive)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    known = next((c for c in budget.status.conditions if c.type == "DisruptionAllowed"), None)
    verdict = "True" if allowed else "False"
    moment = known.last_transition_time if known and known.status == verdict else None
    return {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "observedGeneration": budget.metadata.generation,
        "disruptedPods": {name: rfc3339(since) for name, since in under_way.items()} or None,
        "conditions": [
            {
                "type": "DisruptionAllowed",
                "status": verdict,
                "reason": "SufficientPods" if allowed else "InsufficientPods",
                "message": "",
                "observedGeneration": budget.metadata.generation,
                "lastTransitionTime": rfc3339(moment or now),
            }
        ],
    }


def shows(budget: PodDisruptionBudget, status: Mapping[str, Any]) -> bool:
    """Does the budget report this already?"""
    shown = budget.status
    return (
        shown.disruptions_allowed == status["disruptionsAllowed"]
        and shown.current_healthy == status["currentHealthy"]
        and shown.desired_healthy == status["desiredHealthy"]
        and shown.expected_pods == status["expectedPods"]
        and shown.observed_generation == status["observedGeneration"]
        and set(shown.disrupted_pods) == set(status["disruptedPods"] or ())
        and bool(shown.conditions)
    )


class DisruptionBudgets:
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._budgets = cluster.informer(BUDGETS)
        self._budgets.index("namespace", lambda budget: [budget.metadata.namespace])
        self._pods = cluster.pods()
        self._replica_sets = cluster.informer(REPLICA_SETS)
        self._deployments = cluster.informer(DEPLOYMENTS)
        self._stateful_sets = cluster.informer(STATEFUL_SETS)
        self._jobs = cluster.informer(JOBS)
        self._queue = KeyQueue("disruption", self._reconcile, workers=4)
        self._budgets.on_change(lambda _old, new: self._queue.add(new.metadata.key) if new else None)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        await self._queue.run()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        for budget in self._budgets.by("namespace", pod.metadata.namespace):
            if any(p is not None and selects(budget.spec.selector, p.metadata.labels) for p in (old, new)):
                self._queue.add_after(budget.metadata.key, 0.02)

    def _wanted(self, pod: Pod) -> tuple[str, int] | None:
        owner = pod.metadata.controller
        if owner is None:
            return None
        key = f"{pod.metadata.namespace}/{owner.name}"
        if owner.kind == "ReplicaSet" and (replica_set := self._replica_sets.get(key)) is not None:
            above = replica_set.metadata.controller
            deployment = self._deployments.get(f"{pod.metadata.namespace}/{above.name}") if above else None
            top = deployment or replica_set
            return top.metadata.uid, top.spec.replicas
        if owner.kind == "StatefulSet" and (stateful_set := self._stateful_sets.get(key)) is not None:
            return owner.uid, stateful_set.spec.replicas
        if owner.kind == "Job" and (job := self._jobs.get(key)) is not None:
            return owner.uid, job.spec.parallelism
        return None

    async def _reconcile(self, key: str) -> float | None:
        budget = self._budgets.get(key)
        if budget is None or budget.metadata.deletion_timestamp is not None:
            return None
        now = self._cluster.clock.now()
        pods = [
            pod
            for pod in self._pods.objects.values()
            if pod.metadata.namespace == budget.metadata.namespace
            and selects(budget.spec.selector, pod.metadata.labels)
        ]
        status = status_of(budget, pods, self._wanted, now)
        if not shows(budget, status):
            # the version guards against an eviction charged meanwhile
            patch = {"metadata": {"resourceVersion": budget.metadata.resource_version}, "status": status}
            try:
                content = await self._cluster.client.patch(BUDGETS.item(key, "status"), patch)
            except ApiError as error:
                if error.status == 404:
                    return None
                raise
            self._budgets.put(self._budgets.decode(content))
        pending = [
            (since + timedelta(seconds=_EVICTION_SECONDS) - now) for since in budget.status.disrupted_pods.values()
        ]
        return max(1.0, min(left.total_seconds() for left in pending)) if pending else None
