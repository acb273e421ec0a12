"""DaemonSets: one pod on each node that it fits by selector, affinity and taints; the scheduler binds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from wainwright.api.pods import Toleration
from wainwright.sim.controllers.client import ApiError
from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.matching import first_untolerated, node_matches
from wainwright.sim.controllers.objects import DAEMON_SETS, NODES, DaemonSet, Node, Pod, PodSpec
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import BURST, PodWriter, pod_from, share, template_hash

REVISION_LABEL = "controller-revision-hash"
_STANDARD = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


def daemon_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """The template's tolerations and those every daemon pod has."""
    standard = [*_STANDARD]
    if spec.host_network:
        standard.append(("node.kubernetes.io/network-unavailable", "NoSchedule"))
    return (*spec.tolerations, *(Toleration(key=key, operator="Exists", effect=effect) for key, effect in standard))


def runs_on(spec: PodSpec, tolerations: Sequence[Toleration], node: Node) -> tuple[bool, bool]:
    """Should a daemon pod be put on the node? May one that is there stay (a NoSchedule taint lets it)?"""
    if (spec.node_name and spec.node_name != node.metadata.name) or not node_matches(spec, node):
        return False, False
    if first_untolerated(node.spec.taints, tolerations, ("NoExecute",)) is not None:
        return False, False
    return first_untolerated(node.spec.taints, tolerations, ("NoSchedule",)) is None, True


def target_node(pod: Pod) -> str:
    """The node a daemon pod is for: bound to it, or naming it in its affinity."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    return next((f.values[0] for t in terms for f in t.match_fields if f.key == "metadata.name" and f.values), "")


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """Nodes that need a pod, pods that have to go, and the counters of the status."""

    create_on: tuple[str, ...]
    delete: tuple[Pod, ...]
    status: Mapping[str, Any]


def plan(daemon_set: DaemonSet, nodes: Iterable[Node], pods: Sequence[Pod], revision: str, now: datetime) -> DaemonPlan:
    """What to do for one DaemonSet. pods: those it owns; revision: of its present template.

    A rolling update deletes outdated pods while no more than maxUnavailable nodes lack an available pod.
    """
    spec = msgspec.json.decode(daemon_set.spec.template.spec, type=PodSpec)
    tolerations = daemon_tolerations(spec)
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_node[target_node(pod)].append(pod)
    create, delete, outdated = [], [], []
    desired = current = misscheduled = ready = available = updated = 0
    seen = set()
    for node in nodes:
        name = node.metadata.name
        seen.add(name)
        wanted, may_stay = runs_on(spec, tolerations, node)
        here = by_node.get(name, [])
        alive = [pod for pod in here if not pod.is_terminating]
        over = [pod for pod in alive if pod.is_terminal]
        running = sorted((p for p in alive if not p.is_terminal), key=lambda p: (not p.spec.node_name, p.metadata.name))
        delete += over if may_stay else alive
        delete += running[1:] if may_stay else []
        if wanted:
            desired += 1
            if not here:
                create.append(name)
        elif running:
            misscheduled += 1
        if running and wanted:
            current += 1
            pod = running[0]
            ready += pod.is_ready
            available += pod.is_available(daemon_set.spec.min_ready_seconds, now)
            if pod.metadata.labels.get(REVISION_LABEL) == revision:
                updated += 1
            else:
                outdated.append(pod)
    for name, left in by_node.items():
        if name not in seen:
            delete += [pod for pod in left if not pod.is_terminating and not pod.spec.node_name]
    if daemon_set.spec.update_strategy.type == "RollingUpdate":
        bounds = daemon_set.spec.update_strategy.rolling_update
        room = share(bounds.max_unavailable if bounds else None, desired, default=1, round_up=True)
        room = max(room, 1) - (desired - available)
        idle = [pod for pod in outdated if not pod.is_available(daemon_set.spec.min_ready_seconds, now)]
        serving = [pod for pod in outdated if pod not in idle]
        delete += [*idle, *serving[: max(0, room)]]
    status = {
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "numberReady": ready,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
        "updatedNumberScheduled": updated,
        "observedGeneration": daemon_set.metadata.generation,
    }
    return DaemonPlan(tuple(create), tuple(delete), status)


def daemon_pod(daemon_set: DaemonSet, node_name: str, revision: str) -> dict[str, Any]:
    """The pod for one node: affinity names the node and nothing else, the standard tolerations are added."""
    spec = msgspec.json.decode(daemon_set.spec.template.spec, type=PodSpec)
    template: dict[str, Any] = msgspec.json.decode(daemon_set.spec.template.spec)
    names_node = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    affinity = dict(template.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchFields": [names_node]}]
    }
    added = [msgspec.to_builtins(t) for t in daemon_tolerations(spec)[len(spec.tolerations) :]]
    changes = {
        "affinity": {**affinity, "nodeAffinity": node_affinity},
        "tolerations": [*(template.get("tolerations") or []), *added],
    }
    labels = {REVISION_LABEL: revision, "pod-template-generation": str(daemon_set.metadata.generation)}
    return pod_from(daemon_set.spec.template, DAEMON_SETS, daemon_set, labels=labels, spec=changes)


class DaemonSets:
    """Keeps every DaemonSet's pods in step with the nodes."""

    name = "daemonset"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sets = cluster.informer(DAEMON_SETS)
        self._nodes = cluster.informer(NODES)
        self._pods = cluster.pods()
        self._writer = PodWriter(cluster, "daemonset-controller")
        self._queue = KeyQueue("daemonset", self._reconcile, workers=4)
        self._sets.on_change(lambda _old, new: self._queue.add(new.metadata.key) if new else None)
        self._pods.on_change(self._on_pod)
        self._nodes.on_change(self._on_node)

    async def run(self) -> None:
        await self._queue.run()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old and new and (old.metadata.labels, old.spec) == (new.metadata.labels, new.spec):
            return
        for key in self._sets.objects:
            self._queue.add_after(key, 0.02)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "DaemonSet":
            self._queue.add_after(f"{pod.metadata.namespace}/{owner.name}", 0.02)

    async def _reconcile(self, key: str) -> float | None:
        daemon_set = self._sets.get(key)
        if daemon_set is None or daemon_set.metadata.deletion_timestamp is not None:
            return None
        revision = template_hash(daemon_set.spec.template)
        uid = daemon_set.metadata.uid
        now = self._cluster.clock.now()
        steps = plan(daemon_set, self._nodes.objects.values(), self._pods.by("owner", uid), revision, now)
        await self._writer.delete(DAEMON_SETS, daemon_set, steps.delete)
        bodies = [daemon_pod(daemon_set, node_name, revision) for node_name in steps.create_on[:BURST]]
        await self._writer.create(DAEMON_SETS, daemon_set, bodies)
        if len(steps.create_on) > BURST:
            self._queue.add(key)
        if steps.delete or bodies:
            nodes = self._nodes.objects.values()
            steps = plan(daemon_set, nodes, self._pods.by("owner", uid), revision, self._cluster.clock.now())
        if any(daemon_set.status.get(name, 0) != value for name, value in steps.status.items()):
            try:
                content = await self._cluster.client.patch(DAEMON_SETS.item(key, "status"), {"status": steps.status})
            except ApiError as error:
                if error.status == 404:
                    return None
                raise
            self._sets.put(self._sets.decode(content))
        return 1.0 if steps.status["numberAvailable"] < steps.status["numberReady"] else None
