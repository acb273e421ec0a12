"""Is a NodePool or NodeClaim one that can be used? Every fault at once, with field, value and what to write instead.

The rules are those of `karpenter.sh/v1`, and two that its schema cannot say: requirements that contradict each other,
and quantities that cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec

from wainwright.api.base import Resource
from wainwright.api.names import (
    CAPACITY_TYPE_LABEL,
    HOSTNAME_LABEL,
    NODEPOOL_LABEL,
    ON_DEMAND,
    RESERVED,
    SPOT,
    WELL_KNOWN_LABELS,
)
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import Budget, NodeClassReference, NodePool, NodePoolSpec, NodeSelectorRequirement
from wainwright.api.nodes import Taint
from wainwright.api.pods import Quantity
from wainwright.api.quantities import QuantityError, parse_quantity
from wainwright.api.syntax import (
    cron_fault,
    is_budget_duration,
    is_budget_nodes,
    is_duration,
    label_key_fault,
    label_value_fault,
)

MAX_LABELS: Final = 100
MAX_REQUIREMENTS: Final = 100
MAX_BUDGETS: Final = 50
MAX_MIN_VALUES: Final = 50
MAX_WEIGHT: Final = 100

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
BOUNDS: Final = ("Gt", "Lt", "Gte", "Lte")
TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CONSOLIDATION_POLICIES: Final = ("WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced")
CAPACITY_TYPES: Final = (ON_DEMAND, SPOT, RESERVED)
DISRUPTION_REASONS: Final = ("Underutilized", "Empty", "Drifted")

RESTRICTED_DOMAINS: Final = ("kubernetes.io", "k8s.io", "karpenter.sh")
"""Labels below these belong to Kubernetes and Karpenter…"""
FREE_DOMAINS: Final = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")
"""…but not those below these."""
OLD_LABELS: Final = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
"""Names that well-known labels had; they still mean the same."""

_Object = TypeVar("_Object", bound=Resource)
_DECODE_FAULTS: Final = 50


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. path: as in YAML, `spec.template.spec.requirements[2].values`; message: what to write instead."""

    path: str
    value: object
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.value)}: {self.message}"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


def validate_node_pool(node_pool: NodePool) -> list[FieldError]:
    """Every rule that the NodePool breaks, in the order of its fields; none: it can be used."""
    template = node_pool.spec.template
    faults = _Faults()
    _check_labels(faults, template.metadata.labels)
    _check_annotations(faults, template.metadata.annotations)
    _check_taints(faults, "spec.template.spec.taints", template.spec.taints)
    _check_taints(faults, "spec.template.spec.startupTaints", template.spec.startup_taints)
    _check_requirements(faults, "spec.template.spec.requirements", template.spec.requirements, template.metadata.labels)
    _check_node_class(faults, "spec.template.spec.nodeClassRef", template.spec.node_class_ref)
    _check_lifetime(faults, "spec.template.spec", template.spec.expire_after, template.spec.termination_grace_period)
    _check_disruption(faults, node_pool.spec)
    _check_limits(faults, node_pool.spec)
    _check_size(faults, node_pool.spec)
    return faults.found


def validate_node_pool_change(old: NodePool, new: NodePool) -> list[FieldError]:
    """What a new version may not change: the NodeClass's group and kind, and whether the pool is static."""
    faults = _Faults()
    before, after = old.spec.template.spec.node_class_ref, new.spec.template.spec.node_class_ref
    path = "spec.template.spec.nodeClassRef"
    if before.group != after.group:
        faults.add(f"{path}.group", after.group, f"cannot change from {before.group!r}; make another NodePool")
    if before.kind != after.kind:
        faults.add(f"{path}.kind", after.kind, f"cannot change from {before.kind!r}; make another NodePool")
    if (old.spec.replicas is None) != (new.spec.replicas is None):
        faults.add("spec.replicas", new.spec.replicas, "cannot be added or removed later; make another NodePool")
    return faults.found


