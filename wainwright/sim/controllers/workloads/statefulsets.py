"""StatefulSets: pods with ordinals, made and taken away in order, each with its own claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.objects import CLAIMS, STATEFUL_SETS, Pod, StatefulSet
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import PodWriter, counts, pod_from, template_hash

REVISION_LABEL = "controller-revision-hash"
NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class StatefulPlan:
    """Ordinals to create now, and pods to delete now."""

    create: tuple[int, ...] = ()
    delete: tuple[Pod, ...] = ()


def ordinal(stateful_set: StatefulSet, pod: Pod) -> int:
    """The number at the end of the pod's name, -1 if it has none."""
    text = pod.metadata.name.removeprefix(f"{stateful_set.metadata.name}-")
    return int(text) if text.isdigit() else -1


def plan(stateful_set: StatefulSet, pods: Sequence[Pod], revision: str, now: datetime) -> StatefulPlan:
    """The next move. pods: those the set owns; revision: of its present template.

    OrderedReady: one at a time: a pod is made when all before it are available, the last one is deleted when the rest
    is available and nothing terminates. Parallel: all at once. Then updates: from the highest ordinal down to the
    partition, one at a time. Finished pods are replaced.
    """
    spec = stateful_set.spec
    by_ordinal = {ordinal(stateful_set, pod): pod for pod in pods}
    in_order = spec.pod_management_policy != "Parallel"
    finished = tuple(pod for pod in pods if pod.is_terminal and not pod.is_terminating)
    if finished:
        return StatefulPlan(delete=finished)
    missing = [number for number in range(spec.replicas) if number not in by_ordinal]
    surplus = sorted((n for n in by_ordinal if n >= spec.replicas), reverse=True)
    leaving = [by_ordinal[n] for n in surplus if not by_ordinal[n].is_terminating]
    if not in_order:
        if missing or leaving:
            return StatefulPlan(tuple(missing), tuple(leaving))
    else:
        if any(pod.is_terminating for pod in pods):
            return StatefulPlan()
        for number in range(spec.replicas):
            pod = by_ordinal.get(number)
            if pod is None:
                return StatefulPlan(create=(number,))
            if not pod.is_available(spec.min_ready_seconds, now):
                return StatefulPlan(delete=(pod,) if _is_stuck_and_old(pod, revision) else ())
        if leaving:
            return StatefulPlan(delete=(leaving[0],))
    if spec.update_strategy.type != "RollingUpdate" or any(pod.is_terminating for pod in pods):
        return StatefulPlan()
    bounds = spec.update_strategy.rolling_update
    for number in range(spec.replicas - 1, (bounds.partition if bounds else 0) - 1, -1):
        pod = by_ordinal.get(number)
        if pod is None:
            return StatefulPlan()
        if pod.metadata.labels.get(REVISION_LABEL) != revision:
            return StatefulPlan(delete=(pod,))
        if not pod.is_available(spec.min_ready_seconds, now):
            return StatefulPlan()
    return StatefulPlan()


def _is_stuck_and_old(pod: Pod, revision: str) -> bool:
    """An outdated pod that never got a node holds up everything: replace it at once."""
    return not pod.spec.node_name and pod.metadata.labels.get(REVISION_LABEL) != revision


def claim_name(template: str, stateful_set: StatefulSet, number: int) -> str:
    return f"{template}-{stateful_set.metadata.name}-{number}"


def stateful_pod(stateful_set: StatefulSet, number: int, revision: str) -> dict[str, Any]:
    """Pod `number`: its name, host name and claims are its own."""
    name = f"{stateful_set.metadata.name}-{number}"
    template: dict[str, Any] = msgspec.json.decode(stateful_set.spec.template.spec)
    own = [
        {
            "name": t.metadata.name,
            "persistentVolumeClaim": {"claimName": claim_name(t.metadata.name, stateful_set, number)},
        }
        for t in stateful_set.spec.volume_claim_templates
    ]
    names = {volume["name"] for volume in own}
    volumes = [*own, *(v for v in template.get("volumes") or () if v.get("name") not in names)]
    changes: dict[str, Any] = {"hostname": name, "subdomain": stateful_set.spec.service_name}
    if volumes:
        changes["volumes"] = volumes
    labels = {REVISION_LABEL: revision, NAME_LABEL: name, INDEX_LABEL: str(number)}
    return pod_from(stateful_set.spec.template, STATEFUL_SETS, stateful_set, name=name, labels=labels, spec=changes)


