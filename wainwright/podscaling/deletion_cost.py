"""Idle pods go first: before a scale-down, pods of a ReplicaSet are marked with their own load.

ReplicaSets delete pods of lower `controller.kubernetes.io/pod-deletion-cost` first; without it, one busy worker of ten
is hit nine times of ten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

from wainwright.api.pods import Pod
from wainwright.errors import KubeError, KubeUnavailable
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import PODS
from wainwright.podscaling.autoscalers import Autoscaler

logger = logging.getLogger(__name__)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
COST_PER_LOAD: Final = 1000
"""Costs are whole numbers, load is not."""
MOST_COST: Final = 2**31 - 1

PodLoads = Callable[[Autoscaler, list[Pod]], Mapping[str, float]]
"""Load by pod name; pods that nothing is known of are left out."""


def deletion_costs(pods: list[Pod], loads: Mapping[str, float]) -> dict[str, int]:
    """Cost by pod name. Pods of unknown load cost as much as the busiest: "cannot tell" is not idle."""
    busiest = max(loads.values(), default=0.0)
    return {
        pod.metadata.name: min(MOST_COST, round(loads.get(pod.metadata.name, busiest) * COST_PER_LOAD)) for pod in pods
    }


class DeletionCosts:
    """Thread-safe. loads: what each pod has to do; executor: patches pods side by side."""

    def __init__(self, kube: KubeClient, loads: PodLoads, executor: Executor) -> None:
        self._kube = kube
        self._loads = loads
        self._executor = executor

    def mark(self, one: Autoscaler, selector: str, going: int) -> None:
        """Sets the costs that differ from those that stand there. Never raises."""
        if not selector or one.target.kind not in ("Deployment", "ReplicaSet"):
            return
        try:
            pods, _ = self._kube.list(PODS, Pod, namespace=one.target.namespace, label_selector=selector)
            pods = [pod for pod in pods if not pod.is_terminating and not pod.is_terminal]
            if going >= len(pods):
                return
            loads = self._loads(one, pods)
            if not loads:
                return
            costs = deletion_costs(pods, loads)
            changed = [pod for pod in pods if _cost(pod) != costs[pod.metadata.name]]
            list(self._executor.map(lambda pod: self._patch(pod, costs[pod.metadata.name]), changed))
        except Exception as error:
            known = isinstance(error, (KubeError, KubeUnavailable))
            logger.warning(
                "action=deletion_cost_failed pa=%s why=%s", one.key, error, exc_info=None if known else error
            )

    def _patch(self, pod: Pod, cost: int) -> None:
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {DELETION_COST: str(cost) if cost else None}}}
        try:
            self._kube.merge_patch(PODS, pod.metadata.name, body, pod.metadata.namespace)
        except KubeError as error:
            logger.info("action=deletion_cost_refused pod=%s why=%r", pod.key, str(error))


def _cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    return int(text) if text.lstrip("-").isdigit() else 0
