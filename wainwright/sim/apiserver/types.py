"""Fields of the built-in kinds: which there are, of which type, how lists of them merge, their protobuf numbers.

Read from types.json, which tests/contract/kube_api/generate_types.py writes and explains.
"""

from __future__ import annotations

from collections.abc import Callable
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

    Nulls are dropped, quantities and times written in their one form. Raises ApiError 400 for a value of a wrong type.
    path: what stands before each field's name, with its dot.
    """
    unknown: list[str] = []
    _struct(struct)(value, path, unknown)
    return unknown


Conformer = Callable[[Any, str, list[str]], Any]
"""Takes a value, its path and the list of unknown paths; gives the value in its one form."""


@cache
def _struct(struct: str) -> Conformer:
    """In place. Fields that are plain text, most of all, take the shortest way."""
    fields = fields_of(struct)
    assert fields is not None
    table = {name: (field.type == "string", field.null_time, _conformer(field.type)) for name, field in fields.items()}
    null_times = _null_times(struct)

    def conform_struct(value: Any, path: str, unknown: list[str]) -> Any:
        doomed: list[str] = []
        for name, item in value.items():
            entry = table.get(name)
            if entry is None:
                if path or name not in ("kind", "apiVersion"):
                    unknown.append(f"{path}{name}")
                    doomed.append(name)
                continue
            is_text, may_be_null, inner = entry
            if is_text and type(item) is str:
                continue
            if item is None:
                if not may_be_null:
                    doomed.append(name)
                continue
            value[name] = inner(item, f"{path}{name}", unknown)
        for name in doomed:
            del value[name]
        for name in null_times:
            value.setdefault(name, None)
        return value

    return conform_struct


@cache
def _conformer(type_: str) -> Conformer:
    if type_.startswith("[]"):
        return _list_conformer(type_)
    if type_.startswith("{}"):
        return _map_conformer(type_)
    if type_ in _SCALARS:
        return _SCALARS[type_]

    def conform_object(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mistyped(value, path, type_.rpartition(".")[2])
        return _struct(type_)(value, f"{path}.", unknown)

    return conform_object


def _list_conformer(type_: str) -> Conformer:
    inner, is_text = _conformer(type_[2:]), type_ == "[]string"

    def conform_list(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise _mistyped(value, path, type_)
        if len(value) > _MOST_ITEMS:
            raise bad_request(f"{path}: a list of {len(value)} items is more than this server takes")
        for index, item in enumerate(value):
            if not (is_text and type(item) is str):
                value[index] = inner(item, f"{path}[{index}]", unknown)
        return value

    return conform_list


def _map_conformer(type_: str) -> Conformer:
    inner, is_text = _conformer(type_[2:]), type_ == "{}string"

    def conform_map(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mistyped(value, path, f"map[string]{type_[2:]}")
        for key, item in value.items():
            if not (is_text and type(item) is str):
                value[key] = "" if item is None and is_text else inner(item, f"{path}.{key}", unknown)
        return value

    return conform_map


def _scalar(types: tuple[type, ...], name: str) -> Conformer:
    def conform_scalar(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise _mistyped(value, path, name)
        return value

    return conform_scalar


def _time_conformer(*, micro: bool) -> Conformer:
    def conform_time(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
        if not isinstance(value, str):
            raise _mistyped(value, path, "Time")
        return _time(value, micro=micro)

    return conform_time


_SCALARS: dict[str, Conformer] = {
    "string": _scalar((str,), "string"),
    "bytes": _scalar((str,), "string"),
    "int": _scalar((int,), "int64"),
    "bool": _scalar((bool,), "bool"),
    "float": _scalar((int, float), "float64"),
    "intstr": _scalar((int, str), "IntOrString"),
    "time": _time_conformer(micro=False),
    "microtime": _time_conformer(micro=True),
    "quantity": lambda value, path, unknown: normalised(value),  # noqa: ARG005
    "raw": lambda value, path, unknown: value,  # noqa: ARG005
}


def _time(text: str, *, micro: bool) -> str:
    """In UTC; microseconds are given with exactly six digits, or the text is refused, as Go does."""
    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    fraction = text.partition(".")[2].partition("+")[0].partition("-")[0].rstrip("Z")
    if moment is None or moment.tzinfo is None or len(text) < 20 or (micro and len(fraction) != 6):
        layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
        raise bad_request(f'parsing time "{text}" as "{layout}": cannot parse "{text}"')
    if len(text) == (27 if micro else 20) and text[-1] == "Z":
        return text
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}" if micro else f"{moment:%Y-%m-%dT%H:%M:%SZ}"
