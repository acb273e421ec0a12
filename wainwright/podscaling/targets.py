"""What is known of scale targets: replicas wanted, pods ready, which pods they are.

Deployments and StatefulSets are in the cluster view; any other kind with a Scale is asked of the API server, beside the
ticks, every few seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from wainwright.api.podautoscalers import Scale
from wainwright.api.pods import Pod
from wainwright.api.workloads import Workload
from wainwright.clock import Clock
from wainwright.errors import KubeError, KubeUnavailable, NotFound
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import DEPLOYMENTS, PODS, STATEFUL_SETS, Resource
from wainwright.podscaling.autoscalers import TargetKey

VIEWED: Final[Mapping[tuple[str, str], Resource]] = {
    ("apps", "Deployment"): DEPLOYMENTS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
}
"""Kinds whose replicas and ready pods the view shows: (group, kind) → resource."""
ASK_AGAIN_SECONDS: Final = 4.0


class TargetFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """exists: None when that cannot be told. replicas: wanted now. ready: pods that are Ready; None: cannot tell.
    problem: why nothing can be told or done.
    """

    exists: bool | None
    replicas: int = 0
    ready: int | None = None
    problem: str = ""


UNKNOWN: Final = TargetFacts(exists=None, problem="not asked yet")


_WORKLOADS: Final = msgspec.json.Decoder(Workload)


def viewed_facts(text: bytes | None, target: TargetKey) -> TargetFacts:
    """Facts of a Deployment or StatefulSet from its JSON in the view; None: it is not there."""
    if text is None:
        return TargetFacts(exists=False, ready=0, problem=f"{target} does not exist in {target.namespace}")
    workload = _WORKLOADS.decode(text)
    return TargetFacts(exists=True, replicas=workload.wanted_replicas, ready=workload.status.ready_replicas)


class ScaleClient:
    """Scale sub-resources of any kind. Thread-safe."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._served: dict[tuple[str, str], Resource] = {}

    def resource(self, target: TargetKey) -> Resource:
        """How the API server serves the target's kind. Raises NotFound where it does not."""
        kind = (target.group, target.kind)
        found = VIEWED.get(kind) or self._served.get(kind)
        if found is None:
            found = self._kube.discover(*kind) if target.group else None
            if found is None:
                raise NotFound(f"the API server serves no {target.kind} in {target.api_version}", status=404)
            self._served[kind] = found
        return found

    def read(self, target: TargetKey) -> Scale:
        """Raises NotFound: no such object, or it has no Scale."""
        path = self.resource(target).path(target.namespace, target.name, "scale")
        return msgspec.json.decode(self._kube.request("GET", path), type=Scale)

    def write(self, target: TargetKey, scale: Scale, replicas: int) -> None:
        """Raises Conflict when the target changed since the scale was read."""
        meta = {
            "name": target.name,
            "namespace": target.namespace,
            "uid": scale.metadata.uid,
            "resourceVersion": scale.metadata.resource_version,
        }
        body: dict[str, Any] = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {name: value for name, value in meta.items() if value},
            "spec": {"replicas": replicas},
        }
        self._kube.update(self.resource(target), body, subresource="scale")

    def facts(self, target: TargetKey) -> TargetFacts:
        """Two calls: the Scale, and its pods."""
        try:
            scale = self.read(target)
        except NotFound as error:
            return TargetFacts(exists=False, ready=0, problem=str(error))
        except (KubeError, KubeUnavailable, msgspec.MsgspecError) as error:
            return TargetFacts(exists=None, problem=str(error))
        selector = scale.status.selector
        if not selector:
            return TargetFacts(
                exists=True, replicas=scale.spec.replicas, problem=f"the Scale of {target} names no pods (selector)"
            )
        try:
            pods, _ = self._kube.list(PODS, Pod, namespace=target.namespace, label_selector=selector)
        except (KubeError, KubeUnavailable) as error:
            return TargetFacts(exists=True, replicas=scale.spec.replicas, problem=str(error))
        ready = sum(pod.is_ready for pod in pods)
        return TargetFacts(exists=True, replicas=scale.spec.replicas, ready=ready)


class OtherTargets:
    """Facts of targets that the view does not show, kept fresh from threads of their own: nobody waits for them."""

    def __init__(self, scales: ScaleClient, executor: Executor, clock: Clock) -> None:
        self._scales = scales
        self._executor = executor
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: dict[TargetKey, tuple[float, TargetFacts]] = {}
        self._asking: set[TargetKey] = set()

    def facts(self, targets: Iterable[TargetKey]) -> dict[TargetKey, TargetFacts]:
        """What was found last, UNKNOWN at first; asks anew in the background what is ASK_AGAIN_SECONDS old."""
        now = self._clock.monotonic_seconds()
        known: dict[TargetKey, TargetFacts] = {}
        ask: list[TargetKey] = []
        with self._lock:
            for target in targets:
                asked, facts = self._facts.get(target, (float("-inf"), UNKNOWN))
                known[target] = facts
                if now - asked >= ASK_AGAIN_SECONDS and target not in self._asking:
                    self._asking.add(target)
                    ask.append(target)
        for target in ask:
            self._executor.submit(self._ask, target)
        return known

    def forget(self, target: TargetKey) -> None:
        """Asks anew as soon as somebody wants to know."""
        with self._lock:
            if target in self._facts:
                self._facts[target] = (float("-inf"), self._facts[target][1])

    def _ask(self, target: TargetKey) -> None:
        try:
            facts = self._scales.facts(target)
        except Exception as error:
            facts = TargetFacts(exists=None, problem=repr(error))
        with self._lock:
            self._facts[target] = (self._clock.monotonic_seconds(), facts)
            self._asking.discard(target)
