"""Node health: taints by condition, Unknown where heartbeats stopped, pods of dead nodes no longer Ready, lost pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from wainwright.api.names import NODE_NOT_READY_KEY, NODE_UNREACHABLE_KEY
from wainwright.api.nodes import Taint
from wainwright.sim.controllers.client import STRATEGIC_PATCH, ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.objects import LEASES, NODES, PODS, Lease, Node, Pod
from wainwright.sim.controllers.queues import KeyQueue

_PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_UNSCHEDULABLE_KEY = "node.kubernetes.io/unschedulable"
_MANAGED_KEYS = {NODE_NOT_READY_KEY, NODE_UNREACHABLE_KEY, _UNSCHEDULABLE_KEY, *_PRESSURE_TAINTS.values()}
_LOOK_SECONDS = 1.0
_LOST_POD_SECONDS = 2.0
"""How long a node must be gone before pods bound to it are removed."""


def wanted_taints(node: Node) -> tuple[Taint, ...]:
    """The node's taints as its conditions and `unschedulable` want them; others are kept as they stand.

    Not ready: `not-ready` NoSchedule, with NoExecute once the kubelet said False; Unknown: `unreachable`, both effects.
    """
    wanted: list[tuple[str, str]] = []
    if node.spec.unschedulable:
        wanted.append((_UNSCHEDULABLE_KEY, "NoSchedule"))
    troubles = (c.type for c in node.status.conditions if c.status == "True")
    wanted += [(_PRESSURE_TAINTS[trouble], "NoSchedule") for trouble in troubles if trouble in _PRESSURE_TAINTS]
    match node.ready_status:
        case "True":
            pass
        case "Unknown":
            wanted += [(NODE_UNREACHABLE_KEY, "NoSchedule"), (NODE_UNREACHABLE_KEY, "NoExecute")]
        case "False":
            wanted += [(NODE_NOT_READY_KEY, "NoSchedule"), (NODE_NOT_READY_KEY, "NoExecute")]
        case _:
            wanted.append((NODE_NOT_READY_KEY, "NoSchedule"))
    kept = [t for t in node.spec.taints if t.key not in _MANAGED_KEYS or (t.key, t.effect) in wanted]
    present = {(taint.key, taint.effect) for taint in kept}
    return (*kept, *(Taint(key=key, effect=effect) for key, effect in wanted if (key, effect) not in present))


def unknown_conditions(node: Node, now: datetime) -> list[dict[str, Any]]:
    """Conditions of a node whose kubelet has fallen silent."""
    if node.ready_status:
        reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
    else:
        reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
    return [
        {"type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": rfc3339(now)}
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    ]


def taint_patch(node: Node, taints: tuple[Taint, ...], now: datetime) -> dict[str, Any]:
    """A merge patch that sets the taints, valid only for the version of the node it was computed from."""
    rendered = []
    for taint in taints:
        entry: dict[str, Any] = msgspec.to_builtins(taint)
        if taint.effect == "NoExecute" and taint.key in _MANAGED_KEYS:
            entry["timeAdded"] = rfc3339(now)
        rendered.append(entry)
    return {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": rendered or None}}


@dataclass(slots=True)
class _Heartbeat:
    """The last sign of life, and when (loop time) it was first seen here: remote clocks are not compared."""

    sign: object
    seen_at: float


class NodeLifecycle:
    """Watches heartbeats (lease renewals, status posts) and keeps taints in step with conditions."""

    name = "node-lifecycle"

    def __init__(self, cluster: Cluster, *, grace_seconds: float) -> None:
        self._cluster = cluster
        self._grace_seconds = grace_seconds
        self._nodes = cluster.informer(NODES)
        self._pods = cluster.pods()
        self._leases = cluster.informer(LEASES)
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._lost_nodes: dict[str, float] = {}
        self._queue = KeyQueue("node lifecycle", self._reconcile, workers=8)
        self._lost_queue = KeyQueue("lost pod", self._remove_lost, workers=16)
        self._nodes.on_change(self._on_node)
        self._leases.on_change(self._on_lease)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._lost_queue.run())
            while True:
                self._look(asyncio.get_running_loop().time())
                await asyncio.sleep(_LOOK_SECONDS)

    def _beat(self, name: str, sign: object) -> None:
        known = self._heartbeats.get(name)
        if known is None or known.sign != sign:
            self._heartbeats[name] = _Heartbeat(sign, asyncio.get_running_loop().time())

    def _on_lease(self, _old: Lease | None, new: Lease | None) -> None:
        if new is not None and new.metadata.namespace == "kube-node-lease" and new.metadata.name in self._nodes.objects:
            self._beat(new.metadata.name, new.spec.renew_time)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._heartbeats.pop(old.metadata.name, None)
            return
        name = new.metadata.name
        became_ready = new.ready_status == "True" and (old is None or old.ready_status != "True")
        if became_ready or name not in self._heartbeats:
            self._beat(name, (new.metadata.uid, new.metadata.resource_version))
        self._queue.add(name)

    def _look(self, loop_time: float) -> None:
        """Find nodes that fell silent, and pods whose node is no more."""
        for name, node in self._nodes.objects.items():
            if node.ready_status != "Unknown" and self._is_silent(name, loop_time):
                self._queue.add(name)
        bound = {pod.spec.node_name for pod in self._pods.objects.values()} - {""}
        lost = bound - self._nodes.objects.keys()
        self._lost_nodes = {name: self._lost_nodes.get(name, loop_time) for name in lost}
        for name, since in self._lost_nodes.items():
            if loop_time - since >= _LOST_POD_SECONDS:
                for pod in self._pods.by("node", name):
                    self._lost_queue.add(pod.metadata.key)

    def _is_silent(self, name: str, loop_time: float) -> bool:
        heartbeat = self._heartbeats.get(name)
        return heartbeat is not None and loop_time - heartbeat.seen_at > self._grace_seconds

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        now = self._cluster.clock.now()
        client = self._cluster.client
        if node.ready_status != "Unknown" and self._is_silent(name, asyncio.get_running_loop().time()):
            patch: Mapping[str, object] = {"status": {"conditions": unknown_conditions(node, now)}}
            node = self._nodes.decode(await client.patch(NODES.item(name, "status"), patch, STRATEGIC_PATCH))
            self._nodes.put(node)
            self._cluster.events.tell(
                NODES,
                node,
                reason="NodeNotReady",
                message=f"Node {name} status is now: NodeNotReady",
                component="node-controller",
            )
        taints = wanted_taints(node)
        if taints != node.spec.taints:
            content = await client.patch(NODES.item(name), taint_patch(node, taints, now))
            self._nodes.put(self._nodes.decode(content))
        if node.ready_status in ("False", "Unknown"):
            for pod in self._pods.by("node", name):
                if pod.is_ready and not pod.is_terminal:
                    await self._mark_not_ready(pod, now)

    async def _mark_not_ready(self, pod: Pod, now: datetime) -> None:
        condition = {"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": rfc3339(now)}
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._cluster.client.patch(PODS.item(pod.metadata.key, "status"), patch, STRATEGIC_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _remove_lost(self, key: str) -> None:
        """Remove a pod whose node is gone, after asking the server whether it really is."""
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name in self._nodes.objects:
            return
        try:
            await self._cluster.client.get(NODES.item(pod.spec.node_name))
        except ApiError as error:
            if error.status != 404:
                raise
            await self._cluster.client.delete(PODS.item(key), uid=pod.metadata.uid, grace_seconds=0)
