"""Label and field selectors as the API takes them in a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from wainwright.sim.apiserver.errors import bad_request
from wainwright.sim.apiserver.kinds import Kind

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<order>[<>])\s*(?P<bound>-?\d+))?)\s*(?:,|$)"
)
_PLAIN_VALUE = re.compile(rf"{_VALUE}$")


def parse_label_selector(text: str) -> LabelTest | None:
    """The test that a selector stands for; None when it selects everything. Raises ApiError 400."""
    tests: list[LabelTest] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found {text[position:]!r} in {text!r}")
        tests.append(_requirement(match))
        position = match.end()
    if text.rstrip().endswith(","):
        raise bad_request(f"unable to parse requirement: found '', expected: identifier after ',' in {text!r}")
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(match: re.Match[str]) -> LabelTest:
    if match["absent"]:
        absent = match["absent_key"]
        return lambda labels: absent not in labels
    key = match["key"]
    if match["op"] in ("=", "=="):
        value = match["value"]
        return lambda labels: labels.get(key) == value
    if match["op"]:
        value = match["value"]
        return lambda labels: labels.get(key) != value
    if match["set"]:
        values = frozenset(part.strip() for part in match["values"].split(","))
        for part in values:
            if not _PLAIN_VALUE.match(part):
                raise bad_request(f"unable to parse requirement: values: Invalid value: {part!r}")
        if match["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match["order"]:
        bound, above = int(match["bound"]), match["order"] == ">"
        return lambda labels: _compare(labels.get(key), bound, above=above)
    return lambda labels: key in labels


def _compare(value: str | None, bound: int, *, above: bool) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > bound if above else number < bound


def matches_selector(selector: Mapping[str, object] | None, labels: Labels) -> bool:
    """Does a LabelSelector object (matchLabels, matchExpressions) select these labels? None selects nothing, {} all."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels")
    if isinstance(wanted, dict) and any(labels.get(key) != value for key, value in wanted.items()):
        return False
    expressions = selector.get("matchExpressions")
    for expression in expressions if isinstance(expressions, list) else ():
        value, values = labels.get(expression["key"]), expression.get("values") or ()
        match expression["operator"]:
            case "In" if value not in values:
                return False
            case "NotIn" if value in values:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
            case _:
                pass
    return True


def selector_text(selector: Mapping[str, object]) -> str:
    """A LabelSelector object as a query takes it: `app=web,tier in (a,b)`; for status.selector of a Scale."""
    parts: list[str] = []
    wanted = selector.get("matchLabels")
    if isinstance(wanted, dict):
        parts += [f"{key}={value}" for key, value in sorted(wanted.items())]
    expressions = selector.get("matchExpressions")
    for expression in expressions if isinstance(expressions, list) else ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        match expression["operator"]:
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case _:
                parts.append(f"!{key}")
    return ",".join(parts)


class FieldSelector:
    """Terms of a field selector: label, wanted value, and whether it must differ. All must hold."""

    __slots__ = ("terms",)

    def __init__(self, terms: list[tuple[str, str, bool]]) -> None:
        self.terms = terms

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(label, "") == value) is equal for label, value, equal in self.terms)

    def exact(self, label: str) -> str | None:
        """The value that `label` must have; None when the selector does not say."""
        for name, value, equal in self.terms:
            if name == label and equal:
                return value
        return None


def parse_field_selector(text: str, kind: Kind) -> FieldSelector | None:
    """Raises ApiError 400 for a field that this kind cannot be selected by."""
    terms: list[tuple[str, str, bool]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.match(r"([^=!]+?)\s*(!=|==|=)\s*(.*)$", part)
        if match is None:
            raise bad_request(f'invalid selector: "{text}"; can\'t understand "{part}"')
        label, operator, value = match.groups()
        if label not in kind.fields and label not in ("metadata.name", "metadata.namespace"):
            if kind.custom or kind.group:
                raise bad_request(f"field label not supported: {label}")
            raise bad_request(
                f'Unable to find "{kind.api_version}, Resource={kind.plural}" that match label selector "", '
                f'field selector "{text}": field label not supported: {label}'
            )
        terms.append((label, value, operator != "!="))
    return FieldSelector(terms) if terms else None
