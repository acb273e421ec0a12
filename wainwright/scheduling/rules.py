"""Rules about other pods: spread constraints, affinity, anti-affinity, host ports; their populations are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from wainwright.api.names import HOSTNAME_LABEL
from wainwright.api.pods import Pod, PodAffinityTerm, TopologySpreadConstraint
from wainwright.scheduling.populations import Census, Population, population, selector_requirements
from wainwright.scheduling.requirements import ALIASES, RequirementError


class RuleKind(StrEnum):
    SPREAD = "spread"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that a pod carries. population: its number in the census. weight: 0 for a demand, else a preference's.

    max_skew, min_domains, honor_affinity, honor_taints: of spread constraints only.
    """

    kind: RuleKind
    key: str
    population: int
    weight: int = 0
    max_skew: int = 0
    min_domains: int = 0
    honor_affinity: bool = True
    honor_taints: bool = False

    @property
    def by_host(self) -> bool:
        return self.key == HOSTNAME_LABEL

    @property
    def is_soft(self) -> bool:
        return self.weight > 0

    def hardened(self) -> Rule:
        """The same rule as a demand: how a preference is tried."""
        return replace(self, weight=0)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node. address "" stands for all of them."""

    port: int
    protocol: str
    address: str = ""


def rules_of(pod: Pod, census: Census, namespaces: Mapping[str, Mapping[str, str]]) -> tuple[Rule, ...]:
    """Demands first, then preferences, heaviest first. Raises RequirementError naming what cannot be read."""
    labels, namespace = pod.metadata.labels, pod.metadata.namespace
    found = [_spread(constraint, namespace, labels, census) for constraint in pod.spec.topology_spread_constraints]
    affinity = pod.spec.affinity
    if affinity is not None:
        for kind, side in (
            (RuleKind.AFFINITY, affinity.pod_affinity),
            (RuleKind.ANTI_AFFINITY, affinity.pod_anti_affinity),
        ):
            if side is None:
                continue
            found.extend(Rule(kind, *_term(term, namespace, labels, census, namespaces)) for term in side.required)
            for weighted in side.preferred:
                term = weighted.pod_affinity_term
                found.append(
                    Rule(kind, *_term(term, namespace, labels, census, namespaces), weight=max(weighted.weight, 1))
                )
    unique = dict.fromkeys(found)
    return tuple(sorted(unique, key=lambda rule: (rule.is_soft, -rule.weight, rule.kind, rule.key, rule.population)))


def _spread(constraint: TopologySpreadConstraint, namespace: str, labels: Mapping[str, str], census: Census) -> Rule:
    if constraint.max_skew < 1:
        raise RequirementError(
            f"topologySpreadConstraints[{constraint.topology_key}].maxSkew: {constraint.max_skew} is less than 1"
        )
    who = population(namespace, labels, constraint.label_selector, same=constraint.match_label_keys)
    return Rule(
        kind=RuleKind.SPREAD,
        key=ALIASES.get(constraint.topology_key, constraint.topology_key),
        population=census.number(who),
        weight=1 if constraint.when_unsatisfiable == "ScheduleAnyway" else 0,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        honor_affinity=constraint.node_affinity_policy != "Ignore",
        honor_taints=constraint.node_taints_policy == "Honor",
    )


def _term(
    term: PodAffinityTerm,
    namespace: str,
    labels: Mapping[str, str],
    census: Census,
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[str, int]:
    where: frozenset[str] | None = frozenset(term.namespaces)
    chosen = selector_requirements(term.namespace_selector)
    if chosen is not None:
        if not chosen:
            where = None
        else:
            selected = {name for name, marks in namespaces.items() if all(w.has(marks.get(w.key)) for w in chosen)}
            where = frozenset({*term.namespaces, *selected})
            if not where:
                who = Population(where, None)
                return ALIASES.get(term.topology_key, term.topology_key), census.number(who)
    who = population(
        namespace,
        labels,
        term.label_selector,
        same=term.match_label_keys,
        different=term.mismatch_label_keys,
        namespaces=where,
    )
    return ALIASES.get(term.topology_key, term.topology_key), census.number(who)


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The ports of its node that a pod takes."""
    ports = {
        HostPort(
            port=port.host_port or (port.container_port if pod.spec.host_network else 0),
            protocol=port.protocol or "TCP",
            address="" if port.host_ip in ("", "0.0.0.0", "::") else port.host_ip,  # noqa: S104 - read, not bound
        )
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
    }
    return tuple(sorted((p for p in ports if p.port), key=lambda p: (p.port, p.protocol, p.address)))
