"""The scheduler's picture of nodes and of the pods on them, kept by increments; no I/O."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from wainwright.api.meta import LabelSelector
from wainwright.api.pods import PodAffinityTerm
from wainwright.sim.controllers.matching import selects
from wainwright.sim.controllers.objects import Node, Pod, PodSpec
from wainwright.sim.controllers.requests import allocatable, takes

HostPort = tuple[str, str, int]
"""IP (`0.0.0.0` for all), protocol, port."""
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 (a value to compare with: nothing is bound)

_COUNTERS_KEPT = 512


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Ports of the node that the pod's containers take."""
    return tuple(
        (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *spec.init_containers)
        for port in container.ports
        if port.host_port
    )


@dataclass(slots=True)
class NodeState:
    """A node and what is taken of it. `generation` grows with every change of either."""

    name: str
    node: Node | None = None
    allocatable: Mapping[str, int] = field(default_factory=dict)
    requested: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    nominated: dict[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)
    """Unbound pods that are promised to this node: priority and what they take, by uid."""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The pods a selector means, in some namespaces. skips_terminating: pods being deleted do not count."""

    namespaces: frozenset[str]
    selector: LabelSelector | None
    skips_terminating: bool = False

    def includes(self, pod: Pod) -> bool:
        return (
            pod.metadata.namespace in self.namespaces
            and not (self.skips_terminating and pod.is_terminating)
            and selects(self.selector, pod.metadata.labels)
        )

    @property
    def key(self) -> bytes:
        return msgspec.json.encode((sorted(self.namespaces), self.selector, self.skips_terminating))


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node, with what it takes and the keys of its anti-affinity terms in `refusals`."""

    pod: Pod
    node_name: str
    takes: Mapping[str, int]
    refusals: tuple[bytes, ...]


@dataclass(slots=True)
class Refusal:
    """A required anti-affinity term of pods that are placed: how many of them are on which node."""

    group: PodGroup
    topology_key: str
    nodes: Counter[str] = field(default_factory=Counter)


def anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    return affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()


def narrowed(selector: LabelSelector | None, keys: tuple[str, ...], pod: Pod) -> LabelSelector | None:
    """The selector, narrowed to pods that agree with `pod` in the label `keys` (matchLabelKeys)."""
    own = {key: pod.metadata.labels[key] for key in keys if key in pod.metadata.labels}
    if selector is None or not own:
        return selector
    return msgspec.structs.replace(selector, match_labels={**selector.match_labels, **own})


class SchedulerState:
    """Nodes, placed pods, and how many pods of a group are on which node."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        """Nodes that exist. Pods on nodes that do not are kept aside until the node turns up."""
        self.placed: dict[str, Placed] = {}
        self.refusals: dict[bytes, Refusal] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of every namespace."""
        self.generation = 0
        self.epoch = 0
        """Grows when a node goes: what was concluded node by node has to be concluded anew."""
        self._states: dict[str, NodeState] = {}
        self._changes: OrderedDict[str, int] = OrderedDict()
        self._counts: OrderedDict[bytes, tuple[PodGroup, Counter[str]]] = OrderedDict()

    def set_node(self, node: Node) -> None:
        state = self._state(node.metadata.name)
        state.node = node
        state.allocatable = allocatable(node)
        self.nodes[state.name] = state
        self._touch(state)

    def remove_node(self, name: str) -> None:
        state = self.nodes.pop(name, None)
        if state is not None:
            state.node = None
            self._changes.pop(name, None)
            if not state.requested["pods"] and not state.nominated:
                del self._states[name]
            self.generation += 1
            self.epoch += 1

    def place(self, pod: Pod, node_name: str) -> None:
        """Count the pod on that node, wherever it was counted before."""
        uid = pod.metadata.uid
        self.displace(uid)
        state = self._state(node_name)
        refusals: list[bytes] = []
        for term in anti_affinity_terms(pod):
            group = self.group_of(term, pod)
            refusals.append(group.key + term.topology_key.encode())
            self.refusals.setdefault(refusals[-1], Refusal(group, term.topology_key))
        self.placed[uid] = Placed(pod, node_name, takes(pod.spec), tuple(refusals))
        state.nominated.pop(uid, None)
        self._count(self.placed[uid], state, +1)

    def displace(self, uid: str) -> None:
        """The pod is over, gone, or was not bound after all."""
        placed = self.placed.pop(uid, None)
        if placed is not None:
            self._count(placed, self._state(placed.node_name), -1)

    def nominate(self, pod: Pod) -> None:
        """Promise the pod the node it names in `status.nominatedNodeName`; without one, take the promise back."""
        uid = pod.metadata.uid
        wanted = pod.status.nominated_node_name
        for state in self._states.values():
            if uid in state.nominated and state.name != wanted:
                del state.nominated[uid]
                self._touch(state)
        if wanted and uid not in self._state(wanted).nominated:
            self._state(wanted).nominated[uid] = (pod.spec.priority or 0, takes(pod.spec))
            self._touch(self._state(wanted))

    def changed_since(self, generation: int) -> Iterator[NodeState]:
        """Nodes that changed after `generation`, newest first."""
        for name in reversed(self._changes):
            if self._changes[name] <= generation:
                return
            if name in self.nodes:
                yield self.nodes[name]

    def count(self, group: PodGroup) -> Counter[str]:
        """How many pods of the group are on each node; kept up to date from the first question on."""
        key = group.key
        if key in self._counts:
            self._counts.move_to_end(key)
            return self._counts[key][1]
        counts = Counter(placed.node_name for placed in self.placed.values() if group.includes(placed.pod))
        self._counts[key] = (group, counts)
        if len(self._counts) > _COUNTERS_KEPT:
            self._counts.popitem(last=False)
        return counts

    def namespaces_of(self, term: PodAffinityTerm, pod: Pod) -> frozenset[str]:
        """Namespaces an affinity term of `pod` speaks of: listed and selected ones, else the pod's own."""
        if not term.namespaces and term.namespace_selector is None:
            return frozenset({pod.metadata.namespace})
        selected = {name for name, labels in self.namespaces.items() if selects(term.namespace_selector, labels)}
        return frozenset(term.namespaces) | selected

    def group_of(self, term: PodAffinityTerm, pod: Pod) -> PodGroup:
        """The pods an affinity term of `pod` means."""
        selector = narrowed(term.label_selector, term.match_label_keys, pod)
        return PodGroup(self.namespaces_of(term, pod), selector)

    def _state(self, name: str) -> NodeState:
        if name not in self._states:
            self._states[name] = NodeState(name)
        return self._states[name]

    def _touch(self, state: NodeState) -> None:
        self.generation += 1
        state.generation = self.generation
        if state.node is not None:
            self._changes[state.name] = self.generation
            self._changes.move_to_end(state.name)

    def _count(self, placed: Placed, state: NodeState, sign: int) -> None:
        for name, amount in placed.takes.items():
            state.requested[name] += sign * amount
        for port in host_ports(placed.pod.spec):
            state.ports[port] += sign
            if not state.ports[port]:
                del state.ports[port]
        for group, counts in self._counts.values():
            if group.includes(placed.pod):
                counts[state.name] += sign
        for key in placed.refusals:
            refusal = self.refusals[key]
            refusal.nodes[state.name] += sign
            if not refusal.nodes[state.name]:
                del refusal.nodes[state.name]
            if not refusal.nodes:
                del self.refusals[key]
        self._touch(state)
