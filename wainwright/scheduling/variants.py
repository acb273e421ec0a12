"""A group with some of its preferences dropped: what is tried when not all of them can be kept."""

from __future__ import annotations

from dataclasses import dataclass

from wainwright.scheduling.groups import Shape
from wainwright.scheduling.rules import Rule, RuleKind
from wainwright.scheduling.shapes import Term


@dataclass(frozen=True, slots=True)
class Variant:
    """rules: demands, and the preferences still tried as if they were. terms: preferred node affinity still tried.

    soft_taints: does PreferNoSchedule keep away? relaxed: what was dropped, in words.
    """

    rules: tuple[Rule, ...]
    terms: tuple[tuple[Term, ...], ...]
    soft_taints: bool
    relaxed: tuple[str, ...]


def ladder(shape: Shape, *, soft_taints: bool) -> tuple[Variant, ...]:
    """From all preferences kept to none: each single one dropped first, then more and more.

    In the documented order: pod affinity, pod anti-affinity, node affinity (each heaviest first), ScheduleAnyway,
    PreferNoSchedule. soft_taints: is there such a taint anywhere?
    """
    soft = [rule for rule in shape.rules if rule.is_soft]
    items: list[tuple[str, Rule | Term | None]] = []
    for kind, text in ((RuleKind.AFFINITY, "pod affinity"), (RuleKind.ANTI_AFFINITY, "pod anti-affinity")):
        items.extend(
            (f"preferred {text} by {rule.key} (weight {rule.weight})", rule) for rule in soft if rule.kind is kind
        )
    items.extend(
        (f"preferred node affinity {'; '.join(str(w) for w in term)} (weight {weight})", term)
        for weight, term in shape.preferred
    )
    items.extend(
        (f"topology spread by {rule.key} (ScheduleAnyway)", rule) for rule in soft if rule.kind is RuleKind.SPREAD
    )
    if soft_taints:
        items.append(("PreferNoSchedule taints", None))
    if not items:
        return (Variant(shape.rules, (), soft_taints=False, relaxed=()),)
    count = len(items)
    drops = [frozenset[int](), *(frozenset({index}) for index in range(count))]
    drops.extend(frozenset(range(upto)) for upto in range(2, count + 1))
    hard = tuple(rule for rule in shape.rules if not rule.is_soft)
    variants = []
    for drop in drops:
        kept = [what for index, (_, what) in enumerate(items) if index not in drop]
        variants.append(
            Variant(
                rules=(*hard, *(what for what in kept if isinstance(what, Rule))),
                terms=tuple((what,) for what in kept if isinstance(what, tuple)),
                soft_taints=None in kept,
                relaxed=tuple(text for index, (text, _) in enumerate(items) if index in drop),
            )
        )
    return tuple(variants)
