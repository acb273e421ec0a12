"""Why a pod cannot go to a node: kube-scheduler's filters, in its order and words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from wainwright.api.nodes import Taint
from wainwright.api.pods import NodeSelector, PodAffinityTerm, TopologySpreadConstraint
from wainwright.sim.controllers.matching import first_untolerated, node_matches, selects, term_matches
from wainwright.sim.controllers.objects import Node, Pod, PodSpec
from wainwright.sim.controllers.requests import takes
from wainwright.sim.controllers.scheduler.state import (
    EVERY_ADDRESS,
    HostPort,
    NodeState,
    PodGroup,
    SchedulerState,
    anti_affinity_terms,
    host_ports,
    narrowed,
)

_UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class Rejection:
    """One node's reasons. is_final: evicting pods from the node would not help."""

    reasons: tuple[str, ...]
    is_final: bool


UNSCHEDULABLE = Rejection(("node(s) were unschedulable",), is_final=True)
AFFINITY = Rejection(("node(s) didn't match Pod's node affinity/selector",), is_final=True)
OTHER_NODE = Rejection(("node(s) didn't satisfy plugin(s) [NodeAffinity]",), is_final=True)
PORTS = Rejection(("node(s) didn't have free ports for the requested pod ports",), is_final=False)
VOLUME_ZONE = Rejection(("node(s) had volume node affinity conflict",), is_final=True)
VOLUME_TOPOLOGY = Rejection(("node(s) didn't find available persistent volumes to bind",), is_final=True)
SPREAD = Rejection(("node(s) didn't match pod topology spread constraints",), is_final=False)
SPREAD_LABEL = Rejection(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), is_final=True
)
POD_AFFINITY = Rejection(("node(s) didn't match pod affinity rules",), is_final=True)
ANTI_AFFINITY = Rejection(("node(s) didn't match pod anti-affinity rules",), is_final=False)
REFUSED = Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",), is_final=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """All of a pod that node-by-node filters look at: pods of equal `key` get equal answers."""

    key: bytes
    spec: PodSpec
    takes: Mapping[str, int]
    ports: tuple[HostPort, ...]
    priority: int
    only_nodes: frozenset[str] | None
    """The nodes that required affinity names outright (as DaemonSet pods do); None: any."""


def shape_of(spec: PodSpec) -> Shape:
    """The shape of a pod with this spec."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    taken = takes(spec)
    ports = host_ports(spec)
    priority = spec.priority or 0
    key = msgspec.json.encode(
        (sorted(taken.items()), ports, priority, sorted(spec.node_selector.items()), affinity, spec.tolerations)
    )
    return Shape(key, spec, taken, ports, priority, _named_nodes(affinity.required if affinity else None))


