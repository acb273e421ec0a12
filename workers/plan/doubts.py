"""What a pod says that Kubernetes takes, and its author hardly meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from wainwright.api.pods import Pod, PodSpec, Quantity, TopologySpreadConstraint
from wainwright.api.quantities import parse_quantity
from wainwright.scheduling.populations import population
from wainwright.scheduling.requirements import RequirementError

MIB: Final = 2**20
MANY_CORES_MILLI: Final = 1_000_000
"""A thousand cores: no machine has them; `500` was written where `500m` was meant."""


def doubts(pod: Pod) -> Iterator[str]:
    """Sentences without the pod's name."""
    spec = pod.spec
    yield from _sizes(spec)
    for constraint in spec.topology_spread_constraints:
        if not _selects_itself(pod, constraint):
            yield (
                f"the topology spread by {constraint.topology_key} does not select the pod's own labels: "
                "it counts other pods, so its own pods are not spread"
            )
        if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            yield f"whenUnsatisfiable {constraint.when_unsatisfiable!r} is neither DoNotSchedule nor ScheduleAnyway"
    if spec.scheduling_gates:
        names = ", ".join(gate.name for gate in spec.scheduling_gates)
        yield f"has scheduling gates ({names}); planned as if they were gone"
    if spec.scheduler_name not in ("", "default-scheduler"):
        yield f"names scheduler {spec.scheduler_name!r}; planned by the rules of the default scheduler"
    if spec.resource_claims:
        yield "has resource claims (dynamic resource allocation); they are not looked at"


def _sizes(spec: PodSpec) -> Iterator[str]:
    asks = False
    for container in (*spec.containers, *spec.init_containers):
        amounts = {**container.resources.limits, **container.resources.requests}
        asks = asks or bool(amounts)
        yield from _odd(amounts, f"container {container.name}")
    if spec.resources is not None:
        amounts = {**spec.resources.limits, **spec.resources.requests}
        asks = asks or bool(amounts)
        yield from _odd(amounts, "the pod")
    if not asks:
        yield "asks for nothing (no requests, no limits): it counts as one pod and takes no room"


def _odd(amounts: Mapping[str, Quantity], what: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        raw = amounts.get(name)
        if raw is None:
            continue
        amount = parse_quantity(name, raw)
        if 0 < amount < MIB:
            number = str(raw).rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
            size = "1 byte" if amount == 1 else f"{amount} bytes"
            yield f"{what} asks for {name} {raw}, which is {size}; did you mean {number}Mi?"
    cpu = amounts.get("cpu")
    if cpu is not None and parse_quantity("cpu", cpu) >= MANY_CORES_MILLI:
        yield f"{what} asks for cpu {cpu}, which is {parse_quantity('cpu', cpu) // 1000} cores; did you mean {cpu}m?"


def _selects_itself(pod: Pod, constraint: TopologySpreadConstraint) -> bool:
    meta = pod.metadata
    try:
        return population(meta.namespace, meta.labels, constraint.label_selector).has(meta.namespace, meta.labels)
    except RequirementError:
        return True  # the solver says what is wrong with it
