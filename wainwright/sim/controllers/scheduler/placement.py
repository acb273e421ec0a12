"""One pod against all nodes: the best node, or the histogram of reasons. Answers are shared by pods of one shape."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wainwright.sim.controllers.matching import first_untolerated, selects, term_matches
from wainwright.sim.controllers.objects import Node, Pod
from wainwright.sim.controllers.scheduler.filters import (
    OTHER_NODE,
    Rejection,
    Shape,
    TopologyFilter,
    VolumeLimits,
    reject,
)
from wainwright.sim.controllers.scheduler.state import NodeState, PodGroup, SchedulerState

_SHAPES_KEPT = 1024
NO_NODES = "no nodes available to schedule pods"

_DEFAULT_CPU = 100
_DEFAULT_MEMORY = 200 * 2**20
"""What a pod without requests counts as in scoring (not in filtering)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pod goes; or, with an empty node_name, the scheduler's message why it goes nowhere."""

    node_name: str
    message: str = ""


def unschedulable_message(
    total: int, rejections: Mapping[Rejection, int], *, unready: str = "", never: bool = False
) -> str:
    """The text of the PodScheduled condition, as kube-scheduler writes it.

    total: nodes there are; rejections: nodes a rejection; unready: a reason that holds whatever the node;
    never: preemptionPolicy is Never.
    """
    if total == 0:
        return NO_NODES
    available = f"0/{total} nodes are available:"
    reasons: Counter[str] = Counter()
    final = 0
    for rejection, count in rejections.items():
        final += count if rejection.is_final else 0
        for reason in rejection.reasons:
            reasons[reason] += count
    if unready:
        text, final = f"{available} {unready}.", total
    else:
        text = f"{available} {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    if never:
        return f"{text} preemption: not eligible due to preemptionPolicy=Never."
    outcomes = {
        "Preemption is not helpful for scheduling": final,
        "No preemption victims found for incoming pod": total - final,
    }
    told = ", ".join(sorted(f"{count} {outcome}" for outcome, count in outcomes.items() if count))
    return f"{text} preemption: {available} {told}."


def score(shape: Shape, state: NodeState) -> int:
    """Higher is better: least allocated and balanced (0 to 100 each), preferred node affinity, preferred taints."""
    node = state.node
    assert node is not None
    shares = []
    for name, default in (("cpu", _DEFAULT_CPU), ("memory", _DEFAULT_MEMORY)):
        room = state.allocatable.get(name, 0)
        taken = state.requested[name] + (shape.takes.get(name, 0) or default)
        shares.append(min(1.0, taken / room) if room else 1.0)
    points = 100 * (1 - sum(shares) / 2) + 100 * (1 - abs(shares[0] - shares[1]) / 2)
    affinity = shape.spec.affinity.node_affinity if shape.spec.affinity else None
    if affinity is not None and affinity.preferred:
        total = sum(term.weight for term in affinity.preferred) or 1
        met = sum(term.weight for term in affinity.preferred if term_matches(term.preference, node))
        points += 200 * met / total
    if node.spec.taints and first_untolerated(node.spec.taints, shape.spec.tolerations, ("PreferNoSchedule",)):
        points -= 300
    return round(points)


@dataclass(slots=True)
class _Verdict:
    generation: int
    rejection: Rejection | None
    points: int


@dataclass(slots=True)
class _Memo:
    """What is known of every node for one shape, brought up to date by the nodes that changed."""

    shape: Shape
    epoch: int
    generation: int = -1
    verdicts: dict[str, _Verdict] = field(default_factory=dict)
    rejections: Counter[Rejection] = field(default_factory=Counter)
    best: list[tuple[int, str, int]] = field(default_factory=list)
    """Heap of (-points, node, generation); entries of an older generation of their node are void."""

    def update(self, state: SchedulerState) -> None:
        nodes = list(state.changed_since(self.generation))
        self.generation = state.generation
        for node_state in nodes:
            self._judge(node_state)

    def _judge(self, node_state: NodeState) -> None:
        name = node_state.name
        known = self.verdicts.get(name)
        if known is not None and known.rejection is not None:
            self.rejections[known.rejection] -= 1
            if not self.rejections[known.rejection]:
                del self.rejections[known.rejection]
        rejection = reject(self.shape, node_state)
        points = score(self.shape, node_state) if rejection is None else 0
        self.verdicts[name] = _Verdict(node_state.generation, rejection, points)
        if rejection is None:
            heapq.heappush(self.best, (-points, name, node_state.generation))
        else:
            self.rejections[rejection] += 1

    def best_node(self) -> str:
        """The feasible node with the most points (of equals the first by name), empty if there is none."""
        while self.best:
            _, name, generation = self.best[0]
            verdict = self.verdicts.get(name)
            if verdict is not None and verdict.generation == generation and verdict.rejection is None:
                return name
            heapq.heappop(self.best)
        return ""

    def feasible(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.rejection is None]


