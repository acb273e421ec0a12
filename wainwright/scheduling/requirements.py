"""The requirement algebra: which values a label may take.

A requirement is a set over label values and "absent": a list, a complement or a bound. It is closed under
intersection and judged by membership, so every law of sets holds for it. Two demands that meet in nothing conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from wainwright.api.names import ARCH_LABEL, INSTANCE_TYPE_LABEL, OS_LABEL, REGION_LABEL, ZONE_LABEL
from wainwright.api.nodepools import NodeSelectorRequirement

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")

ALIASES: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "beta.kubernetes.io/arch": ARCH_LABEL,
    "beta.kubernetes.io/os": OS_LABEL,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE_LABEL,
    "topology.ebs.csi.aws.com/zone": ZONE_LABEL,
    "topology.gke.io/zone": ZONE_LABEL,
}
"""Older and driver-specific names of labels that every node also carries under the current name."""


class RequirementError(ValueError):
    """A requirement that Kubernetes would refuse; the message names key, operator and value."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """The values that label `key` may take.

    complement False: the values listed. True: every value but those, within gte..lte (inclusive, integers) where
    given; a value that is no integer fails a bound. absent: may the label be missing? min_values: how many different
    values a claim must keep open.
    """

    key: str
    complement: bool
    values: frozenset[str]
    absent: bool = False
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    def has(self, value: str | None) -> bool:
        """Is this value in the set? None asks for a missing label."""
        if value is None:
            return self.absent
        if not self.complement:
            return value in self.values
        return value not in self.values and self._within_bounds(value)

    def _within_bounds(self, value: str) -> bool:
        if self.gte is None and self.lte is None:
            return True
        number = integer(value)
        if number is None:
            return False
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    @property
    def is_empty(self) -> bool:
        """Does nothing satisfy it, not even a missing label?"""
        return not self.absent and not self.has_values

    @property
    def has_values(self) -> bool:
        """Is there at least one value (leaving "absent" aside)?

        A bounded complement counts as non-empty while its bounds do not cross: "05" is another text of the number 5.
        """
        if not self.complement:
            return bool(self.values)
        return self.gte is None or self.lte is None or self.gte <= self.lte

    def intersect(self, other: Requirement) -> Requirement:
        """The values that satisfy both. min_values: the larger demand. Raises ValueError for different keys."""
        if self.key != other.key:
            raise ValueError(f"requirements on {self.key} and {other.key} do not meet")
        absent = self.absent and other.absent
        least = max((m for m in (self.min_values, other.min_values) if m is not None), default=None)
        if self.complement and other.complement:
            gte = max((b for b in (self.gte, other.gte) if b is not None), default=None)
            lte = min((b for b in (self.lte, other.lte) if b is not None), default=None)
            if gte is not None and lte is not None and gte > lte:
                return Requirement(key=self.key, complement=False, values=frozenset(), absent=absent, min_values=least)
            return Requirement(
                key=self.key,
                complement=True,
                values=self.values | other.values,
                absent=absent,
                gte=gte,
                lte=lte,
                min_values=least,
            )
        listed, filtering = (other, self) if self.complement else (self, other)
        values = frozenset(value for value in listed.values if filtering.has(value))
        return Requirement(key=self.key, complement=False, values=values, absent=absent, min_values=least)

    def any_value(self) -> str | None:
        """One value out of the set, always the same one; None where only a missing label is left (or nothing)."""
        if not self.has_values:
            return None
        if not self.complement:
            return min(self.values)
        number = self.gte if self.gte is not None else min(1, self.lte if self.lte is not None else 1)
        step = 1 if self.gte is not None or self.lte is None else -1
        while str(number) in self.values:
            number += step
        if not self._within_bounds(str(number)):  # every plain number is excluded: another text of the first
            first = self.gte if self.gte is not None else number
            text = f"0{first}" if first >= 0 else f"-0{-first}"
            while text in self.values:
                text = text.replace("0", "00", 1)
            return text
        return str(number)

    def selectors(self) -> tuple[NodeSelectorRequirement, ...]:
        """As NodeClaims write it; a bounded complement needs up to three entries, so that no exclusion is lost."""
        least = self.min_values
        values = tuple(sorted(self.values))
        if not self.complement:
            if values:
                return (NodeSelectorRequirement(key=self.key, operator="In", values=values, min_values=least),)
            return (NodeSelectorRequirement(key=self.key, operator="DoesNotExist"),)
        parts: list[NodeSelectorRequirement] = []
        if self.gte is not None:
            parts.append(NodeSelectorRequirement(key=self.key, operator="Gte", values=(str(self.gte),)))
        if self.lte is not None:
            parts.append(NodeSelectorRequirement(key=self.key, operator="Lte", values=(str(self.lte),)))
        if values:
            parts.append(NodeSelectorRequirement(key=self.key, operator="NotIn", values=values))
        if not parts:
            parts.append(NodeSelectorRequirement(key=self.key, operator="Exists"))
        if least is not None:
            parts[0] = msgspec.structs.replace(parts[0], min_values=least)
        return tuple(parts)

    def __str__(self) -> str:
        texts = []
        for part in self.selectors():
            values = f" [{', '.join(part.values)}]" if part.values else ""
            texts.append(f"{part.key} {part.operator}{values}")
        return " and ".join(texts)


def integer(text: str) -> int | None:
    """The number a label value spells, None if it spells none."""
    if len(text) > 32 or "_" in text or text.strip() != text:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def requirement(key: str, operator: str, values: Sequence[str] = (), min_values: int | None = None) -> Requirement:
    """A requirement from Kubernetes' operators and Karpenter's two more (Gte, Lte); known aliases of keys are resolved.

    Raises RequirementError for an unknown operator, values where none belong, or a bound that is no integer.
    """
    key = ALIASES.get(key, key)
    if operator == "In":
        return Requirement(key=key, complement=False, values=frozenset(values), min_values=min_values)
    if operator == "NotIn":
        return Requirement(key=key, complement=True, values=frozenset(values), absent=True, min_values=min_values)
    if operator == "Exists":
        return Requirement(key=key, complement=True, values=frozenset(), min_values=min_values)
    if operator == "DoesNotExist":
        return Requirement(key=key, complement=False, values=frozenset(), absent=True, min_values=min_values)
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        number = integer(values[0]) if len(values) == 1 else None
        if number is None:
            raise RequirementError(f"{key} {operator} {list(values)}: needs exactly one integer")
        gte = number + 1 if operator == "Gt" else number if operator == "Gte" else None
        lte = number - 1 if operator == "Lt" else number if operator == "Lte" else None
        return Requirement(key=key, complement=True, values=frozenset(), gte=gte, lte=lte, min_values=min_values)
    raise RequirementError(f"{key} {operator!r}: unknown operator; known are {', '.join(OPERATORS)}")


def equals(key: str, value: str) -> Requirement:
    """The requirement that a nodeSelector entry or a label states."""
    return requirement(key, "In", (value,))


def merged(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """One requirement per key: the intersection of all that name it. Keys in order of first mention."""
    by_key: dict[str, Requirement] = {}
    for each in requirements:
        known = by_key.get(each.key)
        by_key[each.key] = each if known is None else known.intersect(each)
    return by_key
