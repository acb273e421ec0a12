"""How much of a node a pod takes, as kube-scheduler and kubelet count it. Pure."""

from __future__ import annotations

from wainwright.api.pods import Container
from wainwright.api.quantities import Resources, add, parse_resources
from wainwright.sim.controllers.objects import Node, PodSpec

_POD_LEVEL = ("cpu", "memory")
"""Pod-level requests exist for these (and huge pages); they replace the containers' sum."""


def _requested(container: Container) -> dict[str, int]:
    """Requests of a container; a limit without a request counts as the request (the API server's default)."""
    resources = container.resources
    return parse_resources({**resources.limits, **resources.requests})


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Requests of the whole pod without the pod itself (see `pods` in `takes`).

    The larger of: containers and sidecars together; each init container with the sidecars started before it. Pod-level
    requests replace that; overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        total = add(total, _requested(container))
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for init in spec.init_containers:
        own = _requested(init)
        if init.restart_policy == "Always":
            total = add(total, own)
            sidecars = add(sidecars, own)
            own = {}
        for name, amount in add(sidecars, own).items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    if spec.resources is not None:
        for name, amount in parse_resources({**spec.resources.limits, **spec.resources.requests}).items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = amount
    if spec.overhead:
        total = add(total, parse_resources(spec.overhead))
    return total


def takes(spec: PodSpec) -> dict[str, int]:
    """What the pod takes of a node's allocatable: its requests and one of `pods`."""
    requests = {name: amount for name, amount in pod_requests(spec).items() if amount}
    requests["pods"] = 1
    return requests


def allocatable(node: Node) -> Resources:
    """What pods may take of the node (capacity where it reports no allocatable)."""
    return parse_resources(node.status.allocatable or node.status.capacity, round_up=False)