def validate_node_claim(node_claim: NodeClaim) -> list[FieldError]:
    """Every rule that the NodeClaim breaks."""
    spec = node_claim.spec
    faults = _Faults()
    _check_taints(faults, "spec.taints", spec.taints)
    _check_taints(faults, "spec.startupTaints", spec.startup_taints)
    _check_requirements(faults, "spec.requirements", spec.requirements, {}, allowed=(NODEPOOL_LABEL,))
    _check_quantities(faults, "spec.resources.requests", spec.resources.requests)
    _check_node_class(faults, "spec.nodeClassRef", spec.node_class_ref)
    _check_lifetime(faults, "spec", spec.expire_after, spec.termination_grace_period)
    return faults.found


def parse_node_pool(raw: Mapping[str, Any] | bytes) -> tuple[NodePool | None, list[FieldError]]:
    """A NodePool out of what an API server or a manifest says, and every fault in it.

    None when a field cannot be read at all; the faults then still cover what can be.
    """
    return _parse(raw, NodePool, validate_node_pool)


def parse_node_claim(raw: Mapping[str, Any] | bytes) -> tuple[NodeClaim | None, list[FieldError]]:
    """The same for a NodeClaim."""
    return _parse(raw, NodeClaim, validate_node_claim)


class _Faults:
    def __init__(self) -> None:
        self.found: list[FieldError] = []

    def add(self, path: str, value: object, message: str) -> None:
        self.found.append(FieldError(path=path, value=value, message=message))


def _one_of(value: str, known: Iterable[str]) -> str:
    """What to write instead of a word that is not known."""
    names = tuple(known)
    near = get_close_matches(value.lower(), [name.lower() for name in names], n=1)
    guess = next((name for name in names if near and name.lower() == near[0]), "")
    return f"must be one of {', '.join(names)}" + (f"; did you mean {guess}?" if guess else "")


def is_restricted_label(key: str) -> bool:
    """Is this a label that users may not set or require on nodes?

    - the host name, and the NodePool's own
    - below a restricted domain, unless well-known or below a free one
    """
    if key in (HOSTNAME_LABEL, NODEPOOL_LABEL):
        return True
    if key in WELL_KNOWN_LABELS or key in OLD_LABELS:
        return False
    domain = key.partition("/")[0] if "/" in key else ""
    return _is_below(domain, RESTRICTED_DOMAINS) and not _is_below(domain, FREE_DOMAINS)


def _is_below(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith("." + parent) for parent in parents)


def _restricted_message(key: str) -> str:
    if key == HOSTNAME_LABEL:
        return "the host name cannot be chosen; use another label"
    if key == NODEPOOL_LABEL:
        return "is set by us; pods choose a NodePool by it, NodePools cannot"
    return f"labels below {', '.join(RESTRICTED_DOMAINS)} are not free; use a domain of your own"


def _check_labels(faults: _Faults, labels: Mapping[str, str]) -> None:
    path = "spec.template.metadata.labels"
    if len(labels) > MAX_LABELS:
        faults.add(path, len(labels), f"at most {MAX_LABELS} labels")
    for key, value in labels.items():
        if fault := label_key_fault(key):
            faults.add(f"{path}[{key!r}]", key, fault)
        elif is_restricted_label(key):
            faults.add(f"{path}[{key!r}]", key, _restricted_message(key))
        if fault := label_value_fault(value):
            faults.add(f"{path}[{key!r}]", value, fault)


def _check_annotations(faults: _Faults, annotations: Mapping[str, str]) -> None:
    for key in annotations:
        if fault := label_key_fault(key):
            faults.add(f"spec.template.metadata.annotations[{key!r}]", key, fault)


