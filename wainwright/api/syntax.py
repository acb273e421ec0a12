"""How names, values and durations must be written: pure checks of text, each answering with what is wrong or nothing.

Sources: Kubernetes apimachinery, util/validation (labels, DNS names); Karpenter's karpenter.sh/v1 (durations, cron).
"""

from __future__ import annotations

import re
from typing import Final

LABEL_VALUE_LENGTH: Final = 63
LABEL_NAME_LENGTH: Final = 63
DOMAIN_LENGTH: Final = 253

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DURATION = re.compile(r"([0-9]+[smh])+")
_BUDGET_DURATION = re.compile(r"([0-9]+h([0-9]+m)?|[0-9]+m)(0s)?")
_BUDGET_NODES = re.compile(r"(100|[0-9]{1,2})%|[0-9]+")
_CRON_NAMES: Final = frozenset({"@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_CRON_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def label_key_fault(key: str) -> str:
    """What is wrong with a label or taint key (`name` or `domain/name`); empty: nothing."""
    domain, slash, name = key.rpartition("/")
    if "/" in domain or not name or (slash and not domain):
        return "a key is a name, or a domain, one slash and a name"
    if slash and (len(domain) > DOMAIN_LENGTH or not _DOMAIN.fullmatch(domain)):
        return "the part before the slash must be a DNS domain in lower case"
    if len(name) > LABEL_NAME_LENGTH or not _NAME.fullmatch(name):
        return (
            f"the name must have at most {LABEL_NAME_LENGTH} letters, digits, '-', '_' or '.', "
            "and begin and end with a letter or digit"
        )
    return ""


def label_value_fault(value: str) -> str:
    """What is wrong with a label value (empty ones are allowed); empty: nothing."""
    if value and (len(value) > LABEL_VALUE_LENGTH or not _NAME.fullmatch(value)):
        return (
            f"a value has at most {LABEL_VALUE_LENGTH} letters, digits, '-', '_' or '.', "
            "and begins and ends with a letter or digit"
        )
    return ""


def is_duration(text: str) -> bool:
    """Whole hours, minutes and seconds: `720h`, `1h30m`, `0s`."""
    return _DURATION.fullmatch(text) is not None


def is_budget_duration(text: str) -> bool:
    """Hours and minutes only: `10m`, `8h`, `1h30m`; a trailing `0s` is allowed."""
    return _BUDGET_DURATION.fullmatch(text) is not None


def is_budget_nodes(text: str) -> bool:
    """A number of nodes, or 0% to 100%."""
    return _BUDGET_NODES.fullmatch(text) is not None


def cron_fault(schedule: str) -> str:
    """What is wrong with a cron schedule (five fields, or `@daily` and its like); empty: nothing."""
    if schedule.startswith("@"):
        return "" if schedule in _CRON_NAMES else f"known names are {', '.join(sorted(_CRON_NAMES))}"
    fields = schedule.split()
    if len(fields) != len(_CRON_FIELDS):
        return "a schedule has five fields: minute, hour, day of month, month, day of week"
    for text, (name, least, most) in zip(fields, _CRON_FIELDS, strict=True):
        if not all(_is_cron_part(part, name, least, most) for part in text.split(",")):
            return f"{text!r} is not a {name} ({least} to {most})"
    return ""


def _is_cron_part(part: str, name: str, least: int, most: int) -> bool:
    """`*`, `n`, `n-m`, each with `/step`; months and weekdays by name too."""
    span, slash, step = part.partition("/")
    if slash and not (step.isdecimal() and int(step) > 0):
        return False
    if span in ("*", "?"):
        return True
    first, dash, last = span.partition("-")
    low = _cron_number(first, name)
    high = _cron_number(last, name) if dash else low
    return low is not None and high is not None and least <= low <= high <= most


def _cron_number(text: str, name: str) -> int | None:
    if name == "month" and text.lower() in _MONTHS:
        return _MONTHS.index(text.lower()) + 1
    if name == "weekday" and text.lower() in _WEEKDAYS:
        return _WEEKDAYS.index(text.lower())
    return int(text) if text.isdecimal() and len(text) <= 2 else None
