"""A solve's input, read once: options, nodes, groups, and what the rules of topology have to count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wainwright.api.pods import Pod, Toleration
from wainwright.scheduling.existing import ExistingNodes
from wainwright.scheduling.groups import Group, Reading, read_groups
from wainwright.scheduling.hosts import Hosts
from wainwright.scheduling.mentions import Mentions
from wainwright.scheduling.requirements import RequirementError
from wainwright.scheduling.rules import HostPort, Rule, RuleKind, host_ports, rules_of
from wainwright.scheduling.shapes import Term
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.taints import untolerated
from wainwright.scheduling.universe import Bools, Daemon, Universe, daemon_of
from wainwright.scheduling.volumes import ATTACHMENTS, Volumes

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class DomainTable:
    """A topology key over options and nodes with one numbering: codes index values; -1 is a missing label."""

    values: tuple[str, ...]
    options: Codes
    nodes: Codes


class Problem:
    """Everything the placement steps share. Raises nothing: what cannot be read is in `reading.unplaced`."""

    def __init__(self, snapshot: Snapshot, pods: Sequence[Pod]) -> None:
        self.snapshot = snapshot
        self.volumes = Volumes(snapshot)
        self.reading: Reading = read_groups(pods, snapshot, self.volumes)
        self.groups: list[Group] = self.reading.groups
        self.census = self.reading.census
        self.daemons: list[Daemon] = [d for each in snapshot.daemon_sets if (d := daemon_of(each)) is not None]
        self.mentions = _mentions(self.groups, self.daemons)
        self.names = sorted({name for group in self.groups for name in group.sizes})
        self.universe = self.make_universe(sold_out_too=False)
        self.existing = self._existing()
        self.node_members: dict[int, Codes] = {}
        self.node_apart: dict[tuple[int, str], Codes] = {}
        self._count_running()
        self._tokens: dict[tuple[int, str, str], int] = {}
        self._addresses = self._known_addresses()
        self._tables: dict[str, DomainTable] = {}
        self._label_masks: dict[tuple[tuple[Term, ...], tuple[Toleration, ...], bool], tuple[Bools, Bools]] = {}
        self._fit_masks: dict[tuple[int, ...], Bools] = {}
        self._mask_ids: dict[bytes, tuple[int, Bools]] = {}

    def make_universe(self, *, sold_out_too: bool) -> Universe:
        """The options; with sold_out_too, those that cannot be had just now as well (for explanations)."""
        snapshot = self.snapshot
        used: dict[str, dict[str, int]] = {}
        for node in snapshot.nodes:
            if node.node_pool:
                total = used.setdefault(node.node_pool, {})
                total["nodes"] = total.get("nodes", 0) + 1
                for name, amount in node.capacity.items():
                    total[name] = total.get(name, 0) + amount
        return Universe(
            snapshot.node_pools,
            snapshot.catalogs,
            daemon_sets=snapshot.daemon_sets,
            unavailable=snapshot.unavailable,
            mentions=self.mentions,
            used=used,
            resources=self.names,
            sold_out_too=sold_out_too,
        )

    def _existing(self) -> ExistingNodes:
        startup = {
            pool.name: frozenset((taint.key, taint.effect) for taint in pool.spec.template.spec.startup_taints)
            for pool in self.snapshot.node_pools
        }
        existing = ExistingNodes(self.snapshot.nodes, self.daemons, self.universe.resources, startup)
        for name in self.universe.resources:
            if not name.startswith(ATTACHMENTS):
                continue
            driver = name.removeprefix(ATTACHMENTS)
            for index, node in enumerate(existing.nodes):
                limit = self.volumes.limits.get(node.name, {}).get(driver)
                taken = self.volumes.attached(node.pods).get(driver, 0) if limit is not None else 0
                existing.free[name][index] = (1 << 40) if limit is None else limit - taken
        return existing

    def _count_running(self) -> None:
        """Members of each population and owners of required anti-affinity on every existing node."""
        size = self.existing.size
        for index, node in enumerate(self.existing.nodes):
            for pod in node.pods:
                if pod.is_terminal or pod.is_terminating:
                    continue
                for number in self.census.of(pod.metadata.namespace, pod.metadata.labels):
                    column = self.node_members.setdefault(number, np.zeros(size, dtype=np.int32))
                    column[index] += 1
                affinity = pod.spec.affinity
                if affinity is None or affinity.pod_anti_affinity is None:
                    continue
                try:
                    rules = rules_of(pod, self.census, self.snapshot.namespaces)
                except RequirementError:
                    continue
                for rule in rules:
                    if rule.kind is RuleKind.ANTI_AFFINITY and not rule.is_soft:
                        key = (rule.population, rule.key)
                        owners = self.node_apart.setdefault(key, np.zeros(size, dtype=np.int32))
                        owners[index] += 1

    def _known_addresses(self) -> dict[tuple[int, str], set[str]]:
        addresses: dict[tuple[int, str], set[str]] = {}
        ports = [port for group in self.groups for port in group.shape.ports]
        ports.extend(port for node in self.existing.nodes for pod in node.pods for port in host_ports(pod))
        for port in ports:
            addresses.setdefault((port.port, port.protocol), set()).add(port.address)
        return addresses

    def tokens(self, ports: Iterable[HostPort]) -> tuple[int, ...]:
        """Numbers such that two sets of ports conflict exactly if they share one: all addresses means each of them."""
        found: set[int] = set()
        for port in ports:
            named = self._addresses[port.port, port.protocol]
            for address in (named | {""}) if port.address == "" else {port.address}:
                key = (port.port, port.protocol, address)
                found.add(self._tokens.setdefault(key, len(self._tokens)))
        return tuple(sorted(found))

    def make_hosts(self) -> Hosts:
        """The existing nodes as they are before anything is placed."""
        existing, universe = self.existing, self.universe
        hosts = Hosts(len(universe.resources), max(existing.size, 1))
        hosts.grow(existing.size)
        for row, name in enumerate(universe.resources):
            hosts.free[row, : existing.size] = existing.free[name]
        for number, column in self.node_members.items():
            hosts.seed(hosts.members, number, column)
            hosts.seed(hosts.spread, number, column)
            hosts.seed(hosts.most, number, np.full(existing.size, 1 << 30, dtype=np.int32))
        for (number, key), column in self.node_apart.items():
            if Rule(RuleKind.ANTI_AFFINITY, key, number).by_host:
                hosts.seed(hosts.apart, number, column)
        if any(group.shape.ports for group in self.groups):
            for index, node in enumerate(existing.nodes):
                taken = {token for pod in node.pods if not pod.is_terminal for token in self.tokens(host_ports(pod))}
                for token in sorted(taken):
                    hosts.hold(token, index)
        return hosts

    def domains(self, key: str) -> DomainTable:
        """The domains of a topology key."""
        table = self._tables.get(key)
        if table is None:
            options, nodes = self.universe.column(key), self.existing.column(key)
            values = tuple(sorted({*options.values, *nodes.values}))
            index = {value: code for code, value in enumerate(values)}
            table = DomainTable(
                values,
                np.array([*(index[v] for v in options.values), -1], dtype=np.int32)[options.codes],
                np.array([*(index[v] for v in nodes.values), -1], dtype=np.int32)[nodes.codes],
            )
            self._tables[key] = table
        return table

    def label_masks(
        self, terms: tuple[Term, ...], tolerations: tuple[Toleration, ...], *, soft: bool
    ) -> tuple[Bools, Bools]:
        """Options and nodes whose labels meet one of the terms and whose taints are tolerated.

        soft: PreferNoSchedule keeps away too.
        """
        key = (terms, tolerations, soft)
        known = self._label_masks.get(key)
        if known is None:
            universe, existing = self.universe, self.existing
            options = universe.mask_of_terms(terms) & universe.mask_of_pools(
                [
                    not untolerated(tolerations, each.pool.spec.template.spec.taints, soft=soft)
                    for each in universe.pools
                ]
            )
            nodes = existing.mask_of_terms(terms) & existing.mask_of_tolerations(tolerations, soft=soft)
            known = (options, nodes)
            self._label_masks[key] = known
        return known

    def fit_mask(self, sizes: tuple[int, ...]) -> Bools:
        """The options that hold one pod of these sizes when empty."""
        known = self._fit_masks.get(sizes)
        if known is None:
            known = np.ones(self.universe.size, dtype=np.bool_)
            for name, size in zip(self.universe.resources, sizes, strict=True):
                if size:
                    known &= self.universe.allocatable[name] >= size
            self._fit_masks[sizes] = known
        return known

    def interned(self, mask: Bools) -> tuple[int, Bools]:
        """A number for a set of options, the same for equal sets."""
        text = np.packbits(mask).tobytes()
        known = self._mask_ids.get(text)
        if known is None:
            known = (len(self._mask_ids), mask)
            self._mask_ids[text] = known
        return known


def _mentions(groups: Sequence[Group], daemons: Sequence[Daemon]) -> Mentions:
    mentions = Mentions()
    for terms in {group.shape.terms for group in groups} | {daemon.terms for daemon in daemons}:
        mentions.update(Mentions.of(terms))
    for preferred in {group.shape.preferred for group in groups}:
        mentions.update(Mentions.of(term for _, term in preferred))
    for demand in {group.shape.volumes for group in groups}:
        for place in demand.places:
            mentions.update(Mentions.of(place))
    for rules in {group.shape.rules for group in groups}:
        for rule in rules:
            mentions.add_key(rule.key)
    return mentions
