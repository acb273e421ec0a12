"""Sets of pods that topology rules speak of: those of some namespaces whose labels a selector matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wainwright.api.meta import LabelSelector
from wainwright.scheduling.requirements import Requirement, RequirementError, equals, merged, requirement

EVERYWHERE: frozenset[str] | None = None
"""Namespaces of a population that is not confined to any."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Population:
    """namespaces: None means all. selector: one requirement per key, sorted; None matches no pod at all."""

    namespaces: frozenset[str] | None
    selector: tuple[Requirement, ...] | None

    def has(self, namespace: str, labels: Labels) -> bool:
        """Is a pod of this namespace with these labels in it?"""
        if self.selector is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(wanted.has(labels.get(wanted.key)) for wanted in self.selector)


def selector_requirements(selector: LabelSelector | None) -> tuple[Requirement, ...] | None:
    """A label selector as requirements. None (matches nothing) stays None; an empty one matches everything.

    Raises RequirementError for an operator that selectors do not have.
    """
    if selector is None:
        return None
    parts = [equals_exactly(key, value) for key, value in selector.match_labels.items()]
    for each in selector.match_expressions:
        if each.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise RequirementError(f"{each.key} {each.operator!r}: label selectors have no such operator")
        parts.append(_verbatim(each.key, requirement("", each.operator, each.values)))
    return _canonical(parts)


def equals_exactly(key: str, value: str) -> Requirement:
    """Like `equals`, but pods' labels have no aliases: the key stays as it is."""
    return _verbatim(key, equals("", value))


def population(
    namespace: str,
    labels: Labels,
    selector: LabelSelector | None,
    *,
    same: Iterable[str] = (),
    different: Iterable[str] = (),
    namespaces: frozenset[str] | None = frozenset(),
) -> Population:
    """The population a rule of a pod speaks of.

    same, different: matchLabelKeys and mismatchLabelKeys; a key that the pod lacks is left out. namespaces: empty
    means the pod's own. Raises RequirementError.
    """
    base = selector_requirements(selector)
    if base is not None:
        parts = [*base]
        parts.extend(equals_exactly(key, labels[key]) for key in same if key in labels)
        parts.extend(_verbatim(key, requirement("", "NotIn", (labels[key],))) for key in different if key in labels)
        base = _canonical(parts)
    where = frozenset({namespace}) if namespaces is not None and not namespaces else namespaces
    return Population(where, base)


def _verbatim(key: str, wanted: Requirement) -> Requirement:
    return Requirement(key=key, complement=wanted.complement, values=wanted.values, absent=wanted.absent)


def _canonical(parts: Iterable[Requirement]) -> tuple[Requirement, ...]:
    by_key = merged(parts)
    return tuple(by_key[key] for key in sorted(by_key))


class Census:
    """Numbers for populations, and which of them a pod belongs to; answers are remembered per namespace and labels."""

    def __init__(self) -> None:
        self.populations: list[Population] = []
        self._numbers: dict[Population, int] = {}
        self._by_pair: dict[tuple[str, str], list[int]] = {}
        self._others: list[int] = []
        self._answers: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ...]] = {}

    def number(self, population: Population) -> int:
        """The number of a population; a new one gets the next. Ask before the first `of`."""
        known = self._numbers.get(population)
        if known is not None:
            return known
        number = len(self.populations)
        self._numbers[population] = number
        self.populations.append(population)
        if population.selector is not None:
            pair = next(
                (
                    (wanted.key, next(iter(wanted.values)))
                    for wanted in population.selector
                    if not wanted.complement and len(wanted.values) == 1
                ),
                None,
            )
            if pair is None:
                self._others.append(number)
            else:
                self._by_pair.setdefault(pair, []).append(number)
        self._answers.clear()
        return number

    def of(self, namespace: str, labels: Labels) -> tuple[int, ...]:
        """Numbers of the populations that a pod belongs to, ascending."""
        if not self.populations:
            return ()
        key = (namespace, tuple(sorted(labels.items())))
        known = self._answers.get(key)
        if known is None:
            candidates = list(self._others)
            for pair in labels.items():
                candidates.extend(self._by_pair.get(pair, ()))
            known = tuple(sorted(n for n in candidates if self.populations[n].has(namespace, labels)))
            self._answers[key] = known
        return known
