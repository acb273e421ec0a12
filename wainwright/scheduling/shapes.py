"""A pod reduced to what scheduling sees of it, so that equal pods are one group.

`scheduling_terms` is the node side (nodeSelector and required node affinity), as alternatives of requirements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from wainwright.api.pods import NodeSelectorTerm, Pod, PodSpec, Toleration
from wainwright.scheduling.requirements import Requirement, equals, merged, requirement

Term = tuple[Requirement, ...]

NODE_NAME_FIELD = "metadata.name"
"""The one field that node affinity may match on; existing nodes carry it, options never do."""


def scheduling_terms(spec: PodSpec) -> tuple[Term, ...]:
    """The alternatives of what a node must carry: one term per OR-term of required node affinity.

    The nodeSelector is part of each. No alternative at all means: fits nowhere (an empty list of terms, as Kubernetes
    reads it). Raises RequirementError naming what cannot be read.
    """
    selected = [equals(key, value) for key, value in sorted(spec.node_selector.items())]
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return (_canonical(selected),)
    return tuple(
        _canonical([*selected, *term_requirements(term)])
        for term in affinity.required.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def preferred_terms(spec: PodSpec) -> tuple[tuple[int, Term], ...]:
    """Preferred node affinity as (weight, term), heaviest first. Raises RequirementError."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return ()
    terms = [(each.weight, _canonical(term_requirements(each.preference))) for each in affinity.preferred]
    return tuple(sorted((t for t in terms if t[1]), key=lambda t: (-t[0], [str(wanted) for wanted in t[1]])))


def term_requirements(term: NodeSelectorTerm) -> list[Requirement]:
    """The requirements of one node selector term."""
    return [
        *(requirement(e.key, e.operator, e.values) for e in term.match_expressions),
        *(requirement(e.key, e.operator, e.values) for e in term.match_fields),
    ]


def _canonical(requirements: Iterable[Requirement]) -> Term:
    by_key = merged(requirements)
    return tuple(by_key[key] for key in sorted(by_key))


def canonical_tolerations(tolerations: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """Sorted, without doubles and without what plays no role here (how long a running pod stays)."""
    distinct = {(t.key, t.operator, t.value, t.effect) for t in tolerations}
    return tuple(Toleration(key=k, operator=o, value=v, effect=e) for k, o, v, e in sorted(distinct))


class PodKeys:
    """Texts under which equal pods meet; cheap enough to be made for each of ten thousand pods."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def of(self, pod: Pod) -> bytes:
        """Namespace, labels and spec: equal texts mean that scheduling cannot tell the pods apart."""
        return self._encode((pod.metadata.namespace, pod.metadata.labels, pod.spec))


def member_order(pod: Pod) -> tuple[float, str]:
    """Older pods first; the UID decides between equals."""
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, pod.metadata.uid)


def group_by_text(pods: Sequence[Pod]) -> dict[bytes, list[Pod]]:
    """Pods by what scheduling sees of them; the order of groups and of pods in them follows `member_order`."""
    keys = PodKeys()
    groups: dict[bytes, list[Pod]] = {}
    for pod in sorted(pods, key=member_order):
        groups.setdefault(keys.of(pod), []).append(pod)
    return groups
