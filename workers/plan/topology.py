"""How evenly a plan spreads what asked to be spread: `topology` of packing-output/v1. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from wainwright.api.names import (
    ARCH_LABEL,
    CAPACITY_TYPE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    NODEPOOL_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)
from wainwright.api.nodes import Taint
from wainwright.api.pods import Pod, TopologySpreadConstraint
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Plan, PlannedClaim
from wainwright.scheduling.populations import Population, population
from wainwright.scheduling.requirements import ALIASES, Requirement, RequirementError
from wainwright.scheduling.shapes import Term, scheduling_terms
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.taints import tolerates
from wainwright.scheduling.universe import pool_requirements

Labels = Mapping[str, str]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One spread constraint after placement; pods that ran before are counted too.

    owners: pods of the plan's input that carry it. By host name only the largest number per node, and how many nodes
    carry one, are told; else counts per domain, skew (most less least over eligible domains), skew_new (the same over
    domains that got new pods).
    """

    type: str = "spread"
    key: str
    when: str
    max_skew: int
    selector: dict[str, object]
    owners: int
    selects_only_owners: bool
    min_domains: int | msgspec.UnsetType = msgspec.UNSET
    counts: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    eligible_domains: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    skew: int | msgspec.UnsetType = msgspec.UNSET
    skew_new: int | msgspec.UnsetType = msgspec.UNSET
    max_per_domain: int | msgspec.UnsetType = msgspec.UNSET
    domains: int | msgspec.UnsetType = msgspec.UNSET


class _Place(NamedTuple):
    """A node after the plan: its labels, taints, and the pods that ran there before and come now."""

    labels: Labels
    taints: Sequence[Taint]
    old: tuple[Pod, ...]
    new: tuple[Pod, ...]


class _Rule(NamedTuple):
    """A constraint, the pods that it counts, and those that carry it."""

    constraint: TopologySpreadConstraint
    counts: Population
    owners: list[Pod]


def spreads(snapshot: Snapshot, pods: Sequence[Pod], plan: Plan) -> tuple[Spread, ...]:
    """One entry per constraint (equal ones of equal pods are one), in the order of the pods."""
    rules: dict[bytes, _Rule] = {}
    for pod in pods:
        meta = pod.metadata
        for each in pod.spec.topology_spread_constraints:
            same = [(key, meta.labels.get(key)) for key in each.match_label_keys]
            text = _text((meta.namespace, each, same, *_node_side(each, pod)))
            if text not in rules:
                try:
                    counted = population(meta.namespace, meta.labels, each.label_selector, same=each.match_label_keys)
                except RequirementError:
                    continue  # such a pod is left out of the plan
                rules[text] = _Rule(each, counted, [])
            rules[text].owners.append(pod)
    if not rules:
        return ()
    places = _places(snapshot, pods, plan)
    offers = _Offers(snapshot)
    return tuple(_spread(rule, places, offers) for rule in rules.values())


_text = msgspec.json.Encoder(order="deterministic").encode


def _node_side(constraint: TopologySpreadConstraint, pod: Pod) -> tuple[object, ...]:
    """What of the pod decides which domains are eligible."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    terms = (pod.spec.node_selector, affinity.required if affinity is not None else None)
    return (
        terms if constraint.node_affinity_policy != "Ignore" else (),
        pod.spec.tolerations if constraint.node_taints_policy == "Honor" else (),
    )


def _places(snapshot: Snapshot, pods: Sequence[Pod], plan: Plan) -> list[_Place]:
    by_uid = {pod.uid: pod for pod in pods}
    onto: dict[str, list[Pod]] = {}
    for placement in plan.placements:
        onto.setdefault(placement.node, []).append(by_uid[placement.pod])
    places = []
    for node in snapshot.nodes:
        labels = {ALIASES.get(key, key): value for key, value in node.labels.items()} | node.labels
        labels.setdefault(HOSTNAME_LABEL, node.name)
        places.append(_Place(labels, node.taints, node.pods, tuple(onto.get(node.name, ()))))
    for number, claim in enumerate(plan.claims):
        labels = claim_labels(claim, snapshot.catalogs.get(claim.node_pool)) | {HOSTNAME_LABEL: f"claim/{number}"}
        places.append(_Place(labels, claim.taints, (), tuple(by_uid[uid] for uid in claim.pods)))
    return places


def claim_labels(claim: PlannedClaim, catalog: Catalog | None) -> dict[str, str]:
    """Labels that the node will carry when the claim is launched with its cheapest option."""
    first = claim.options[0]
    labels: dict[str, str] = {}
    if catalog is not None:
        kind = next((kind for kind in catalog.instance_types if kind.name == first.instance_type), None)
        if kind is not None:
            labels = {**kind.labels, ARCH_LABEL: kind.arch, OS_LABEL: kind.os[0]}
        if catalog.region:
            labels[REGION_LABEL] = catalog.region
    labels |= {
        INSTANCE_TYPE_LABEL: first.instance_type,
        ZONE_LABEL: first.zone,
        CAPACITY_TYPE_LABEL: first.capacity_type,
    }
    return labels | claim.labels


class _Offers:
    """Labels of all nodes that the NodePools could make, projected to the keys that a question is about."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[str, ...], list[tuple[Sequence[Taint], Labels]]] = {}

    def about(self, keys: Iterable[str]) -> list[tuple[Sequence[Taint], Labels]]:
        wanted = tuple(sorted(set(keys)))
        if wanted not in self._known:
            found: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Sequence[Taint], Labels]] = {}
            for pool in self._snapshot.node_pools:
                try:
                    requirements = pool_requirements(pool)
                except RequirementError:
                    continue
                taints = pool.spec.template.spec.taints
                for labels in _variants(self._snapshot.catalogs.get(pool.name), requirements, wanted):
                    found.setdefault((pool.name, tuple(sorted(labels.items()))), (taints, labels))
            self._known[wanted] = list(found.values())
        return self._known[wanted]


