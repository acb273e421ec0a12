"""All kubelets of the simulated cluster in one controller: each step is decided elsewhere, and written here."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping
from datetime import datetime

from wainwright.sim.controllers.client import STRATEGIC_PATCH, ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.kubelet.machines import PROVIDER_PREFIX, Instance, Machines, alive_from
from wainwright.sim.controllers.kubelet.node_status import node_report
from wainwright.sim.controllers.kubelet.pod_steps import (
    Remove,
    Report,
    Start,
    Wait,
    admission_failure,
    next_step,
    start_status,
)
from wainwright.sim.controllers.objects import LEASES, NODES, PODS, Node, Pod
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.requests import takes

_log = logging.getLogger(__name__)
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 10.0
"""How often a kubelet renews its lease."""
_RETRY_SECONDS = 1.0


class AddressPool:
    """Hands out IPv4 addresses of a network, never one that is in use."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.ip_network(network)
        self._next = 0
        self.used: set[str] = set()

    def take(self) -> str:
        while True:
            self._next = self._next % (self._network.num_addresses - 2) + 1
            address = str(self._network[self._next])
            if address not in self.used:
                self.used.add(address)
                return address


class Kubelets:
    """Serves every node whose machine runs.

    boot_delay_seconds: from a node's creation, where no cloud says when. lease_seconds: how often leases are renewed.
    """

    name = "kubelet"

    def __init__(
        self,
        cluster: Cluster,
        *,
        cloud_url: str = "",
        boot_delay_seconds: float = 0.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._lease_seconds = lease_seconds
        self._boot_delay_seconds = boot_delay_seconds
        self._nodes = cluster.informer(NODES)
        self._pods = cluster.pods()
        self._machines = Machines(cloud_url, self._on_instances) if cloud_url else None
        self._alive: set[str] = set()
        self._admitted: dict[str, dict[str, Mapping[str, int]]] = {}
        """Per node: what each pod takes that runs there, by uid."""
        self._starting: dict[str, datetime] = {}
        """Pods whose start was written and is not seen yet."""
        self._by_provider: dict[str, str] = {}
        self._pod_addresses = AddressPool("10.64.0.0/10")
        self._node_addresses = AddressPool("172.16.0.0/12")
        self._node_queue = KeyQueue("kubelet node", self._reconcile_node, workers=16)
        self._lease_queue = KeyQueue("kubelet lease", self._renew_lease, workers=4)
        self._pod_queue = KeyQueue("kubelet pod", self._reconcile_pod, workers=40)
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._machines is not None:
                group.create_task(self._machines.run())
                await self._machines.heard.wait()
            for queue in (self._node_queue, self._lease_queue, self._pod_queue):
                group.create_task(queue.run())

    def _on_instances(self, provider_ids: list[str]) -> None:
        for provider_id in provider_ids:
            if provider_id in self._by_provider:
                self._node_queue.add(self._by_provider[provider_id])

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        name = node.metadata.name
        if node.spec.provider_id.startswith(PROVIDER_PREFIX):
            if new is None:
                self._by_provider.pop(node.spec.provider_id, None)
            else:
                self._by_provider[node.spec.provider_id] = name
        for address in node.status.addresses:
            self._node_addresses.used.add(address.address)
        if new is None:
            self._alive.discard(name)
        else:
            self._node_queue.add(name)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        node_name = pod.spec.node_name
        if not node_name:
            return
        uid = pod.metadata.uid
        if new is None or new.is_terminal:
            self._admitted.get(node_name, {}).pop(uid, None)
            self._starting.pop(uid, None)
            self._pod_addresses.used.discard(pod.status.pod_ip)
        elif new.status.start_time is not None:
            self._starting.pop(uid, None)
            self._admitted.setdefault(node_name, {}).setdefault(uid, takes(new.spec))
            self._pod_addresses.used.add(new.status.pod_ip)
        if new is not None and node_name in self._alive:
            self._pod_queue.add(new.metadata.key)

    def _instance(self, node: Node) -> Instance | None:
        return self._machines.instances.get(node.spec.provider_id) if self._machines is not None else None

    async def _reconcile_node(self, name: str) -> float | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        now = self._cluster.clock.now()
        instances = self._machines.instances if self._machines is not None else None
        due = alive_from(node, instances, now=now, boot_delay_seconds=self._boot_delay_seconds)
        if due is None or due > 0:
            self._alive.discard(name)
            return due
        address = self._node_address(node)
        report = node_report(node, self._instance(node), address=address, now=now)
        if report is not None:
            patch = {"metadata": {"uid": node.metadata.uid}, "status": report}
            try:
                content = await self._cluster.client.patch(NODES.item(name, "status"), patch, STRATEGIC_PATCH)
            except ApiError as error:
                if error.status == 404:
                    return None
                raise
            self._nodes.put(self._nodes.decode(content))
        if name not in self._alive:
            self._alive.add(name)
            self._lease_queue.add(name)
            for pod in self._pods.by("node", name):
                self._pod_queue.add(pod.metadata.key)
        return None

    def _node_address(self, node: Node) -> str:
        """The node's internal IP, a new one if it has none."""
        internal = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "")
        return internal or self._node_addresses.take()

    async def _renew_lease(self, name: str) -> float | None:
        """Renew the node's lease while its kubelet runs."""
        node = self._nodes.get(name)
        if node is None or name not in self._alive:
            return None
        renewed = self._cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = LEASES.item(f"{LEASE_NAMESPACE}/{name}")
        try:
            await self._cluster.client.patch(path, {"spec": {"renewTime": renewed}})
        except ApiError as error:
            if error.status != 404:
                raise
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": int(4 * self._lease_seconds) or 1,
                "renewTime": renewed,
            }
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
            meta = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": spec}
            await self._cluster.client.create(LEASES.collection(LEASE_NAMESPACE), lease)
        return self._lease_seconds

    async def _reconcile_pod(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name not in self._alive:
            return None
        now = self._cluster.clock.now()
        match next_step(pod, now):
            case Wait(seconds):
                return seconds
            case Start():
                return await self._start(pod, now)
            case Report(status):
                return None if await self._report(pod, status) else _RETRY_SECONDS
            case Remove():
                await self._cluster.client.delete(PODS.item(key), uid=pod.metadata.uid, grace_seconds=0)
        return None

    async def _start(self, pod: Pod, now: datetime) -> float | None:
        uid = pod.metadata.uid
        if uid in self._starting:
            return None
        node = self._nodes.get(pod.spec.node_name)
        if node is None:
            return None
        admitted = self._admitted.setdefault(pod.spec.node_name, {})
        if uid not in admitted:
            refusal = admission_failure(pod, node, admitted.values())
            if refusal is not None:
                is_written = await self._report(pod, {**refusal, "startTime": rfc3339(now)})
                return None if is_written else _RETRY_SECONDS
            admitted[uid] = takes(pod.spec)
        self._starting[uid] = now
        node_ip = self._node_address(node)
        pod_ip = node_ip if pod.spec.host_network else self._pod_addresses.take()
        is_written = False
        try:
            is_written = await self._report(pod, start_status(pod, now, pod_ip=pod_ip, node_ip=node_ip))
        finally:
            if not is_written:
                self._starting.pop(uid, None)
        return None if is_written else _RETRY_SECONDS

    async def _report(self, pod: Pod, status: Mapping[str, object]) -> bool:
        """Write the status of this incarnation of the pod. False if it is gone or somebody else's turn."""
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            await self._cluster.client.patch(PODS.item(pod.metadata.key, "status"), patch, STRATEGIC_PATCH)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True