def _named_nodes(required: NodeSelector | None) -> frozenset[str] | None:
    """Node names, if every term of the affinity names its node by `metadata.name`."""
    if required is None or not required.node_selector_terms:
        return None
    names: set[str] = set()
    for term in required.node_selector_terms:
        named = [set(f.values) for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        if not named:
            return None
        names |= set.intersection(*named)
    return frozenset(names)


def reject(shape: Shape, state: NodeState, ignoring: str = "") -> Rejection | None:
    """The first filter that refuses this node, None if all let the pod in. ignoring: uid whose nomination is its own.

    Order: unschedulable, taints, node affinity, host ports, resources.
    """
    node = state.node
    assert node is not None
    if shape.only_nodes is not None and state.name not in shape.only_nodes:
        return OTHER_NODE
    spec = shape.spec
    if node.spec.unschedulable and first_untolerated((_UNSCHEDULABLE_TAINT,), spec.tolerations) is not None:
        return UNSCHEDULABLE
    taint = first_untolerated(node.spec.taints, spec.tolerations) if node.spec.taints else None
    if taint is not None:
        return Rejection((f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",), is_final=True)
    if (spec.node_selector or spec.affinity is not None) and not node_matches(spec, node):
        return AFFINITY
    if shape.ports and any(_is_taken(port, state.ports) for port in shape.ports):
        return PORTS
    return _reject_resources(shape, state, ignoring)


def _is_taken(wanted: HostPort, taken: Iterable[HostPort]) -> bool:
    """Same protocol and port, and the same address or all addresses on one side."""
    return any(
        (protocol, port) == wanted[1:] and (address == wanted[0] or EVERY_ADDRESS in (address, wanted[0]))
        for address, protocol, port in taken
    )


def _reject_resources(shape: Shape, state: NodeState, ignoring: str) -> Rejection | None:
    """Every resource there is too little of. Final if the empty node would be too small as well."""
    room = state.allocatable
    requested: Mapping[str, int] = state.requested
    if state.nominated:
        promised = Counter(requested)
        for uid, (priority, taken) in state.nominated.items():
            if uid != ignoring and priority >= shape.priority:
                promised.update(taken)
        requested = promised
    short = [name for name, amount in shape.takes.items() if amount + requested.get(name, 0) > room.get(name, 0)]
    if not short:
        return None
    is_final = any(shape.takes[name] > room.get(name, 0) for name in short)
    reasons = tuple("Too many pods" if name == "pods" else f"Insufficient {name}" for name in short)
    return Rejection(reasons, is_final)


@dataclass(frozen=True, slots=True)
class _Spread:
    topology_key: str
    max_skew: int
    counts: Counter[str]
    least: int
    own: int


class TopologyFilter:
    """Filters that look at other pods: spread, pod affinity, anti-affinity (the pod's own and the placed pods').

    Made for one pod and one state; ask it about each node that the other filters let through.
    """

    def __init__(self, pod: Pod, state: SchedulerState) -> None:
        self._pod = pod
        self._state = state
        spec = pod.spec
        affinity = spec.affinity
        self._spreads = [
            self._spread(constraint)
            for constraint in spec.topology_spread_constraints
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ]
        wanted = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
        self._affinity = [self._domains(term) for term in wanted]
        self._is_first_of_group = bool(wanted) and self._may_be_first(wanted)
        self._anti = [self._domains(term) for term in anti_affinity_terms(pod)]
        self._refused = [
            (refusal.topology_key, self._occupied(refusal.topology_key, refusal.nodes))
            for refusal in state.refusals.values()
            if refusal.group.includes(pod)
        ]

    @staticmethod
    def concerns(pod: Pod, state: SchedulerState) -> bool:
        """Could this filter refuse anything for the pod at all?"""
        affinity = pod.spec.affinity
        return bool(
            any(c.when_unsatisfiable == "DoNotSchedule" for c in pod.spec.topology_spread_constraints)
            or (affinity and affinity.pod_affinity and affinity.pod_affinity.required)
            or anti_affinity_terms(pod)
            or any(refusal.group.includes(pod) for refusal in state.refusals.values())
        )

    def reject(self, node: Node) -> Rejection | None:
        labels = node.metadata.labels
        for spread in self._spreads:
            domain = labels.get(spread.topology_key)
            if domain is None:
                return SPREAD_LABEL
            if spread.counts[domain] + spread.own - spread.least > spread.max_skew:
                return SPREAD
        if any(key not in labels for key, _ in self._affinity):
            return POD_AFFINITY
        if not self._is_first_of_group and any(labels[key] not in found for key, found in self._affinity):
            return POD_AFFINITY
        if any(key in labels and labels[key] in found for key, found in self._anti):
            return ANTI_AFFINITY
        if any(key in labels and labels[key] in found for key, found in self._refused):
            return REFUSED
        return None

    def _spread(self, constraint: TopologySpreadConstraint) -> _Spread:
        """Pods a domain over the eligible nodes, and the least of them (0 while there are fewer than minDomains)."""
        pod = self._pod
        selector = narrowed(constraint.label_selector, constraint.match_label_keys, pod)
        group = PodGroup(frozenset({pod.metadata.namespace}), selector, skips_terminating=True)
        per_node = self._state.count(group)
        counts: Counter[str] = Counter()
        keys = {c.topology_key for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"}
        for name, node_state in self._state.nodes.items():
            node = node_state.node
            assert node is not None
            if not keys <= node.metadata.labels.keys() or not _is_eligible(constraint, pod, node):
                continue
            counts[node.metadata.labels[constraint.topology_key]] += per_node[name]
        least = min(counts.values(), default=0)
        if constraint.min_domains is not None and len(counts) < constraint.min_domains:
            least = 0
        own = int(selects(selector, pod.metadata.labels))
        return _Spread(constraint.topology_key, constraint.max_skew, counts, least, own)

    def _domains(self, term: PodAffinityTerm) -> tuple[str, set[str]]:
        """Topology key, and the domains in which pods of the term are."""
        counts = self._state.count(self._state.group_of(term, self._pod))
        return term.topology_key, self._occupied(term.topology_key, counts)

    def _occupied(self, topology_key: str, counts: Mapping[str, int]) -> set[str]:
        found: set[str] = set()
        for name, count in counts.items():
            state = self._state.nodes.get(name)
            if count > 0 and state is not None and state.node is not None:
                domain = state.node.metadata.labels.get(topology_key)
                if domain is not None:
                    found.add(domain)
        return found

    def _may_be_first(self, terms: Sequence[PodAffinityTerm]) -> bool:
        """No pod matches any term anywhere, and this pod matches them all: it may found the group."""
        if any(found for _, found in self._affinity):
            return False
        return all(self._state.group_of(term, self._pod).includes(self._pod) for term in terms)


def _is_eligible(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    """Does the node count as a domain? By the constraint's policies on node affinity and taints."""
    if constraint.node_affinity_policy != "Ignore" and not node_matches(pod.spec, node):
        return False
    return constraint.node_taints_policy != "Honor" or first_untolerated(node.spec.taints, pod.spec.tolerations) is None


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """Where the pod's volumes let it go. unready: why it can go nowhere yet, empty if it can."""

    unready: str = ""
    bound: tuple[NodeSelector, ...] = ()
    unbound: tuple[NodeSelector, ...] = ()

    def reject(self, node: Node) -> Rejection | None:
        if not all(any(term_matches(t, node) for t in selector.node_selector_terms) for selector in self.bound):
            return VOLUME_ZONE
        if not all(any(term_matches(t, node) for t in selector.node_selector_terms) for selector in self.unbound):
            return VOLUME_TOPOLOGY
        return None
