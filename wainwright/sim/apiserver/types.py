"""Fields of the built-in kinds: which there are, of which type, how lists of them merge, their protobuf numbers.

Read from types.json, which tests/contract/kube_api/generate_types.py writes and explains.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import ApiError, bad_request
from wainwright.sim.apiserver.kinds import Object
from wainwright.sim.apiserver.quantities import normalised

_MOST_ITEMS = 20_000
"""Three megabytes hold a million empty items, each of which would be filled with defaults."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    type: one of the words in types.json, `[]T`, `{}T`, or a struct's name.
    pointer: a zero differs from nothing. null_time: written as null when it is not set.
    merge_key: how strategic merge tells the items of a list apart ("" for a set of values), None when it replaces the
    list. list_keys, is_set, atomic: the same for server-side apply.
    """

    name: str
    number: int
    type: str
    pointer: bool
    inline: bool
    merge_key: str | None
    list_keys: tuple[str, ...]
    is_set: bool
    atomic: bool
    null_time: bool


def _field(name: str, number: int, type_: str, flags: str) -> Field:
    marks = flags.split()
    values = dict(mark.partition("=")[::2] for mark in marks)
    return Field(
        name,
        number,
        type_,
        pointer="p" in values,
        inline="i" in values,
        merge_key=values.get("m"),
        list_keys=tuple(values["k"].split(",")) if "k" in values else (),
        is_set="s" in values,
        atomic="a" in values,
        null_time="n" in values,
    )


@cache
def _raw() -> dict[str, list[tuple[str, int, str, str]]]:
    path = Path(__file__).with_name("types.json")
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[str, int, str, str]]])


@cache
def numbered_fields(struct: str) -> dict[int, Field]:
    return {field.number: field for entry in _raw()[struct] if (field := _field(*entry)).number}


@cache
def fields_of(struct: str) -> dict[str, Field] | None:
    """Fields of a struct by JSON name, inlined ones included; None for what is no struct."""
    if struct not in _raw():
        return None
    found: dict[str, Field] = {}
    for entry in _raw()[struct]:
        field = _field(*entry)
        if field.inline:
            found |= fields_of(field.type) or {}
        else:
            found[field.name] = field
    return found


@cache
def _null_times(struct: str) -> tuple[str, ...]:
    """Times that are there even when they are not set."""
    return tuple(name for name, field in (fields_of(struct) or {}).items() if field.null_time)


def struct_of(group: str, name: str) -> str | None:
    """The struct of a built-in kind; None where its fields are not known."""
    struct = f"{'scale' if name == 'Scale' else group.partition('.')[0] or 'core'}.{name}"
    return struct if struct in _raw() else None


_GO_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def _mistyped(value: object, path: str, wanted: str) -> ApiError:
    found = _GO_NAMES.get(type(value), "null")
    return bad_request(f"json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")


def conform(value: Object, struct: str, path: str = "") -> list[str]:
    """Make an object what its type can hold, in place; the paths of fields that it cannot, which are dropped.

    Nulls are dropped, quantities written in their one form. Raises ApiError 400 for a value of the wrong type.
    """
    fields = fields_of(struct)
    assert fields is not None
    unknown: list[str] = []
    doomed: list[str] = []
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if path or name not in ("kind", "apiVersion"):
                unknown.append(f"{path}{name}")
                doomed.append(name)
        elif item is None:
            if not field.null_time:
                doomed.append(name)
        elif type(item) is str and field.type == "string":
            pass
        else:
            value[name] = _conformed(item, field.type, f"{path}{name}", unknown)
    for name in doomed:
        del value[name]
    for name in _null_times(struct):
        value.setdefault(name, None)
    return unknown


def _time(text: str, *, micro: bool) -> str:
    """In UTC; microseconds are given with exactly six digits, or the text is refused, as Go does."""
    if (len(text), text[-1:]) == (27 if micro else 20, "Z") and text[10] == "T":
        return text
    fraction = len(text.partition(".")[2].partition("+")[0].partition("-")[0].rstrip("Z"))
    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or moment.tzinfo is None or (micro and fraction != 6):
        layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
        raise bad_request(f'parsing time "{text}" as "{layout}": cannot parse "{text}"')
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}" if micro else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _conformed(value: Any, type_: str, path: str, unknown: list[str]) -> Any:
    match type_:
        case "string" | "bytes":
            if not isinstance(value, str):
                raise _mistyped(value, path, "string")
        case "time" | "microtime":
            if not isinstance(value, str):
                raise _mistyped(value, path, "Time")
            return _time(value, micro=type_ == "microtime")
        case "int":
            if not isinstance(value, int) or isinstance(value, bool):
                raise _mistyped(value, path, "int64")
        case "bool":
            if not isinstance(value, bool):
                raise _mistyped(value, path, "bool")
        case "float":
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise _mistyped(value, path, "float64")
        case "quantity":
            return normalised(value)
        case "intstr":
            if not isinstance(value, (int, str)) or isinstance(value, bool):
                raise _mistyped(value, path, "IntOrString")
        case "raw":
            pass
        case _ if type_.startswith("[]"):
            if not isinstance(value, list):
                raise _mistyped(value, path, type_)
            if len(value) > _MOST_ITEMS:
                raise bad_request(f"{path}: a list of {len(value)} items is more than this server takes")
            inner = type_[2:]
            for index, item in enumerate(value):
                if type(item) is not str or inner != "string":
                    value[index] = _conformed(item, inner, f"{path}[{index}]", unknown)
        case _ if type_.startswith("{}"):
            if not isinstance(value, dict):
                raise _mistyped(value, path, "map[string]" + type_[2:])
            inner = type_[2:]
            for key, item in value.items():
                if type(item) is str and inner == "string":
                    continue
                value[key] = (
                    "" if item is None and inner == "string" else _conformed(item, inner, f"{path}.{key}", unknown)
                )
        case _:
            if not isinstance(value, dict):
                raise _mistyped(value, path, type_.rpartition(".")[2])
            unknown += conform(value, type_, f"{path}.")
    return value