class Placer:
    """Places one pod after another on a state. It does not change the state: place the pod there to make it count."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._memos: OrderedDict[bytes, _Memo] = OrderedDict()

    def has_room(self, shape: Shape) -> bool:
        """Is there a node that no node-by-node filter refuses to the shape?"""
        if shape.only_nodes is not None:
            states = (self._state.nodes.get(name) for name in shape.only_nodes)
            return any(state is not None and reject(shape, state) is None for state in states)
        return bool(self._memo(shape).best_node())

    def place(self, pod: Pod, shape: Shape, volumes: VolumeLimits) -> Placement:
        """The node for the pod, or why there is none. Same state, same answer."""
        state = self._state
        total = len(state.nodes)
        never = pod.spec.preemption_policy == "Never"
        if total == 0:
            return Placement("", NO_NODES)
        if volumes.unready:
            return Placement("", unschedulable_message(total, {}, unready=volumes.unready, never=never))
        others = self._other_filters(pod, volumes)
        nominated = state.nodes.get(pod.status.nominated_node_name)
        if nominated is not None and nominated.node is not None:
            free = reject(shape, nominated, ignoring=pod.metadata.uid) is None
            if free and all(refuse(nominated.node) is None for refuse in others):
                return Placement(nominated.name)
        if shape.only_nodes is not None:
            return self._place_named(shape, others, never=never)
        memo = self._memo(shape)
        if not others and not self._has_soft_terms(pod):
            name = memo.best_node()
            return (
                Placement(name) if name else Placement("", unschedulable_message(total, memo.rejections, never=never))
            )
        rejections = Counter(memo.rejections)
        extra = self._soft_scores(pod)
        candidates: list[tuple[float, str]] = []
        for name in memo.feasible():
            node = state.nodes[name].node
            assert node is not None
            rejection = next((r for refuse in others if (r := refuse(node)) is not None), None)
            if rejection is None:
                candidates.append((-memo.verdicts[name].points - extra(node), name))
            else:
                rejections[rejection] += 1
        if candidates:
            return Placement(min(candidates)[1])
        return Placement("", unschedulable_message(total, rejections, never=never))

    def _place_named(self, shape: Shape, others: list[Callable[[Node], Rejection | None]], *, never: bool) -> Placement:
        """For pods that name their nodes: only those are looked at."""
        rejections: Counter[Rejection] = Counter()
        total = len(self._state.nodes)
        named = [self._state.nodes[n] for n in sorted(shape.only_nodes or ()) if n in self._state.nodes]
        for node_state in named:
            assert node_state.node is not None
            node = node_state.node
            rejection = reject(shape, node_state) or next(
                (r for refuse in others if (r := refuse(node)) is not None), None
            )
            if rejection is None:
                return Placement(node_state.name)
            rejections[rejection] += 1
        if total > len(named):
            rejections[OTHER_NODE] += total - len(named)
        return Placement("", unschedulable_message(total, rejections, never=never))

    def _other_filters(self, pod: Pod, volumes: VolumeLimits) -> list[Callable[[Node], Rejection | None]]:
        """Filters that are not a matter of shape and node alone, in the scheduler's order."""
        filters: list[Callable[[Node], Rejection | None]] = []
        if volumes.bound or volumes.unbound:
            filters.append(volumes.reject)
        if TopologyFilter.concerns(pod, self._state):
            filters.append(TopologyFilter(pod, self._state).reject)
        return filters

    @staticmethod
    def _has_soft_terms(pod: Pod) -> bool:
        affinity = pod.spec.affinity
        return bool(
            any(c.when_unsatisfiable == "ScheduleAnyway" for c in pod.spec.topology_spread_constraints)
            or (affinity and affinity.pod_affinity and affinity.pod_affinity.preferred)
            or (affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.preferred)
        )

    def _soft_scores(self, pod: Pod) -> Callable[[Node], float]:
        """Points for preferred pod affinity (weight 2, as upstream) and soft spread (fewer is better)."""
        state = self._state
        weighted: list[tuple[str, Counter[str], float]] = []
        affinity = pod.spec.affinity
        for terms, sign in (
            (affinity.pod_affinity.preferred if affinity and affinity.pod_affinity else (), 2.0),
            (affinity.pod_anti_affinity.preferred if affinity and affinity.pod_anti_affinity else (), -2.0),
        ):
            for term in terms:
                counts = state.count(state.group_of(term.pod_affinity_term, pod))
                key = term.pod_affinity_term.topology_key
                present = Counter(dict.fromkeys(self._per_domain(key, counts), 1))
                weighted.append((key, present, sign * term.weight))
        for constraint in pod.spec.topology_spread_constraints:
            if constraint.when_unsatisfiable == "ScheduleAnyway":
                group = PodGroup(frozenset({pod.metadata.namespace}), constraint.label_selector, skips_terminating=True)
                domains = self._per_domain(constraint.topology_key, state.count(group))
                own = int(selects(constraint.label_selector, pod.metadata.labels))
                most = max(domains.values(), default=0) + own or 1
                weighted.append((constraint.topology_key, domains, -200 / most))
        return lambda node: sum(w * found[node.metadata.labels.get(key, "")] for key, found, w in weighted)

    def _per_domain(self, topology_key: str, counts: Mapping[str, int]) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, count in counts.items():
            node_state = self._state.nodes.get(name)
            if count > 0 and node_state is not None and node_state.node is not None:
                domain = node_state.node.metadata.labels.get(topology_key)
                if domain is not None:
                    found[domain] += count
        return found

    def _memo(self, shape: Shape) -> _Memo:
        memo = self._memos.get(shape.key)
        if memo is None or memo.epoch != self._state.epoch:
            memo = self._memos[shape.key] = _Memo(shape, self._state.epoch)
            if len(self._memos) > _SHAPES_KEPT:
                self._memos.popitem(last=False)
        self._memos.move_to_end(shape.key)
        memo.update(self._state)
        return memo
