"""Nodes that exist or are in flight, as columns of free room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wainwright.api.names import HOSTNAME_LABEL
from wainwright.api.nodes import Taint
from wainwright.api.pods import Toleration
from wainwright.api.quantities import QuantityError
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.requirements import ALIASES, Requirement
from wainwright.scheduling.shapes import NODE_NAME_FIELD, Term
from wainwright.scheduling.snapshot import NodeState
from wainwright.scheduling.taints import STARTUP_KEYS, tolerates, untolerated
from wainwright.scheduling.universe import ENORMOUS, Bools, Column, Daemon, Ints, encoded


class ExistingNodes:
    """Nodes in the order they are filled: initialized ones first, then by name.

    free: per resource, allocatable less the pods there and the daemons still to start. Negative room stays negative.
    taints: per node, those that count (of a node that is still starting, not the ones that go by themselves).
    """

    def __init__(
        self,
        nodes: Iterable[NodeState],
        daemons: Sequence[Daemon],
        resources: Sequence[str],
        startup_taints: Mapping[str, frozenset[tuple[str, str]]],
    ) -> None:
        self.nodes: tuple[NodeState, ...] = tuple(
            sorted(nodes, key=lambda node: (not node.initialized or node.in_flight, node.name))
        )
        self.size = len(self.nodes)
        self.labels = [_labels(node) for node in self.nodes]
        self.taints = [_lasting_taints(node, startup_taints.get(node.node_pool, frozenset())) for node in self.nodes]
        self.accepts: Bools = np.array([node.accepts for node in self.nodes], dtype=np.bool_)
        self._columns: dict[str, Column] = {}
        self._taint_sets = sorted(set(self.taints), key=lambda taints: [(t.key, t.value, t.effect) for t in taints])
        index = {taints: code for code, taints in enumerate(self._taint_sets)}
        self._taint_codes = np.array([index[taints] for taints in self.taints], dtype=np.int32)
        self.free: dict[str, Ints] = {
            name: np.array([min(node.allocatable.get(name, 0), ENORMOUS) for node in self.nodes], dtype=np.int64)
            for name in resources
        }
        self._charge(daemons)

    def _charge(self, daemons: Sequence[Daemon]) -> None:
        for index, node in enumerate(self.nodes):
            used: dict[str, int] = {}
            strangers: dict[str, int] = {}
            started: set[tuple[str, str]] = set()
            for pod in node.pods:
                if pod.is_terminal:
                    continue
                try:
                    wanted = pod_requests(pod)
                except QuantityError:
                    wanted = {"pods": 1}  # it runs there whatever its text says
                _add(used, wanted)
                if pod.is_daemon:
                    owner = next(o.name for o in pod.metadata.owner_references if o.kind == "DaemonSet")
                    started.add((pod.metadata.namespace, owner))
                    if not any(d.name == owner and d.namespace == pod.metadata.namespace for d in daemons):
                        _add(strangers, wanted)
            missing: dict[str, int] = {}
            for daemon in daemons:
                if (daemon.namespace, daemon.name) not in started and self.admits(
                    index, daemon.terms, daemon.tolerations
                ):
                    _add(missing, daemon.requests)
            for name, amount in missing.items():
                used[name] = used.get(name, 0) + max(amount - strangers.get(name, 0), 0)
            for name, amount in used.items():
                if name in self.free:
                    self.free[name][index] -= min(amount, ENORMOUS)

    def admits(self, index: int, terms: Iterable[Term], tolerations: Iterable[Toleration]) -> bool:
        """Do labels and taints of this node let such a pod in?"""
        labels = self.labels[index]
        return tolerates(tolerations, self.taints[index]) and any(
            all(wanted.has(labels.get(wanted.key)) for wanted in term) for term in terms
        )

    def column(self, key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = encoded([labels.get(key) for labels in self.labels])
            self._columns[key] = column
        return column

    def mask_of(self, wanted: Requirement) -> Bools:
        return self.column(wanted.key).admitted(wanted)

    def mask_of_terms(self, terms: Iterable[Term]) -> Bools:
        """The nodes whose labels satisfy every requirement of at least one term."""
        allowed = np.zeros(self.size, dtype=np.bool_)
        for term in terms:
            mask = np.ones(self.size, dtype=np.bool_)
            for wanted in term:
                mask &= self.mask_of(wanted)
            allowed |= mask
        return allowed

    def mask_of_tolerations(self, tolerations: Sequence[Toleration], *, soft: bool = False) -> Bools:
        """The nodes whose taints are all tolerated. soft: PreferNoSchedule counts too."""
        if self.size == 0:
            return np.zeros(0, dtype=np.bool_)
        table = [not untolerated(tolerations, taints, soft=soft) for taints in self._taint_sets]
        return np.array(table, dtype=np.bool_)[self._taint_codes]


def _labels(node: NodeState) -> dict[str, str]:
    labels = {ALIASES.get(key, key): value for key, value in node.labels.items()}
    labels.update(node.labels)
    labels.setdefault(HOSTNAME_LABEL, node.name)
    labels[NODE_NAME_FIELD] = node.name
    return labels


def _lasting_taints(node: NodeState, startup: frozenset[tuple[str, str]]) -> tuple[Taint, ...]:
    """What keeps pods away for good. While a node of ours starts, its start-up taints are left out."""
    starting = node.in_flight or not node.initialized
    lasting = {
        (taint.key, taint.value, taint.effect): taint
        for taint in node.taints
        if not (starting and (taint.key in STARTUP_KEYS or (taint.key, taint.effect) in startup))
        and not (node.node_pool and taint.key.startswith("karpenter.sh/") and taint.key in STARTUP_KEYS)
    }
    return tuple(lasting[key] for key in sorted(lasting))


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
