"""What a kubelet reports about its node. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wainwright.api.names import ARCH_LABEL, OS_LABEL
from wainwright.api.pods import Quantity
from wainwright.sim.controllers.context import rfc3339
from wainwright.sim.controllers.kubelet.machines import Instance
from wainwright.sim.controllers.objects import Node

_DEFAULT_AMOUNTS: dict[str, Quantity] = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
"""What a node has that says nothing about it and has no instance either."""
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
KUBELET_VERSION = "v1.34.0-simulated"


def node_report(node: Node, instance: Instance | None, *, address: str, now: datetime) -> dict[str, Any] | None:
    """The status patch of a node whose kubelet runs; None if the node shows all of it already.

    Capacity: what the node says, else its instance's, else a default. `address`: its internal IP if it has none yet.
    """
    status: dict[str, Any] = {}
    if not node.status.capacity or not node.status.allocatable:
        if instance is not None and (instance.capacity or instance.allocatable):
            capacity, allocatable = instance.amounts()
        else:
            capacity = allocatable = dict(node.status.capacity or node.status.allocatable or _DEFAULT_AMOUNTS)
        if not node.status.capacity:
            status["capacity"] = capacity
        if not node.status.allocatable:
            status["allocatable"] = allocatable
    if not node.status.addresses:
        status["addresses"] = [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": node.metadata.name},
        ]
    if node.ready_status != "True":
        labels = node.metadata.labels
        status["nodeInfo"] = {
            "architecture": labels.get(ARCH_LABEL, "amd64"),
            "operatingSystem": labels.get(OS_LABEL, "linux"),
            "kubeletVersion": KUBELET_VERSION,
            "containerRuntimeVersion": "simulated://1",
            "osImage": "Simulated",
            "kernelVersion": "simulated",
        }
        moment = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        status["conditions"] = [
            *(
                {"type": kind, "status": "False", "reason": reason, "message": message, **moment}
                for kind, (reason, message) in _PRESSURES.items()
            ),
            {**ready, **moment},
        ]
    return status or None
