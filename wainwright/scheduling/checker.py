"""Judges a plan against its input, rule by rule. Shares no code with the solver, so that one fault cannot hide another.

It reads labels as plain dictionaries and amounts as exact fractions, and asks of each pod the question that the
kubelet, the scheduler and the cloud would ask. It is slow and simple on purpose.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from wainwright.api.daemonsets import DaemonSet
from wainwright.api.meta import LabelSelector
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Taint
from wainwright.api.pods import Container, Pod, PodAffinityTerm, PodSpec, Quantity, TopologySpreadConstraint
from wainwright.scheduling.instance_types import InstanceType, Offering
from wainwright.scheduling.plan import Plan, PlannedClaim
from wainwright.scheduling.snapshot import NodeState, Option, Snapshot

Labels = Mapping[str, str]
Amounts = dict[str, Fraction]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
OTHER_NAMES = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "topology.ebs.csi.aws.com/zone": ZONE,
    "topology.gke.io/zone": ZONE,
}
PASSING_TAINTS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "karpenter.sh/unregistered",
    "karpenter.sh/not-ready",
)


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """rule: a short word; where: the claim (`claim/INDEX`), node or pod; message: what is wrong, with values."""

    rule: str
    where: str
    message: str


def check(snapshot: Snapshot, pods: Sequence[Pod], plan: Plan) -> list[Violation]:
    """Every rule that the plan breaks; an empty list for a valid plan."""
    return list(_Check(snapshot, pods, plan).violations())


# -- amounts ---------------------------------------------------------------------------------------------------------

_SUFFIXES = {
    **{s: Fraction(1000) ** p for p, s in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)},
    **{s: Fraction(1024) ** p for p, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


class _Unreadable(ValueError):
    """A field that cannot be understood."""


def _quantity(name: str, raw: Quantity) -> Fraction:
    """Cpu in milli, the rest in units, exact."""
    text = str(raw)
    found = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,4})|([A-Za-z]{0,2}))", text)
    if not name or found is None or (found[3] or "") not in _SUFFIXES:
        raise _Unreadable(text)
    value = Fraction(found[1]) * (Fraction(10) ** int(found[2][1:]) if found[2] else _SUFFIXES[found[3] or ""])
    if value < 0:
        raise _Unreadable(text)
    return value * 1000 if name == "cpu" else value


def _asked(container: Container) -> Amounts:
    limits = {n: _quantity(n, q) for n, q in container.resources.limits.items()}
    return limits | {n: _quantity(n, q) for n, q in container.resources.requests.items()}


def _plus(*parts: Mapping[str, Fraction]) -> Amounts:
    names = {name for part in parts for name in part}
    return {name: sum((part.get(name, Fraction(0)) for part in parts), Fraction(0)) for name in names}


def _largest(*parts: Mapping[str, Fraction]) -> Amounts:
    names = {name for part in parts for name in part}
    return {name: max(part.get(name, Fraction(0)) for part in parts) for name in names}


def _requests(spec: PodSpec) -> Amounts:
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, _asked(container))
            peaks.append(sidecars)
        else:
            peaks.append(_plus(sidecars, _asked(container)))
    total = _largest(_plus(sidecars, *(_asked(c) for c in spec.containers)), *peaks)
    if spec.resources is not None:
        own = {n: _quantity(n, q) for n, q in spec.resources.requests.items()}
        limits = {n: _quantity(n, q) for n, q in spec.resources.limits.items() if n not in own and n not in total}
        total |= {n: q for n, q in (own | limits).items() if n in ("cpu", "memory") or n.startswith("hugepages-")}
    total = _plus(total, {n: _quantity(n, q) for n, q in spec.overhead.items()})
    total["pods"] = Fraction(1)
    return total


# -- labels, selectors, taints -----------------------------------------------------------------------------------------


def _meets(labels: Labels, key: str, operator: str, values: Sequence[str]) -> bool:
    value = labels.get(key)
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            try:
                have, want = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return {"Gt": have > want, "Lt": have < want, "Gte": have >= want, "Lte": have <= want}[operator]
        case _:
            pass
    raise _Unreadable(f"{key} {operator}")


def _node_meets(labels: Labels, key: str, operator: str, values: Sequence[str]) -> bool:
    return _meets(labels, OTHER_NAMES.get(key, key), operator, values)


def _selected_by_node_side(spec: PodSpec, labels: Labels) -> bool:
    if any(labels.get(OTHER_NAMES.get(k, k)) != v for k, v in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(
        (term.match_expressions or term.match_fields)
        and all(_node_meets(labels, e.key, e.operator, e.values) for e in (*term.match_expressions, *term.match_fields))
        for term in affinity.required.node_selector_terms
    )


def _untolerated(spec: PodSpec, taints: Iterable[Taint]) -> list[Taint]:
    def tolerated(taint: Taint) -> bool:
        for t in spec.tolerations:
            same_effect = t.effect in ("", taint.effect)
            if t.operator == "Exists":
                if same_effect and t.key in ("", taint.key):
                    return True
            elif same_effect and t.key == taint.key and t.value == taint.value and t.key:
                return True
        return False

    return [t for t in taints if t.effect in ("NoSchedule", "NoExecute") and not tolerated(t)]


def _selects(selector: LabelSelector | None, labels: Labels) -> bool:
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _meets(labels, e.key, e.operator, e.values) for e in selector.match_expressions
    )


class _Place(msgspec.Struct, kw_only=True, eq=False):
    """A node, existing or planned. variants: the labels it may come to carry, one set per option."""

    name: str
    variants: list[dict[str, str]]
    existing: bool
    old: list[Pod] = []
    new: list[Pod] = []

    def domain(self, key: str) -> str | None:
        """The one value of a key, None if the label is missing or not decided yet."""
        if key == HOST:
            return self.name
        values = {labels.get(key) for labels in self.variants}
        return values.pop() if len(values) == 1 else None

    def possible(self, key: str) -> set[str]:
        if key == HOST:
            return {self.name}
        return {labels[key] for labels in self.variants if key in labels}


class _Check:
    def __init__(self, snapshot: Snapshot, pods: Sequence[Pod], plan: Plan) -> None:
        self.snapshot, self.plan = snapshot, plan
        self.pods = {pod.uid: pod for pod in pods}
        self.pools = {pool.name: pool for pool in snapshot.node_pools}
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.types = {
            name: {kind.name: kind for kind in catalog.instance_types} for name, catalog in snapshot.catalogs.items()
        }
        self.places: list[_Place] = []
        self._request_memo: dict[str, Amounts | None] = {}
        self._text_memo: dict[str, str] = {}
        self._host_memo: dict[tuple[str, str, str], bool] = {}

    def violations(self) -> Iterator[Violation]:
        yield from self._each_once()
        for index, claim in enumerate(self.plan.claims):
            yield from self._claim(f"claim/{index}", claim)
        yield from self._limits()
        yield from self._reservations()
        yield from self._existing()
        yield from self._ports()
        yield from self._topology()
        yield from self._unplaced()
        total = sum(claim.options[0].price for claim in self.plan.claims if claim.options)
        if abs(total - self.plan.price) > 1e-6:
            yield Violation(rule="price", where="plan", message=f"says {self.plan.price}, its claims come to {total}")

    # -- bookkeeping --

    def _text(self, pod: Pod) -> str:
        text = self._text_memo.get(pod.uid)
        if text is None:
            text = msgspec.json.encode(pod.spec).decode()
            self._text_memo[pod.uid] = text
        return text

    def _need(self, pod: Pod) -> Amounts | None:
        text = self._text(pod)
        if text not in self._request_memo:
            try:
                self._request_memo[text] = _requests(pod.spec)
            except _Unreadable:
                self._request_memo[text] = None
        return self._request_memo[text]

    def _each_once(self) -> Iterator[Violation]:
        seen = Counter(
            [
                *(uid for claim in self.plan.claims for uid in claim.pods),
                *(placement.pod for placement in self.plan.placements),
                *(left.pod for left in self.plan.unplaced),
            ]
        )
        for uid in self.pods:
            if seen[uid] != 1:
                yield Violation(rule="once", where=uid, message=f"is in the plan {seen[uid]} times")
        for uid in seen:
            if uid not in self.pods:
                yield Violation(rule="once", where=uid, message="is no pod of the input")

    # -- new nodes --

    def _offering(self, kind: InstanceType, option: Option) -> Offering | None:
        for offering in kind.offerings:
            if (offering.zone, offering.capacity_type, offering.reservation_id) == (
                option.zone,
                option.capacity_type,
                option.reservation_id,
            ):
                return offering
        return None

    def _sold_out(self, option: Option) -> bool:
        def same(pattern: str, value: str) -> bool:
            return pattern in ("*", value)

        return any(
            same(u.capacity_type, option.capacity_type)
            and same(u.instance_type, option.instance_type)
            and same(u.zone, option.zone)
            for u in self.snapshot.unavailable
        )

    def _labels_of(self, pool: NodePool, kind: InstanceType, option: Option, given: Labels) -> dict[str, str]:
        labels = dict(kind.labels)
        region = self.snapshot.catalogs[pool.name].region
        if region:
            labels.setdefault("topology.kubernetes.io/region", region)
        labels |= {
            "kubernetes.io/arch": kind.arch,
            "node.kubernetes.io/instance-type": kind.name,
            ZONE: option.zone,
            "karpenter.sh/capacity-type": option.capacity_type,
        }
        if len(kind.os) == 1:
            labels["kubernetes.io/os"] = kind.os[0]
        return labels | dict(given)

    def _claim(self, where: str, claim: PlannedClaim) -> Iterator[Violation]:
        pool = self.pools.get(claim.node_pool)
        if pool is None or not claim.options or not claim.pods:
            yield Violation(rule="claim", where=where, message="has no known NodePool, no option or no pod")
            return
        template = pool.spec.template
        prices = [option.price for option in claim.options]
        if prices != sorted(prices):
            yield Violation(rule="options", where=where, message=f"are not cheapest first: {prices}")
        if len(set(claim.options)) != len(claim.options):
            yield Violation(rule="options", where=where, message="name one offering twice")
        for key, value in template.metadata.labels.items():
            if claim.labels.get(key) != value:
                yield Violation(rule="labels", where=where, message=f"lacks the template's {key}={value}")
        members = [self.pods[uid] for uid in claim.pods if uid in self.pods]
        place = _Place(name=where, variants=[], existing=False, new=members)
        self.places.append(place)
        kinds: dict[str, InstanceType] = {}
        for option in claim.options:
            kind = self.types[pool.name].get(option.instance_type)
            offering = self._offering(kind, option) if kind is not None else None
            if kind is None or offering is None or not offering.available or self._sold_out(option):
                yield Violation(rule="options", where=where, message=f"{option} cannot be had")
                continue
            if offering.price != option.price:
                yield Violation(rule="price", where=where, message=f"{option} costs {offering.price}")
            kinds[kind.name] = kind
            labels = self._labels_of(pool, kind, option, claim.labels)
            place.variants.append(labels)
            yield from self._option(where, pool, kind, labels, members)
        yield from self._min_values(where, pool, place.variants)
        if kinds:
            yield from self._stated(where, claim, list(kinds.values()))
        for pod in {self._text(pod): pod for pod in members}.values():
            refused = _untolerated(pod.spec, template.spec.taints)
            if refused:
                yield Violation(rule="taints", where=where, message=f"{pod.key} does not tolerate {refused[0].key}")
        yield from self._weight(where, pool, members)

    def _option(
        self, where: str, pool: NodePool, kind: InstanceType, labels: dict[str, str], members: Sequence[Pod]
    ) -> Iterator[Violation]:
        for r in pool.spec.template.spec.requirements:
            key = OTHER_NAMES.get(r.key, r.key)
            several = key == "kubernetes.io/os" and key not in labels
            met = (
                any(_meets({key: system}, key, r.operator, r.values) for system in kind.os)
                if several
                else _meets(labels, key, r.operator, r.values)
            )
            if not met:
                yield Violation(
                    rule="pool", where=where, message=f"{kind.name} ({labels.get(key)}) breaks {r.key} {r.operator}"
                )
        for pod in {self._text(pod): pod for pod in members}.values():
            if not _selected_by_node_side(pod.spec, labels):
                yield Violation(rule="selector", where=where, message=f"{pod.key} does not accept {kind.name} {labels}")
            yield from self._volume_places(where, pod, labels)
        needs = [need for pod in members if (need := self._need(pod)) is not None]
        total = _plus(*needs, *self._daemons(pool, labels))
        for name, amount in total.items():
            room = kind.capacity.get(name, 0) - kind.overhead.get(name, 0)
            if amount > room:
                yield Violation(rule="resources", where=where, message=f"{kind.name}: {name} {float(amount)} of {room}")

    def _daemons(self, pool: NodePool, labels: Labels) -> list[Amounts]:
        found = []
        for daemon in self.snapshot.daemon_sets:
            spec = daemon.spec.template.spec
            if not _untolerated(spec, pool.spec.template.spec.taints) and _selected_by_node_side(spec, labels):
                need = self._daemon_need(daemon)
                if need is not None:
                    found.append(need)
        return found

    def _daemon_need(self, daemon: DaemonSet) -> Amounts | None:
        try:
            return _requests(daemon.spec.template.spec)
        except _Unreadable:
            return None

    def _min_values(self, where: str, pool: NodePool, variants: Sequence[Labels]) -> Iterator[Violation]:
        if self.snapshot.min_values_policy == "BestEffort":
            return
        for r in pool.spec.template.spec.requirements:
            values = {labels[r.key] for labels in variants if r.key in labels}
            if r.min_values is not None and len(values) < r.min_values:
                yield Violation(
                    rule="min-values", where=where, message=f"{r.key} keeps {len(values)} of {r.min_values} values"
                )

    def _stated(self, where: str, claim: PlannedClaim, kinds: Sequence[InstanceType]) -> Iterator[Violation]:
        for name in {name for kind in kinds for name in kind.capacity}:
            most = max(kind.capacity.get(name, 0) for kind in kinds)
            least = min(kind.capacity.get(name, 0) - kind.overhead.get(name, 0) for kind in kinds)
            if claim.capacity.get(name, 0) != most or claim.allocatable.get(name, 0) != least:
                yield Violation(
                    rule="stated",
                    where=where,
                    message=f"{name}: capacity {claim.capacity.get(name)} (is {most}), "
                    f"allocatable {claim.allocatable.get(name)} (is {least})",
                )

    def _weight(self, where: str, pool: NodePool, members: Sequence[Pod]) -> Iterator[Violation]:
        heavier = [
            p
            for p in self.pools.values()
            if (p.spec.weight or 0) > (pool.spec.weight or 0)
            and all(taint.effect != "PreferNoSchedule" for taint in p.spec.template.spec.taints)
        ]
        if not heavier or any(p.spec.limits for p in heavier) or any(_has_rules(pod) for pod in members):
            return
        if any(pod.spec.affinity is not None and pod.spec.affinity.node_affinity is not None for pod in members):
            return
        if all(any(self._could_take(p, pod) for p in heavier) for pod in members):
            yield Violation(
                rule="weight", where=where, message=f"all its pods could go to a NodePool above {pool.name}"
            )

    def _could_take(self, pool: NodePool, pod: Pod) -> bool:
        need = self._need(pod)
        if need is None or _untolerated(pod.spec, pool.spec.template.spec.taints):
            return False
        if any(r.min_values for r in pool.spec.template.spec.requirements):
            return False
        for kind in self.types.get(pool.name, {}).values():
            for offering in kind.offerings:
                option = Option(
                    instance_type=kind.name,
                    zone=offering.zone,
                    capacity_type=offering.capacity_type,
                    price=offering.price,
                    reservation_id=offering.reservation_id,
                )
                if not offering.available or self._sold_out(option) or offering.capacity_type == "reserved":
                    continue
                given = dict(pool.spec.template.metadata.labels) | {"karpenter.sh/nodepool": pool.name}
                labels = self._labels_of(pool, kind, option, given)
                if "kubernetes.io/os" not in labels:
                    continue
                total = _plus(need, *self._daemons(pool, labels))
                if any(a > kind.capacity.get(n, 0) - kind.overhead.get(n, 0) for n, a in total.items()):
                    continue
                if not all(
                    _meets(labels, OTHER_NAMES.get(r.key, r.key), r.operator, r.values)
                    for r in pool.spec.template.spec.requirements
                ):
                    continue
                if _selected_by_node_side(pod.spec, labels) and not [*self._volume_places("", pod, labels)]:
                    return True
        return False

    def _limits(self) -> Iterator[Violation]:
        for pool in self.pools.values():
            mine = [node for node in self.snapshot.nodes if node.node_pool == pool.name]
            claims = [claim for claim in self.plan.claims if claim.node_pool == pool.name]
            if not claims:
                continue
            for name, raw in pool.spec.limits.items():
                limit = _quantity(name, raw)
                if name == "nodes":
                    total = len(mine) + len(claims)
                else:
                    total = sum(node.capacity.get(name, 0) for node in mine)
                    for claim in claims:
                        kinds = {option.instance_type for option in claim.options}
                        total += max(self.types[pool.name][kind].capacity.get(name, 0) for kind in kinds)
                if total > limit:
                    yield Violation(rule="limits", where=pool.name, message=f"{name}: {total} of {limit}")

    def _reservations(self) -> Iterator[Violation]:
        taken: Counter[str] = Counter()
        for claim in self.plan.claims:
            taken.update({o.reservation_id for o in claim.options if o.capacity_type == "reserved"})
        room = {
            offering.reservation_id: offering.reservation_capacity
            for catalog in self.snapshot.catalogs.values()
            for kind in catalog.instance_types
            for offering in kind.offerings
            if offering.capacity_type == "reserved"
        }
        for reservation, count in taken.items():
            if count > room.get(reservation, 0):
                yield Violation(rule="reserved", where=reservation, message=f"{count} claims of {room[reservation]}")

    # -- nodes that exist --

    def _existing(self) -> Iterator[Violation]:
        onto: dict[str, list[Pod]] = defaultdict(list)
        for placement in self.plan.placements:
            if placement.node not in self.nodes:
                yield Violation(rule="node", where=placement.node, message="does not exist")
            elif placement.pod in self.pods:
                onto[placement.node].append(self.pods[placement.pod])
                node = self.nodes[placement.node]
                if placement.claim != (node.claim if node.in_flight else ""):
                    yield Violation(rule="node", where=node.name, message=f"has claim {node.claim!r}, not as placed")
        for node in self.snapshot.nodes:
            labels = {OTHER_NAMES.get(k, k): v for k, v in node.labels.items()} | dict(node.labels)
            labels.setdefault(HOST, node.name)
            place = _Place(
                name=labels[HOST],
                variants=[labels],
                existing=True,
                old=[pod for pod in node.pods if pod.status.phase not in ("Succeeded", "Failed")],
                new=onto[node.name],
            )
            self.places.append(place)
            if place.new:
                yield from self._onto(node, labels, place)

    def _onto(self, node: NodeState, labels: dict[str, str], place: _Place) -> Iterator[Violation]:
        if not node.accepts:
            yield Violation(rule="node", where=node.name, message="takes no new pods")
        taints = self._lasting(node)
        for pod in place.new:
            refused = _untolerated(pod.spec, taints)
            if refused:
                yield Violation(rule="taints", where=node.name, message=f"{pod.key} does not tolerate {refused[0].key}")
            if not _selected_by_node_side(pod.spec, labels | {"metadata.name": node.name}):
                yield Violation(rule="selector", where=node.name, message=f"{pod.key} does not accept its labels")
            yield from self._volume_places(node.name, pod, labels)
        yield from self._attachments(node, place)
        needs = [need for pod in (*place.old, *place.new) if (need := self._need(pod)) is not None]
        running = {
            (pod.metadata.namespace, owner.name)
            for pod in place.old
            for owner in pod.metadata.owner_references
            if owner.kind == "DaemonSet"
        }
        known = {(d.metadata.namespace, d.metadata.name) for d in self.snapshot.daemon_sets}
        strangers = _plus(
            *(
                need
                for pod in place.old
                if any(
                    o.kind == "DaemonSet" and (pod.metadata.namespace, o.name) not in known
                    for o in pod.metadata.owner_references
                )
                and (need := self._need(pod)) is not None
            )
        )
        missing = _plus(
            *(
                need
                for daemon in self.snapshot.daemon_sets
                if (daemon.metadata.namespace, daemon.metadata.name) not in running
                and not _untolerated(daemon.spec.template.spec, taints)
                and _selected_by_node_side(daemon.spec.template.spec, labels | {"metadata.name": node.name})
                and (need := self._daemon_need(daemon)) is not None
            )
        )
        rest = {n: max(amount - strangers.get(n, Fraction(0)), Fraction(0)) for n, amount in missing.items()}
        asked = {n for pod in place.new for n in (self._need(pod) or {})}
        for name, amount in _plus(*needs, rest).items():
            if name in asked and amount > node.allocatable.get(name, 0):
                yield Violation(
                    rule="resources",
                    where=node.name,
                    message=f"{name}: {float(amount)} of {node.allocatable.get(name, 0)}",
                )

    def _lasting(self, node: NodeState) -> list[Taint]:
        pool = self.pools.get(node.node_pool)
        startup = {(t.key, t.effect) for t in pool.spec.template.spec.startup_taints} if pool is not None else set()
        starting = node.in_flight or not node.initialized
        return [
            t
            for t in node.taints
            if not (starting and (t.key in PASSING_TAINTS or (t.key, t.effect) in startup))
            and not (node.node_pool and t.key in PASSING_TAINTS and t.key.startswith("karpenter.sh/"))
        ]

    # -- volumes, ports --

    def _volume_places(self, where: str, pod: Pod, labels: Labels) -> Iterator[Violation]:
        for claim_name, storage_class in self._volume_claims(pod):
            claim = next((c for c in self.snapshot.persistent_volume_claims if c.metadata.key == claim_name), None)
            volume_name = claim.spec.volume_name if claim is not None else ""
            if volume_name:
                volume = next((v for v in self.snapshot.persistent_volumes if v.metadata.name == volume_name), None)
                affinity = volume.spec.node_affinity if volume is not None else None
                if volume is None:
                    yield Violation(rule="volumes", where=where, message=f"{pod.key}: {volume_name} does not exist")
                elif affinity is not None and affinity.required is not None:
                    terms = affinity.required.node_selector_terms
                    if not any(
                        all(_node_meets(labels, e.key, e.operator, e.values) for e in t.match_expressions)
                        for t in terms
                    ):
                        yield Violation(rule="volumes", where=where, message=f"{pod.key}: {volume_name} is elsewhere")
                continue
            name = claim.spec.storage_class_name if claim is not None else storage_class
            kind = next((s for s in self.snapshot.storage_classes if s.metadata.name == name), None)
            if (
                kind is not None
                and kind.allowed_topologies
                and not any(
                    all(_node_meets(labels, e.key, "In", e.values) for e in t.match_label_expressions)
                    for t in kind.allowed_topologies
                )
            ):
                yield Violation(rule="volumes", where=where, message=f"{pod.key}: {name} has no volumes there")

    def _volume_claims(self, pod: Pod) -> Iterator[tuple[str, str | None]]:
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                yield f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}", None
            elif volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
                raw = volume.ephemeral.volume_claim_template.spec.get("storageClassName")
                name = f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"
                yield name, raw if isinstance(raw, str) else None

    def _attachments(self, node: NodeState, place: _Place) -> Iterator[Violation]:
        csi = next((c for c in self.snapshot.csi_nodes if c.metadata.name == node.name), None)
        if csi is None:
            return
        attached: dict[str, set[str]] = defaultdict(set)
        for pod in (*place.old, *place.new):
            for claim_name, storage_class in self._volume_claims(pod):
                claim = next((c for c in self.snapshot.persistent_volume_claims if c.metadata.key == claim_name), None)
                volume = next(
                    (
                        v
                        for v in self.snapshot.persistent_volumes
                        if claim is not None and v.metadata.name == claim.spec.volume_name
                    ),
                    None,
                )
                if volume is not None:
                    driver = volume.spec.csi.driver if volume.spec.csi is not None else ""
                else:
                    name = claim.spec.storage_class_name if claim is not None else storage_class
                    kind = next((s for s in self.snapshot.storage_classes if s.metadata.name == name), None)
                    driver = kind.provisioner if kind is not None else ""
                attached[driver].add(claim_name)
        for each in csi.spec.drivers:
            limit = each.allocatable.count if each.allocatable is not None else None
            if limit is not None and len(attached[each.name]) > limit:
                yield Violation(
                    rule="volumes", where=node.name, message=f"{each.name}: {len(attached[each.name])} of {limit}"
                )

    def _ports(self) -> Iterator[Violation]:
        for place in self.places:
            taken: list[tuple[int, str, str]] = []
            for fresh, pod in (*((False, p) for p in place.old), *((True, p) for p in place.new)):
                mine: set[tuple[int, str, str]] = set()
                for container in (*pod.spec.containers, *pod.spec.init_containers):
                    for port in container.ports:
                        number = port.host_port or (port.container_port if pod.spec.host_network else 0)
                        if number:
                            mine.add((number, port.protocol or "TCP", port.host_ip))
                for number, protocol, address in mine:
                    wild = ("", "0.0.0.0", "::")  # noqa: S104 - read, not bound
                    if fresh and any(
                        n == number and p == protocol and (a == address or a in wild or address in wild)
                        for n, p, a in taken
                    ):
                        yield Violation(
                            rule="host-ports", where=place.name, message=f"{pod.key}: port {number}/{protocol} is taken"
                        )
                taken.extend(mine)

    # -- rules about other pods --

    def _topology(self) -> Iterator[Violation]:
        seen: set[str] = set()
        for place in self.places:
            for pod in place.new:
                for constraint in pod.spec.topology_spread_constraints:
                    if constraint.when_unsatisfiable == "ScheduleAnyway":
                        continue
                    text = repr((constraint, pod.metadata.namespace, self._chosen_labels(constraint, pod)))
                    text += self._node_side_text(constraint, pod)
                    if text not in seen:
                        seen.add(text)
                        yield from self._spread(constraint, pod)
        yield from self._anti_affinity()
        yield from self._affinity()

    @staticmethod
    def _chosen_labels(constraint: TopologySpreadConstraint, pod: Pod) -> list[tuple[str, str]]:
        return [(key, pod.metadata.labels[key]) for key in constraint.match_label_keys if key in pod.metadata.labels]

    @staticmethod
    def _node_side_text(constraint: TopologySpreadConstraint, pod: Pod) -> str:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        text = ""
        if constraint.node_affinity_policy != "Ignore":
            text += repr((sorted(pod.spec.node_selector.items()), affinity.required if affinity is not None else None))
        if constraint.node_taints_policy == "Honor":
            text += repr(pod.spec.tolerations)
        return text

    def _spread(self, constraint: TopologySpreadConstraint, owner: Pod) -> Iterator[Violation]:
        key = OTHER_NAMES.get(constraint.topology_key, constraint.topology_key)
        same = self._chosen_labels(constraint, owner)

        def counted(pod: Pod) -> bool:
            return (
                pod.metadata.namespace == owner.metadata.namespace
                and _selects(constraint.label_selector, pod.metadata.labels)
                and all(pod.metadata.labels.get(k) == v for k, v in same)
            )

        def owns(pod: Pod) -> bool:
            return any(
                repr((c, pod.metadata.namespace, self._chosen_labels(c, pod))) + self._node_side_text(c, pod)
                == repr((constraint, owner.metadata.namespace, same)) + self._node_side_text(constraint, owner)
                for c in pod.spec.topology_spread_constraints
            )

        old: Counter[str] = Counter()
        owners: Counter[str] = Counter()
        others: Counter[str] = Counter()
        strangers: set[str] = set()
        for place in self.places:
            domain = place.domain(key)
            eligible = key == HOST or self._eligible(constraint, owner, place)
            for pod in place.old:
                if domain is not None and eligible and counted(pod) and pod.metadata.deletion_timestamp is None:
                    old[domain] += 1
            for pod in place.new:
                mine = owns(pod)
                if mine and domain is None:
                    yield Violation(
                        rule="topology-spread", where=place.name, message=f"{pod.key}: {key} is missing or left open"
                    )
                if domain is None or not eligible:
                    continue
                if counted(pod):
                    (owners if mine else others)[domain] += 1
                elif mine:
                    strangers.add(domain)
        domains = set() if key == HOST else self._domains(key, constraint, owner)
        if len(domains) < (constraint.min_domains or 1):
            domains = set()
        if not _could_come_in_order(old, owners, others, strangers, domains, constraint.max_skew):
            yield Violation(
                rule="topology-spread",
                where=owner.key,
                message=f"{key}: no order keeps skew within {constraint.max_skew}: {dict(old)} there before, "
                f"{dict(owners)} bound by the rule, {dict(others)} more that it counts, over {sorted(domains)}",
            )

    def _eligible(self, constraint: TopologySpreadConstraint, owner: Pod, place: _Place) -> bool:
        if constraint.node_affinity_policy != "Ignore" and not any(
            _selected_by_node_side(owner.spec, labels) for labels in place.variants
        ):
            return False
        if constraint.node_taints_policy == "Honor":
            return not _untolerated(owner.spec, self._taints_of(place))
        return True

    def _taints_of(self, place: _Place) -> list[Taint]:
        if place.existing:
            node = next(n for n in self.snapshot.nodes if n.labels.get(HOST, n.name) == place.name)
            return self._lasting(node)
        claim = self.plan.claims[int(place.name.removeprefix("claim/"))]
        return list(self.pools[claim.node_pool].spec.template.spec.taints)

    def _domains(self, key: str, constraint: TopologySpreadConstraint, owner: Pod) -> set[str]:
        found = {
            domain
            for place in self.places
            if (domain := place.domain(key)) is not None and self._eligible(constraint, owner, place)
        }
        for pool in self.pools.values():
            if constraint.node_taints_policy == "Honor" and _untolerated(owner.spec, pool.spec.template.spec.taints):
                continue
            for labels in self._all_labels(pool):
                if key in labels and (
                    constraint.node_affinity_policy == "Ignore" or _selected_by_node_side(owner.spec, labels)
                ):
                    found.add(labels[key])
        return found

    def _all_labels(self, pool: NodePool) -> Iterator[dict[str, str]]:
        given = dict(pool.spec.template.metadata.labels) | {"karpenter.sh/nodepool": pool.name}
        lists = [given]
        for r in pool.spec.template.spec.requirements:
            if r.operator == "In" and not any(r.key in kind.labels for kind in self.types[pool.name].values()):
                if r.key in (ZONE, "karpenter.sh/capacity-type", "kubernetes.io/arch", "kubernetes.io/os"):
                    continue
                if r.key in ("node.kubernetes.io/instance-type", "topology.kubernetes.io/region"):
                    continue
                lists = [labels | {r.key: value} for labels in lists for value in r.values]
        for kind in self.types[pool.name].values():
            for offering in kind.offerings:
                option = Option(
                    instance_type=kind.name, zone=offering.zone, capacity_type=offering.capacity_type, price=0.0
                )
                if not offering.available or self._sold_out(option):
                    continue
                for extra in lists:
                    for system in kind.os:
                        labels = self._labels_of(pool, kind, option, extra) | {"kubernetes.io/os": system}
                        if all(
                            _meets(labels, OTHER_NAMES.get(r.key, r.key), r.operator, r.values)
                            for r in pool.spec.template.spec.requirements
                        ):
                            yield labels

    def _term_takes(self, term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        if term.namespaces or term.namespace_selector is not None:
            inside = namespace in term.namespaces or (
                term.namespace_selector is not None
                and (
                    not (term.namespace_selector.match_labels or term.namespace_selector.match_expressions)
                    or _selects(term.namespace_selector, self.snapshot.namespaces.get(namespace, {}))
                )
            )
        else:
            inside = namespace == owner.metadata.namespace
        mine = owner.metadata.labels
        return (
            inside
            and _selects(term.label_selector, labels)
            and all(labels.get(k) == mine[k] for k in term.match_label_keys if k in mine)
            and all(labels.get(k) != mine[k] for k in term.mismatch_label_keys if k in mine)
        )

    def _anti_affinity(self) -> Iterator[Violation]:
        for place in self.places:
            for fresh, owner in (*((False, p) for p in place.old), *((True, p) for p in place.new)):
                side = owner.spec.affinity.pod_anti_affinity if owner.spec.affinity is not None else None
                for term in side.required if side is not None else ():
                    key = OTHER_NAMES.get(term.topology_key, term.topology_key)
                    domains = place.possible(key)
                    for other in self.places if key != HOST else [place]:
                        if not domains & other.possible(key):
                            continue
                        candidates = [*(other.old if fresh else ()), *other.new]
                        for pod in candidates:
                            if pod is not owner and self._term_takes(term, owner, pod):
                                yield Violation(
                                    rule="pod-anti-affinity",
                                    where=place.name,
                                    message=f"{owner.key} and {pod.key} may share {key} {sorted(domains)}",
                                )
                                break

    def _affinity(self) -> Iterator[Violation]:
        first: dict[str, set[str | None]] = defaultdict(set)
        for place in self.places:
            for owner in {self._text(p) + repr(p.metadata.labels): p for p in place.new}.values():
                side = owner.spec.affinity.pod_affinity if owner.spec.affinity is not None else None
                for term in side.required if side is not None else ():
                    key = OTHER_NAMES.get(term.topology_key, term.topology_key)
                    domain = place.domain(key)
                    found: set[str | None] = set()
                    before = False
                    for other in self.places:
                        if any(
                            pod is not owner and self._term_takes(term, owner, pod) for pod in (*other.old, *other.new)
                        ):
                            found.add(other.domain(key))
                        before = before or any(self._term_takes(term, owner, pod) for pod in other.old)
                    alone = domain is not None and domain not in found
                    if alone and not before and self._term_takes(term, owner, owner):
                        # It can have come first, but only one domain can have been the first.
                        firsts = first[repr((term, owner.metadata.namespace))]
                        firsts.add(domain)
                        alone = len(firsts) > 1
                    if domain is None or alone:
                        yield Violation(
                            rule="pod-affinity",
                            where=place.name,
                            message=f"{owner.key} is in {key} {domain}, its company in {sorted(map(str, found))}",
                        )

    # -- pods left out --

    def _refused_by_others(self, pod: Pod) -> bool:
        for place in self.places:
            for other in (*place.old, *place.new):
                side = other.spec.affinity.pod_anti_affinity if other.spec.affinity is not None else None
                if side is not None and any(self._term_takes(term, other, pod) for term in side.required):
                    return True
        return False

    def _unplaced(self) -> Iterator[Violation]:
        free = not any(
            pool.spec.limits or any(r.min_values for r in pool.spec.template.spec.requirements)
            for pool in self.pools.values()
        )
        asked: dict[str, bool] = {}
        for left in self.plan.unplaced:
            if not left.reasons:
                yield Violation(rule="reasons", where=left.pod, message="is left out without a reason")
            pod = self.pods.get(left.pod)
            if pod is None or not free or _has_rules(pod) or not self.plan.complete or self._refused_by_others(pod):
                continue
            if any(reason.code in ("volumes", "invalid", "reserved") for reason in left.reasons):
                continue
            text = self._text(pod)
            if text not in asked:
                asked[text] = any(self._could_take(pool, pod) for pool in self.pools.values())
            if asked[text]:
                yield Violation(rule="needless", where=left.pod, message="is left out though a new node could take it")


def _could_come_in_order(
    old: Counter[str],
    owners: Counter[str],
    others: Counter[str],
    strangers: set[str],
    domains: set[str],
    most: int,
) -> bool:
    """Can the pods come one after another so that each one bound by the rule keeps the skew when it comes?

    domains: where the fewest pods are looked for; empty means the fewest is 0. strangers: domains of pods bound by
    the rule that it does not count itself.
    """
    now, owners, others = Counter(old), Counter(owners), Counter(others)
    waiting = set(strangers)
    while True:
        low = min((now[d] for d in domains), default=0)
        waiting = {d for d in waiting if now[d] - low > most}
        pending = [d for d in sorted(owners) if owners[d] > 0]
        if not pending:
            return not waiting
        ready = [d for d in pending if now[d] + 1 - low <= most]
        if ready:
            best = min(ready, key=lambda d: (now[d], d))
            now[best] += 1
            owners[best] -= 1
            continue
        lowest = [d for d in sorted(domains) if now[d] == low and others[d] > 0]
        if not lowest:
            return False
        now[lowest[0]] += 1
        others[lowest[0]] -= 1


def _has_rules(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(pod.spec.topology_spread_constraints) or (
        affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )
