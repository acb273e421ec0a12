"""Equal pods as one group: what they ask for, and the options and nodes whose labels and taints let them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wainwright.api.pods import Pod, Toleration
from wainwright.api.quantities import QuantityError
from wainwright.scheduling.plan import Reason, ReasonCode, Unplaced
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.requirements import RequirementError
from wainwright.scheduling.shapes import Term, canonical_tolerations, group_by_text, scheduling_terms
from wainwright.scheduling.universe import ENORMOUS, Bools


@dataclass(frozen=True, slots=True)
class Shape:
    """What tells one group from another. requests: by name, sorted."""

    requests: tuple[tuple[str, int], ...]
    terms: tuple[Term, ...]
    tolerations: tuple[Toleration, ...]
    priority: int = 0

    @property
    def amounts(self) -> dict[str, int]:
        return dict(self.requests)


@dataclass(slots=True, eq=False)
class Group:
    """Equal pods. members: oldest first; those from index `placed` on still need a place.

    mask, node_mask: the options and existing nodes whose labels and taints allow them and that could hold one alone
    when empty.
    """

    shape: Shape
    members: list[Pod]
    sizes: dict[str, int]
    mask: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    node_mask: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    placed: int = 0

    @property
    def waiting(self) -> int:
        return len(self.members) - self.placed

    def take(self, count: int) -> list[Pod]:
        """The next `count` members; they count as placed."""
        taken = self.members[self.placed : self.placed + count]
        self.placed += count
        return taken


def read_groups(pods: Sequence[Pod]) -> tuple[list[Group], list[Unplaced]]:
    """Groups, largest pods first (CPU, memory, then the rest by name), and the pods that cannot be read, with why."""
    groups: dict[Shape, Group] = {}
    unreadable: list[Unplaced] = []
    for members in group_by_text(pods).values():
        try:
            shape = _shape(members[0])
        except (QuantityError, RequirementError) as error:
            reason = Reason(where="pod", code=ReasonCode.INVALID, message=str(error))
            unreadable.extend(Unplaced(pod=pod.uid, reasons=(reason,)) for pod in members)
            continue
        known = groups.get(shape)
        if known is None:
            sizes = {name: min(amount, ENORMOUS) for name, amount in shape.requests}
            groups[shape] = Group(shape=shape, members=list(members), sizes=sizes)
        else:
            known.members.extend(members)
    for group in groups.values():
        group.members.sort(key=_age)
    return sorted(groups.values(), key=_size_order), unreadable


def _shape(pod: Pod) -> Shape:
    return Shape(
        requests=tuple(sorted(pod_requests(pod).items())),
        terms=scheduling_terms(pod.spec),
        tolerations=canonical_tolerations(pod.spec.tolerations),
        priority=pod.spec.priority or 0,
    )


def _age(pod: Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, pod.metadata.uid)


def _size_order(group: Group) -> tuple[int, int, int, tuple[tuple[str, int], ...], tuple[float, str]]:
    amounts: Mapping[str, int] = group.sizes
    return (
        -amounts.get("cpu", 0),
        -amounts.get("memory", 0),
        -group.shape.priority,
        group.shape.requests,
        _age(group.members[0]),
    )