def status_of(stateful_set: StatefulSet, pods: Sequence[Pod], revision: str, now: datetime) -> dict[str, Any]:
    """Counters and revisions; the current revision becomes the new one when every pod has it."""
    alive = [pod for pod in pods if not pod.is_terminal]
    total, ready, available = counts(alive, min_ready_seconds=stateful_set.spec.min_ready_seconds, now=now)
    updated = sum(pod.metadata.labels.get(REVISION_LABEL) == revision and not pod.is_terminating for pod in alive)
    current = stateful_set.status.current_revision or revision
    if updated == total == stateful_set.spec.replicas == ready:
        current = revision
    on_current = sum(pod.metadata.labels.get(REVISION_LABEL) == current for pod in alive)
    return {
        "observedGeneration": stateful_set.metadata.generation,
        "replicas": total,
        "readyReplicas": ready,
        "availableReplicas": available,
        "currentReplicas": on_current,
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    }


class StatefulSets:
    """Moves every StatefulSet one step at a time. No ControllerRevisions are kept: `rollout undo` has none to go to."""

    name = "statefulset"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sets = cluster.informer(STATEFUL_SETS)
        self._claims = cluster.informer(CLAIMS)
        self._pods = cluster.pods()
        self._writer = PodWriter(cluster, "statefulset-controller")
        self._queue = KeyQueue("statefulset", self._reconcile, workers=4)
        self._written: dict[str, Mapping[str, Any]] = {}
        self._sets.on_change(self._on_set)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        await self._queue.run()

    def _on_set(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.key)
        elif old is not None:
            self._written.pop(old.metadata.uid, None)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "StatefulSet":
            self._queue.add_after(f"{pod.metadata.namespace}/{owner.name}", 0.02)

    async def _reconcile(self, key: str) -> float | None:
        stateful_set = self._sets.get(key)
        if stateful_set is None or stateful_set.metadata.deletion_timestamp is not None:
            return None
        uid = stateful_set.metadata.uid
        revision = f"{stateful_set.metadata.name}-{template_hash(stateful_set.spec.template)}"
        steps = plan(stateful_set, self._pods.by("owner", uid), revision, self._cluster.clock.now())
        await self._writer.delete(STATEFUL_SETS, stateful_set, steps.delete)
        for number in steps.create:
            await self._ensure_claims(stateful_set, number)
        bodies = [stateful_pod(stateful_set, number, revision) for number in steps.create]
        await self._writer.create(STATEFUL_SETS, stateful_set, bodies)
        status = status_of(stateful_set, self._pods.by("owner", uid), revision, self._cluster.clock.now())
        if self._written.get(uid) != status:
            try:
                content = await self._cluster.client.patch(STATEFUL_SETS.item(key, "status"), {"status": status})
            except ApiError as error:
                if error.status == 404:
                    return None
                raise
            self._written[uid] = status
            self._sets.put(self._sets.decode(content))
        return 1.0 if status["availableReplicas"] < status["readyReplicas"] else None

    async def _ensure_claims(self, stateful_set: StatefulSet, number: int) -> None:
        """The pod's claims, made if missing; they outlive it."""
        namespace = stateful_set.metadata.namespace
        for template in stateful_set.spec.volume_claim_templates:
            name = claim_name(template.metadata.name, stateful_set, number)
            if f"{namespace}/{name}" in self._claims.objects:
                continue
            labels = {**stateful_set.spec.selector.match_labels, **template.metadata.labels}
            body = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "labels": labels, "annotations": template.metadata.annotations},
                "spec": template.spec,
            }
            try:
                self._claims.put(
                    self._claims.decode(await self._cluster.client.create(CLAIMS.collection(namespace), body))
                )
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
