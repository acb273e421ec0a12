"""Do labels, nodes and taints match what a selector, an affinity or a toleration asks for? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wainwright.api.meta import LabelSelector, LabelSelectorRequirement
from wainwright.api.nodes import Taint
from wainwright.api.pods import NodeSelectorTerm, Toleration
from wainwright.sim.controllers.objects import Node, PodSpec


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Operators of node selectors; label selectors use the first four. An unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                bound, number = int(requirement.values[0]), int(value or "")
            except (ValueError, IndexError):
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
        case _:
            return False


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Label selector against labels: none at all selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """One term of a node affinity: every expression and every field holds; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(requirement, labels) for requirement in term.match_expressions) and all(
        _holds(requirement, fields) for requirement in term.match_fields
    )


def node_matches(spec: PodSpec, node: Node) -> bool:
    """The nodeSelector and required node affinity (terms are alternatives; no term matches no node)."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Effect and key, where given, must be equal; operator Exists ignores the value; an empty key needs Exists."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def first_untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str] = ("NoSchedule", "NoExecute")
) -> Taint | None:
    """The first taint with one of `effects` that no toleration covers, None if there is none."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
