"""Equal pods as one group: everything that scheduling needs to know of them, read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wainwright.api.pods import Pod, Toleration
from wainwright.api.quantities import QuantityError
from wainwright.scheduling.plan import Reason, ReasonCode, Unplaced
from wainwright.scheduling.populations import Census
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.requirements import RequirementError
from wainwright.scheduling.rules import HostPort, Rule, host_ports, rules_of
from wainwright.scheduling.shapes import (
    Term,
    canonical_tolerations,
    group_by_text,
    member_order,
    preferred_terms,
    scheduling_terms,
)
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.universe import ENORMOUS
from wainwright.scheduling.volumes import ATTACHMENTS, NOTHING, VolumeDemand, VolumeError, Volumes

IGNORE = "Ignore"
"""Preference policy under which preferences count for nothing."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What tells one group from another. requests: by name, sorted, volumes to attach included.

    terms: alternatives of what the node must carry. preferred: (weight, term), heaviest first. populations: which
    sets of pods (as far as any rule names them) these belong to.
    """

    requests: tuple[tuple[str, int], ...]
    terms: tuple[Term, ...]
    tolerations: tuple[Toleration, ...]
    preferred: tuple[tuple[int, Term], ...] = ()
    rules: tuple[Rule, ...] = ()
    ports: tuple[HostPort, ...] = ()
    volumes: VolumeDemand = NOTHING
    populations: tuple[int, ...] = ()
    priority: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """Equal pods, oldest first. index: its place in the order in which groups are looked at."""

    shape: Shape
    members: list[Pod]
    sizes: dict[str, int] = field(default_factory=dict)
    index: int = 0


@dataclass(slots=True)
class Reading:
    """The pods of a solve as groups; those that cannot be read, with why; and the populations that rules name."""

    groups: list[Group]
    unplaced: list[Unplaced]
    census: Census


def read_groups(pods: Sequence[Pod], snapshot: Snapshot, volumes: Volumes) -> Reading:
    """Groups, largest pods first (CPU, memory, priority, then the rest). A pod that cannot be read is refused alone."""
    census = Census()
    _running_rules(snapshot, census)
    unplaced: list[Unplaced] = []
    readable: list[tuple[list[Pod], Shape]] = []
    for members in group_by_text(pods).values():
        try:
            readable.append((members, _shape(members[0], snapshot, census, volumes)))
        except VolumeError as error:
            _refuse(members, ReasonCode.VOLUMES, str(error), unplaced)
        except (QuantityError, RequirementError) as error:
            _refuse(members, ReasonCode.INVALID, str(error), unplaced)
    groups: dict[tuple[Shape, tuple[int, ...]], Group] = {}
    for members, shape in readable:
        meta = members[0].metadata
        populations = census.of(meta.namespace, meta.labels)
        known = groups.get((shape, populations))
        if known is None:
            whole = Shape(
                **{
                    name: getattr(shape, name)
                    for name in ("requests", "terms", "tolerations", "preferred", "rules", "ports", "volumes")
                },
                populations=populations,
                priority=shape.priority,
            )
            sizes = {name: min(amount, ENORMOUS) for name, amount in shape.requests if amount}
            groups[shape, populations] = Group(shape=whole, members=list(members), sizes=sizes)
        else:
            known.members.extend(members)
    for group in groups.values():
        group.members.sort(key=member_order)
    ordered = sorted(groups.values(), key=_size_order)
    for index, group in enumerate(ordered):
        group.index = index
    return Reading(ordered, unplaced, census)


def _refuse(members: Sequence[Pod], code: ReasonCode, message: str, unplaced: list[Unplaced]) -> None:
    reasons = (Reason(where="pod", code=code, message=message),)
    unplaced.extend(Unplaced(pod=pod.uid, reasons=reasons) for pod in members)


def _running_rules(snapshot: Snapshot, census: Census) -> None:
    """Running pods' required anti-affinity forbids places to others: its populations count too."""
    for node in snapshot.nodes:
        for pod in node.pods:
            affinity = pod.spec.affinity
            if affinity is not None and affinity.pod_anti_affinity is not None:
                try:
                    rules_of(pod, census, snapshot.namespaces)
                except RequirementError:
                    continue


def _shape(pod: Pod, snapshot: Snapshot, census: Census, volumes: Volumes) -> Shape:
    spec = pod.spec
    demand = volumes.demand(pod)
    requests = pod_requests(pod)
    for driver, count in demand.drivers:
        requests[ATTACHMENTS + driver] = count
    respects = snapshot.preference_policy != IGNORE
    rules = rules_of(pod, census, snapshot.namespaces)
    return Shape(
        requests=tuple(sorted(requests.items())),
        terms=scheduling_terms(spec),
        tolerations=canonical_tolerations(spec.tolerations),
        preferred=preferred_terms(spec) if respects else (),
        rules=rules if respects else tuple(rule for rule in rules if not rule.is_soft),
        ports=host_ports(pod),
        volumes=demand,
        priority=spec.priority or 0,
    )


def _size_order(group: Group) -> tuple[int, int, int, tuple[tuple[str, int], ...], tuple[float, str]]:
    return (
        -group.sizes.get("cpu", 0),
        -group.sizes.get("memory", 0),
        -group.shape.priority,
        group.shape.requests,
        member_order(group.members[0]),
    )
