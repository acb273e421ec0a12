"""Deployments: one ReplicaSet a template, and pods moved from old ones to the new one within the strategy's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.objects import DEPLOYMENTS, REPLICA_SETS, Deployment, ReplicaSet
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import share, template_hash

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_NOT_COPIED = {REVISION, "kubectl.kubernetes.io/last-applied-configuration"}


def revision_of(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def new_replica_set(deployment: Deployment, hash_text: str, revision: int) -> dict[str, Any]:
    """The ReplicaSet for the deployment's present template, with no replicas yet."""
    meta = deployment.metadata
    template: dict[str, Any] = msgspec.json.decode(deployment.spec.template.metadata)
    labels = {**(template.get("labels") or {}), HASH_LABEL: hash_text}
    selector: dict[str, Any] = msgspec.to_builtins(deployment.spec.selector)
    selector["matchLabels"] = {**deployment.spec.selector.match_labels, HASH_LABEL: hash_text}
    annotations = {key: value for key, value in meta.annotations.items() if key not in _NOT_COPIED}
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta.name}-{hash_text}",
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": {**annotations, REVISION: str(revision)},
            "ownerReferences": [DEPLOYMENTS.owner_reference(deployment)],
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": {"metadata": {**template, "labels": labels}, "spec": deployment.spec.template.spec},
        },
    }


def scales(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> dict[str, int]:
    """Replicas that ReplicaSets should have now, by name; those that stay as they are are left out.

    Rolling: never more than replicas + maxSurge pods, never fewer available than replicas - maxUnavailable; old sets
    lose pods that are not available first. Recreate: the old ones go to 0 before the new one grows. Paused: the newest
    set takes a change of the total, nothing else moves.
    """
    wanted = deployment.spec.replicas
    if deployment.spec.paused or new is None:
        newest = new or max(old, key=revision_of, default=None)
        if newest is None:
            return {}
        rest = sum(s.spec.replicas for s in (*old, *([new] if new else [])) if s is not newest)
        goal = max(0, wanted - rest)
        return {newest.metadata.name: goal} if goal != newest.spec.replicas else {}
    strategy = deployment.spec.strategy
    if strategy.type == "Recreate":
        shrink = {s.metadata.name: 0 for s in old if s.spec.replicas}
        if shrink or any(s.status.replicas for s in old):
            return shrink
        return {new.metadata.name: wanted} if new.spec.replicas != wanted else {}
    bounds = strategy.rolling_update
    surge = share(bounds.max_surge if bounds else None, wanted, default="25%", round_up=True)
    unavailable = share(bounds.max_unavailable if bounds else None, wanted, default="25%", round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    changes: dict[str, int] = {}
    total = sum(s.spec.replicas for s in (*old, new))
    size = new.spec.replicas
    if size > wanted:
        size = wanted
    elif size < wanted and (room := wanted + surge - total) > 0:
        size = min(wanted, size + room)
    if size != new.spec.replicas:
        changes[new.metadata.name] = size
    changes.update(_shrink_old(old, new, at_least=wanted - unavailable))
    return changes


def _shrink_old(old: Sequence[ReplicaSet], new: ReplicaSet, *, at_least: int) -> dict[str, int]:
    """Old sets' sizes: what is not available goes at once, then as many as leave `at_least` available."""
    total = sum(s.spec.replicas for s in (*old, new))
    new_missing = max(0, new.spec.replicas - new.status.available_replicas)
    budget = total - at_least - new_missing
    sizes = {s.metadata.name: s.spec.replicas for s in old}
    by_age = sorted(old, key=lambda s: (revision_of(s), s.metadata.name))
    for replica_set in by_age:
        idle = max(0, replica_set.spec.replicas - replica_set.status.available_replicas)
        cut = min(idle, max(0, budget))
        sizes[replica_set.metadata.name] -= cut
        budget -= cut
    available = sum(s.status.available_replicas for s in (*old, new))
    budget = min(budget, available - at_least)
    for replica_set in by_age:
        cut = min(sizes[replica_set.metadata.name], max(0, budget))
        sizes[replica_set.metadata.name] -= cut
        budget -= cut
    return {s.metadata.name: sizes[s.metadata.name] for s in old if sizes[s.metadata.name] != s.spec.replicas}


@dataclass(frozen=True, slots=True)
class Progress:
    """Counters of a deployment over its ReplicaSets."""

    replicas: int
    updated: int
    ready: int
    available: int


def progress_of(new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> Progress:
    every = (*old, *([new] if new else []))
    return Progress(
        replicas=sum(s.status.replicas for s in every),
        updated=new.status.replicas if new else 0,
        ready=sum(s.status.ready_replicas for s in every),
        available=sum(s.status.available_replicas for s in every),
    )


def status_of(deployment: Deployment, new: ReplicaSet | None, progress: Progress, now: datetime) -> dict[str, Any]:
    """The deployment's status: counters, and the conditions Available and Progressing that kubectl waits for."""
    wanted = deployment.spec.replicas
    bounds = deployment.spec.strategy.rolling_update
    unavailable = share(bounds.max_unavailable if bounds else None, wanted, default="25%", round_up=False)
    if deployment.spec.strategy.type == "Recreate":
        unavailable = 0
    is_available = progress.available >= wanted - unavailable
    is_complete = progress.updated == wanted == progress.replicas == progress.available
    name = new.metadata.name if new else ""
    known = {condition.type: condition for condition in deployment.status.conditions}
    has_progressed = (progress.updated, progress.ready, progress.available) != (
        deployment.status.updated_replicas,
        deployment.status.ready_replicas,
        deployment.status.available_replicas,
    )
    progressing = known.get("Progressing")
    since = progressing.last_transition_time if progressing else None
    deadline = deployment.spec.progress_deadline_seconds
    if is_complete:
        outcome = ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
    elif (
        not has_progressed
        and progressing is not None
        and progressing.reason in ("ReplicaSetUpdated", "ProgressDeadlineExceeded")
        and since is not None
        and (now - since).total_seconds() > deadline
    ):
        outcome = ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')
    else:
        outcome = ("True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
    available = (
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        if is_available
        else ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    )
    conditions = []
    for kind, (status, reason, message) in (("Available", available), ("Progressing", outcome)):
        old = known.get(kind)
        restarts = kind == "Progressing" and has_progressed
        is_same = old is not None and old.status == status and (kind == "Available" or old.reason == reason)
        moment = old.last_transition_time if old is not None and is_same and not restarts else None
        entry = {"type": kind, "status": status, "reason": reason, "message": message}
        conditions.append({**entry, "lastTransitionTime": rfc3339(moment or now)})
    return {
        "observedGeneration": deployment.metadata.generation,
        "replicas": progress.replicas,
        "updatedReplicas": progress.updated,
        "readyReplicas": progress.ready,
        "availableReplicas": progress.available,
        "unavailableReplicas": max(0, max(progress.replicas, wanted) - progress.available),
        "conditions": conditions,
    }


class Deployments:
    """Rolls every Deployment out."""

    name = "deployment"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._deployments = cluster.informer(DEPLOYMENTS)
        self._sets = cluster.informer(REPLICA_SETS)
        self._sets.index("owner", lambda item: [owner.uid] if (owner := item.metadata.controller) else [])
        self._queue = KeyQueue("deployment", self._reconcile, workers=4)
        self._written: dict[str, Mapping[str, Any]] = {}
        self._deployments.on_change(self._on_deployment)
        self._sets.on_change(self._on_set)

    async def run(self) -> None:
        await self._queue.run()

    def _on_deployment(self, old: Deployment | None, new: Deployment | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.key)
        elif old is not None:
            self._written.pop(old.metadata.uid, None)

    def _on_set(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        item = new or old
        assert item is not None
        owner = item.metadata.controller
        if owner is not None and owner.kind == "Deployment":
            self._queue.add_after(f"{item.metadata.namespace}/{owner.name}", 0.02)

    async def _reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None or deployment.metadata.deletion_timestamp is not None:
            return None
        hash_text = template_hash(deployment.spec.template)
        owned = self._sets.by("owner", deployment.metadata.uid)
        new = next((s for s in owned if s.metadata.labels.get(HASH_LABEL) == hash_text), None)
        if not deployment.spec.paused or not owned:
            new = await self._ensure_newest(deployment, owned, new, hash_text)
        old = [s for s in self._sets.by("owner", deployment.metadata.uid) if s is not new]
        for name, replicas in scales(deployment, new, old).items():
            await self._scale(deployment, name, replicas)
        await self._clean_up(deployment, new, old)
        return await self._report(deployment, hash_text)

    async def _ensure_newest(
        self, deployment: Deployment, owned: Sequence[ReplicaSet], new: ReplicaSet | None, hash_text: str
    ) -> ReplicaSet:
        """The template's ReplicaSet, made if missing, with the highest revision; the deployment shows that revision."""
        client = self._cluster.client
        highest = max((revision_of(s) for s in owned if s is not new), default=0)
        if new is None:
            body = new_replica_set(deployment, hash_text, highest + 1)
            try:
                content = await client.create(REPLICA_SETS.collection(deployment.metadata.namespace), body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                content = await client.get(
                    REPLICA_SETS.item(f"{deployment.metadata.namespace}/{body['metadata']['name']}")
                )
            new = self._sets.decode(content)
            self._sets.put(new)
        elif revision_of(new) <= highest:
            patch = {"metadata": {"annotations": {REVISION: str(highest + 1)}}}
            new = self._sets.decode(await client.patch(REPLICA_SETS.item(new.metadata.key), patch))
            self._sets.put(new)
        revision = str(revision_of(new))
        if deployment.metadata.annotations.get(REVISION) != revision:
            patch = {"metadata": {"annotations": {REVISION: revision}}}
            content = await client.patch(DEPLOYMENTS.item(deployment.metadata.key), patch)
            self._deployments.put(self._deployments.decode(content))
        return self._sets.get(new.metadata.key) or new

    async def _scale(self, deployment: Deployment, name: str, replicas: int) -> None:
        key = f"{deployment.metadata.namespace}/{name}"
        before = self._sets.get(key)
        content = await self._cluster.client.patch(REPLICA_SETS.item(key), {"spec": {"replicas": replicas}})
        self._sets.put(self._sets.decode(content))
        was = before.spec.replicas if before else 0
        self._cluster.events.tell(
            DEPLOYMENTS,
            deployment,
            reason="ScalingReplicaSet",
            message=f"Scaled {'up' if replicas > was else 'down'} replica set {name} from {was} to {replicas}",
            component="deployment-controller",
        )

    async def _clean_up(self, deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> None:
        """Old, empty ReplicaSets beyond the history limit go, oldest first."""
        empty = [
            s
            for s in sorted(old, key=revision_of)
            if s is not new and not s.spec.replicas and not s.status.replicas and s.metadata.deletion_timestamp is None
        ]
        for replica_set in empty[: max(0, len(empty) - deployment.spec.revision_history_limit)]:
            await self._cluster.client.delete(
                REPLICA_SETS.item(replica_set.metadata.key), uid=replica_set.metadata.uid, propagation="Background"
            )

    async def _report(self, deployment: Deployment, hash_text: str) -> float | None:
        current = self._deployments.get(deployment.metadata.key)
        if current is None or current.metadata.uid != deployment.metadata.uid:
            return None
        owned = self._sets.by("owner", deployment.metadata.uid)
        new = next((s for s in owned if s.metadata.labels.get(HASH_LABEL) == hash_text), None)
        progress = progress_of(new, [s for s in owned if s is not new])
        # what this pass saw: a change that came meanwhile is reported by the pass it causes
        status = status_of(
            msgspec.structs.replace(deployment, status=current.status), new, progress, self._cluster.clock.now()
        )
        if self._written.get(deployment.metadata.uid) != status:
            content = await self._cluster.client.patch(
                DEPLOYMENTS.item(deployment.metadata.key, "status"), {"status": status}
            )
            self._written[deployment.metadata.uid] = status
            self._deployments.put(self._deployments.decode(content))
        is_complete = status["conditions"][1]["reason"] == "NewReplicaSetAvailable"
        return None if is_complete else float(deployment.spec.progress_deadline_seconds + 1)
