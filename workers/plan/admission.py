"""What the API server adds to a pod: its namespace's LimitRanges, its RuntimeClass, its priority. Pure.

Pods are raw specs here, as the API server has them; they are changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.api.pods import Quantity
from wainwright.api.quantities import parse_quantity
from workers.plan.findings import Findings
from workers.plan.manifests import Manifests

Spec = dict[str, Any]
SYSTEM_PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class LimitRangeItem(Resource):
    type: str = ""
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    max: dict[str, Quantity] = {}


class LimitRangeSpec(Resource):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Resource):
    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(Resource):
    pod_fixed: dict[str, Quantity] = {}


class Scheduling(Resource):
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()


class RuntimeClass(Resource):
    metadata: ObjectMeta
    overhead: Overhead = Overhead()
    scheduling: Scheduling = Scheduling()


class PriorityClass(Resource):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Admission:
    """The objects of one set of manifests that shape its pods."""

    def __init__(self, manifests: Manifests, findings: Findings) -> None:
        self._findings = findings
        self._ranges: dict[str, list[LimitRange]] = {}
        for found in sorted(manifests.typed("LimitRange", LimitRange, findings), key=lambda each: each.metadata.name):
            self._ranges.setdefault(found.metadata.namespace, []).append(found)
        self._runtimes = {r.metadata.name: r for r in manifests.typed("RuntimeClass", RuntimeClass, findings)}
        self._priorities = {p.metadata.name: p for p in manifests.typed("PriorityClass", PriorityClass, findings)}
        general = [p for p in self._priorities.values() if p.global_default]
        self._general = min(general, key=lambda each: (each.value, each.metadata.name), default=None)

    def admit(self, spec: Spec, namespace: str, what: str) -> None:
        """Fills in what the API server would. what: the pod or workload, for warnings."""
        for limits in self._ranges.get(namespace, ()):
            for item in limits.spec.limits:
                self._limit(spec, item, f"{what}: LimitRange {limits.metadata.name}")
        self._runtime(spec, what)
        self._priority(spec, what)

    def _limit(self, spec: Spec, item: LimitRangeItem, what: str) -> None:
        if item.type == "Container":
            default = {**item.max, **item.default}
            requests = {**item.min, **default, **item.default_request}
            for container in _containers(spec):
                resources = container.setdefault("resources", {})
                resources["limits"] = {**default, **resources.get("limits", {})}
                resources["requests"] = {**requests, **resources.get("requests", {})}
                self._bounds(_amounts(resources["requests"]), item, f"{what}: container {container.get('name')}")
        elif item.type == "Pod":
            total: dict[str, int] = {}
            for container in spec.get("containers", ()):
                for name, amount in _amounts(container.get("resources", {}).get("requests", {})).items():
                    total[name] = total.get(name, 0) + amount
            self._bounds(total, item, what)

    def _bounds(self, requests: Mapping[str, int], item: LimitRangeItem, what: str) -> None:
        for name, least in item.min.items():
            if requests.get(name, 0) < parse_quantity(name, least):
                self._findings.warn(f"{what} asks for less {name} than its min {least}; the API server would refuse it")
        for name, most in item.max.items():
            if requests.get(name, 0) > parse_quantity(name, most):
                self._findings.warn(f"{what} asks for more {name} than its max {most}; the API server would refuse it")

    def _runtime(self, spec: Spec, what: str) -> None:
        name = spec.get("runtimeClassName")
        if not name:
            return
        found = self._runtimes.get(name)
        if found is None:
            self._findings.warn(f"{what}: RuntimeClass {name} is not given; its overhead is taken to be nothing")
            return
        if found.overhead.pod_fixed:
            spec["overhead"] = dict(found.overhead.pod_fixed)
        spec["nodeSelector"] = {**found.scheduling.node_selector, **spec.get("nodeSelector", {})}
        spec["tolerations"] = [*spec.get("tolerations", ()), *found.scheduling.tolerations]

    def _priority(self, spec: Spec, what: str) -> None:
        name = spec.get("priorityClassName")
        if not name:
            if self._general is not None and spec.get("priority") is None:
                spec["priorityClassName"] = self._general.metadata.name
                spec["priority"] = self._general.value
            return
        if name in SYSTEM_PRIORITIES:
            spec["priority"] = SYSTEM_PRIORITIES[name]
        elif name in self._priorities:
            found = self._priorities[name]
            spec["priority"] = found.value
            spec.setdefault("preemptionPolicy", found.preemption_policy or "PreemptLowerPriority")
        elif spec.get("priority") is None:
            self._findings.warn(f"{what}: PriorityClass {name} is not given; its priority is taken to be 0")


def _containers(spec: Spec) -> Iterator[dict[str, Any]]:
    for group in ("initContainers", "containers"):
        yield from spec.get(group, ())


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: parse_quantity(name, quantity) for name, quantity in quantities.items()}


def namespaces_with_labels(manifests: Manifests, known: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Labels of every namespace, the one that Kubernetes adds included. known: further names that are in use."""
    labels = {name: {"kubernetes.io/metadata.name": name} for name in (*manifests.namespaces, *known)}
    for item in manifests.of("Namespace"):
        labels[item.name] = dict(item.content["metadata"].get("labels", {}))
    return dict(sorted(labels.items()))