def _variants(catalog: Catalog | None, requirements: Mapping[str, Requirement], keys: Sequence[str]) -> list[Labels]:
    found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for kind in catalog.instance_types if catalog is not None else ():
        fixed = {**kind.labels, ARCH_LABEL: kind.arch, OS_LABEL: kind.os[0], INSTANCE_TYPE_LABEL: kind.name}
        if catalog is not None and catalog.region:
            fixed[REGION_LABEL] = catalog.region
        if any(key in requirements and not requirements[key].has(value) for key, value in fixed.items()):
            continue
        for offering in kind.offerings:
            own = {ZONE_LABEL: offering.zone, CAPACITY_TYPE_LABEL: offering.capacity_type}
            if any(key in requirements and not requirements[key].has(value) for key, value in own.items()):
                continue
            labels = {key: value for key, value in (fixed | own).items() if key in keys}
            found.setdefault(tuple(sorted(labels.items())), labels)
    results: list[Labels] = list(found.values())
    for key in keys:
        wanted = requirements.get(key)
        if wanted is None or wanted.complement or any(key in labels for labels in results):
            continue
        results = [{**labels, key: value} for labels in results for value in sorted(wanted.values)]
    return results


def _spread(rule: _Rule, places: Sequence[_Place], offers: _Offers) -> Spread:
    constraint, owners, owner = rule.constraint, rule.owners, rule.owners[0]
    key = ALIASES.get(constraint.topology_key, constraint.topology_key)
    try:
        terms = scheduling_terms(owner.spec) if constraint.node_affinity_policy != "Ignore" else ((),)
    except RequirementError:
        terms = ((),)
    honours_taints = constraint.node_taints_policy == "Honor"

    def eligible(labels: Labels, taints: Sequence[Taint]) -> bool:
        return _meets(terms, labels) and (not honours_taints or tolerates(owner.spec.tolerations, taints))

    def counted(pod: Pod) -> bool:
        return rule.counts.has(pod.metadata.namespace, pod.metadata.labels)

    uids = {pod.uid for pod in owners}
    counts: Counter[str] = Counter()
    fresh: set[str] = set()
    possible: set[str] = set()
    only_owners = True
    for place in places:
        domain = place.labels.get(key)
        if domain is None or not eligible(place.labels, place.taints):
            continue
        possible.add(domain)
        new = [pod for pod in place.new if counted(pod)]
        only_owners = only_owners and all(pod.uid in uids for pod in new)
        total = len(new) + sum(counted(pod) for pod in place.old if not pod.is_terminal and not pod.is_terminating)
        if total:
            counts[domain] += total
        if new:
            fresh.add(domain)
    base = Spread(
        key=key,
        when=constraint.when_unsatisfiable,
        max_skew=constraint.max_skew,
        selector=_selector(constraint, owner.metadata.labels),
        owners=len(owners),
        selects_only_owners=only_owners,
        min_domains=msgspec.UNSET if constraint.min_domains is None else constraint.min_domains,
    )
    if key == HOSTNAME_LABEL:
        return msgspec.structs.replace(base, max_per_domain=max(counts.values(), default=0), domains=len(counts))
    asked = {key, *(wanted.key for term in terms for wanted in term)}
    for taints, labels in offers.about(asked | {NODEPOOL_LABEL} if honours_taints else asked):
        if key in labels and eligible(labels, taints):
            possible.add(labels[key])
    return msgspec.structs.replace(
        base,
        counts=dict(sorted(counts.items())),
        eligible_domains=tuple(sorted(possible)),
        skew=_skew(counts, possible),
        skew_new=_skew(counts, fresh),
    )


def _skew(counts: Counter[str], domains: Iterable[str]) -> int:
    numbers = [counts[domain] for domain in domains]
    return max(numbers, default=0) - min(numbers, default=0)


def _meets(terms: Sequence[Term], labels: Labels) -> bool:
    return any(all(wanted.has(labels.get(wanted.key)) for wanted in term) for term in terms)


def _selector(constraint: TopologySpreadConstraint, labels: Labels) -> dict[str, object]:
    selector = constraint.label_selector
    shown: dict[str, object] = msgspec.to_builtins(selector) if selector is not None else {}
    same = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    both = {**(selector.match_labels if selector is not None else {}), **same}
    return {**shown, "matchLabels": both} if both else shown