def _check_taints(faults: _Faults, path: str, taints: tuple[Taint, ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for place, taint in enumerate(taints):
        where = f"{path}[{place}]"
        if fault := label_key_fault(taint.key):
            faults.add(f"{where}.key", taint.key, fault)
        if fault := label_value_fault(taint.value):
            faults.add(f"{where}.value", taint.value, fault)
        if taint.effect not in TAINT_EFFECTS:
            faults.add(f"{where}.effect", taint.effect, _one_of(taint.effect, TAINT_EFFECTS))
        if (taint.key, taint.effect) in seen:
            faults.add(where, f"{taint.key}:{taint.effect}", "is there twice; a node has one taint per key and effect")
        seen.add((taint.key, taint.effect))


def _check_requirements(
    faults: _Faults,
    path: str,
    requirements: tuple[NodeSelectorRequirement, ...],
    labels: Mapping[str, str],
    *,
    allowed: tuple[str, ...] = (),
) -> None:
    if len(requirements) > MAX_REQUIREMENTS:
        faults.add(path, len(requirements), f"at most {MAX_REQUIREMENTS} requirements")
    sound: dict[str, list[tuple[int, NodeSelectorRequirement]]] = {}
    for place, requirement in enumerate(requirements):
        before = len(faults.found)
        _check_requirement(faults, f"{path}[{place}]", requirement, allowed)
        if len(faults.found) == before:
            sound.setdefault(requirement.key, []).append((place, requirement))
    for key, places in sound.items():
        if fault := _contradiction([requirement for _, requirement in places], labels.get(key)):
            faults.add(f"{path}[{places[-1][0]}]", key, fault)


def _check_requirement(
    faults: _Faults, where: str, requirement: NodeSelectorRequirement, allowed: tuple[str, ...]
) -> None:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if fault := label_key_fault(key):
        faults.add(f"{where}.key", key, fault)
    elif key not in allowed and is_restricted_label(key):
        faults.add(f"{where}.key", key, _restricted_message(key))
    if operator not in OPERATORS:
        faults.add(f"{where}.operator", operator, _one_of(operator, OPERATORS))
    elif operator == "In" and not values:
        faults.add(f"{where}.values", values, "In needs at least one value")
    elif operator in ("Exists", "DoesNotExist") and values:
        faults.add(f"{where}.values", values, f"{operator} takes no values; did you mean In?")
    elif operator in BOUNDS and (len(values) != 1 or not _is_whole_number(values[0])):
        faults.add(f"{where}.values", values, f'{operator} takes exactly one whole number, 0 or more, as ["4"]')
    elif key == CAPACITY_TYPE_LABEL and operator == "In" and not set(values) & set(CAPACITY_TYPES):
        faults.add(f"{where}.values", values, _one_of(values[0], CAPACITY_TYPES))
    for place, value in enumerate(values):
        if fault := label_value_fault(value):
            faults.add(f"{where}.values[{place}]", value, fault)
    least = requirement.min_values
    if least is None:
        return
    if not 1 <= least <= MAX_MIN_VALUES:
        faults.add(f"{where}.minValues", least, f"must be 1 to {MAX_MIN_VALUES}")
    elif operator == "In" and least > len(set(values)):
        faults.add(f"{where}.minValues", least, f"only {len(set(values))} values are listed; list more or ask for less")
    elif operator == "DoesNotExist":
        faults.add(f"{where}.minValues", least, "a label that must not exist has no values")


def _is_whole_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _contradiction(requirements: list[NodeSelectorRequirement], label: str | None) -> str:
    """Why no value (nor the label's absence) satisfies all requirements on one key; empty: something does.

    label: the value that the template gives the label; None: it gives none.
    """
    present = [r for r in requirements if r.operator in ("In", "Exists", *BOUNDS)]
    absent = any(r.operator == "DoesNotExist" for r in requirements)
    if absent and label is not None:
        return f"must not exist, yet the template's labels set it to {label!r}"
    if absent and present:
        return f"must not exist, yet {_told(present[0])} is required too; remove one of them"
    lists = [set(r.values) for r in requirements if r.operator == "In"]
    if label is not None:
        if any(not _satisfies(label, r) for r in requirements):
            return f"the template's labels set it to {label!r}, which {_told_all(requirements)} exclude"
        return ""
    if lists:
        listed = set.intersection(*lists)
        if not any(all(_satisfies(value, r) for r in requirements) for value in listed):
            return f"no value satisfies {_told_all(requirements)}; merge them into one requirement"
        return ""
    least, most = _bounds(requirements)
    if most is None:
        return ""
    least = least or 0  # label values have no sign
    excluded = {value for r in requirements if r.operator == "NotIn" for value in r.values}
    if least > most or all(str(number) in excluded for number in range(least, min(most, least + len(excluded)) + 1)):
        return f"no number satisfies {_told_all(requirements)}"
    return ""


def _bounds(requirements: list[NodeSelectorRequirement]) -> tuple[int | None, int | None]:
    """The least and the most that all of them allow; None: no bound."""
    offsets = {"Gt": 1, "Gte": 0}
    least = [int(r.values[0]) + offsets[r.operator] for r in requirements if r.operator in offsets]
    offsets = {"Lt": -1, "Lte": 0}
    most = [int(r.values[0]) + offsets[r.operator] for r in requirements if r.operator in offsets]
    return max(least, default=None), min(most, default=None)


def _satisfies(value: str, requirement: NodeSelectorRequirement) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "DoesNotExist":
            return False
        case _:
            if not re.fullmatch(r"[+-]?[0-9]+", value):
                return False
            least, most = _bounds([requirement])
            return (least is None or int(value) >= least) and (most is None or int(value) <= most)


def _told(requirement: NodeSelectorRequirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.operator}{values}"


def _told_all(requirements: list[NodeSelectorRequirement]) -> str:
    return " and ".join(map(_told, requirements))


def _check_node_class(faults: _Faults, path: str, reference: NodeClassReference) -> None:
    for field, value, example in (
        ("group", reference.group, "karpenter.k8s.aws"),
        ("kind", reference.kind, "EC2NodeClass"),
        ("name", reference.name, "default"),
    ):
        if not value:
            faults.add(f"{path}.{field}", value, f"must not be empty; for example {example}")
    if "/" in reference.group:
        faults.add(f"{path}.group", reference.group, "a group has no version; write the part before the slash")


def _check_lifetime(faults: _Faults, path: str, expire_after: str, grace_period: str | None) -> None:
    if expire_after != "Never" and not is_duration(expire_after):
        faults.add(f"{path}.expireAfter", expire_after, "must be hours, minutes, seconds as 720h or 1h30m, or Never")
    if grace_period is not None and not is_duration(grace_period):
        faults.add(f"{path}.terminationGracePeriod", grace_period, "must be hours, minutes, seconds as 48h or 1h30m")


def _check_disruption(faults: _Faults, spec: NodePoolSpec) -> None:
    path, disruption = "spec.disruption", spec.disruption
    if disruption.consolidate_after != "Never" and not is_duration(disruption.consolidate_after):
        faults.add(
            f"{path}.consolidateAfter", disruption.consolidate_after, "must be a duration as 30s or 1h, or Never"
        )
    if disruption.consolidation_policy not in CONSOLIDATION_POLICIES:
        faults.add(
            f"{path}.consolidationPolicy",
            disruption.consolidation_policy,
            _one_of(disruption.consolidation_policy, CONSOLIDATION_POLICIES),
        )
    if len(disruption.budgets) > MAX_BUDGETS:
        faults.add(f"{path}.budgets", len(disruption.budgets), f"at most {MAX_BUDGETS} budgets")
    for place, budget in enumerate(disruption.budgets):
        _check_budget(faults, f"{path}.budgets[{place}]", budget)


def _check_budget(faults: _Faults, where: str, budget: Budget) -> None:
    if not is_budget_nodes(budget.nodes):
        faults.add(f"{where}.nodes", budget.nodes, "must be a number of nodes as 5, or 0% to 100%")
    if (budget.schedule is None) != (budget.duration is None):
        missing = "duration" if budget.duration is None else "schedule"
        faults.add(where, missing, f"schedule and duration come together; add {missing}")
    if budget.schedule is not None and (fault := cron_fault(budget.schedule)):
        faults.add(f"{where}.schedule", budget.schedule, fault)
    if budget.duration is not None and not is_budget_duration(budget.duration):
        faults.add(f"{where}.duration", budget.duration, "must be hours and minutes as 8h or 1h30m, without seconds")
    for reason in budget.reasons:
        if reason not in DISRUPTION_REASONS:
            faults.add(f"{where}.reasons", reason, _one_of(reason, DISRUPTION_REASONS))


def _check_limits(faults: _Faults, spec: NodePoolSpec) -> None:
    _check_quantities(faults, "spec.limits", spec.limits)
    if spec.replicas is not None:
        for name in spec.limits:
            if name != "nodes":
                faults.add(f"spec.limits[{name!r}]", name, "a pool with replicas can be limited by nodes only")


def _check_quantities(faults: _Faults, path: str, quantities: Mapping[str, Quantity]) -> None:
    for name, quantity in quantities.items():
        where = f"{path}[{name!r}]"
        if fault := label_key_fault(name):
            faults.add(where, name, fault)
        try:
            amount = parse_quantity(name, quantity)
        except QuantityError as error:
            faults.add(where, quantity, str(error))
            continue
        if amount < 0:
            faults.add(where, quantity, "must not be negative")


def _check_size(faults: _Faults, spec: NodePoolSpec) -> None:
    if spec.weight is not None and not 1 <= spec.weight <= MAX_WEIGHT:
        faults.add("spec.weight", spec.weight, f"must be 1 to {MAX_WEIGHT}; leave it out for the lowest")
    if spec.replicas is not None and spec.replicas < 0:
        faults.add("spec.replicas", spec.replicas, "must not be negative")
    if spec.replicas is not None and spec.weight is not None:
        faults.add("spec.weight", spec.weight, "a pool with replicas has no weight; remove one of them")


def _parse(
    raw: Mapping[str, Any] | bytes, kind: type[_Object], validate: Callable[[_Object], list[FieldError]]
) -> tuple[_Object | None, list[FieldError]]:
    if isinstance(raw, bytes):
        try:
            tree = msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            return None, [FieldError(path="", value=raw[:60].decode(errors="replace"), message=str(error))]
    else:
        tree = raw
    unreadable: list[FieldError] = []
    removed: dict[str, list[int]] = {}
    for _ in range(_DECODE_FAULTS):
        try:
            found = msgspec.convert(tree, kind)
        except msgspec.ValidationError as error:
            message, steps = _split(str(error))
            tree = deepcopy(tree)
            value, path = _remove(tree, steps, removed)
            unreadable.append(FieldError(path=path, value=value, message=message))
            if not path:
                break
            continue
        faults = [msgspec.structs.replace(fault, path=_original(fault.path, removed)) for fault in validate(found)]
        return (None if unreadable else found), unreadable + faults
    return None, unreadable


def _split(message: str) -> tuple[str, list[str | int]]:
    """Message and path of a decoding error, which ends in " - at `$.spec.limits[...]`"."""
    text, _, path = message.partition(" - at `")
    steps: list[str | int] = []
    for name, place in re.findall(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]", path):
        if place == "...":
            break  # some key of a map, not said which: the map as a whole
        steps.append(name or int(place))
    text = text.removeprefix("Object ").replace("`", "'")
    return text[:1].lower() + text[1:], steps


def _remove(tree: Any, steps: list[str | int], removed: dict[str, list[int]]) -> tuple[object, str]:
    """What stands at the path, and the path in the original; it is taken out of the tree, with the list item around it.

    removed: places taken out so far, by path of their list; grows. The path is empty where nothing could be taken out.
    """
    value, inner = tree, []
    for step in steps:
        if not _holds(value, step):
            break
        value = value[step]
        inner.append(step)
    if not inner:
        return None, ""
    path = _original(_written(inner), removed)
    cut = next((place for place, step in enumerate(inner) if isinstance(step, int)), len(inner) - 1)
    parent = tree
    for step in inner[:cut]:
        parent = parent[step]
    del parent[inner[cut]]
    if isinstance(inner[cut], int):
        around = _written(inner[:cut])
        place = int(re.findall(r"\[(\d+)\]", path)[0])
        removed.setdefault(around, []).append(place)
    return value, path


def _holds(tree: Any, step: str | int) -> bool:
    if isinstance(tree, dict):
        return step in tree
    return isinstance(tree, list) and isinstance(step, int) and step < len(tree)


def _written(steps: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _original(path: str, removed: Mapping[str, list[int]]) -> str:
    """The path as it was before list items were taken out: places move up by those removed before them."""
    match = re.match(r"([^\[]*)\[(\d+)\]", path)
    if match is None or match[1] not in removed:
        return path
    place = int(match[2])
    for gone in sorted(removed[match[1]]):
        if gone <= place:
            place += 1
    return f"{match[1]}[{place}]{path[match.end() :]}"
