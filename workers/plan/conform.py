"""Does a document have the fields and types that Kubernetes knows for its kind? Every fault, and what to write instead.

Fields of built-in kinds come from the embedded API server's table. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

import msgspec

from wainwright.api.base import Resource
from wainwright.api.quantities import QuantityError, parse_quantity
from wainwright.sim.apiserver.types import fields_of

_LARGEST = 2**63 - 1


class FieldFault(NamedTuple):
    """field: path as in YAML; message: what to write instead."""

    field: str
    value: object
    message: str


class Conformed(NamedTuple):
    """content: what the document says in fields that exist, without nulls and without what has a fault.

    unknown: fields that do not exist, each with the likely right name; the API server would refuse the document.
    """

    content: dict[str, Any]
    faults: list[FieldFault]
    unknown: list[str]


def conformed(content: Mapping[str, Any], struct: str) -> Conformed:
    """A document of a built-in kind, against the fields of its type (`core.Pod`)."""
    walk = _Walk()
    kept = walk.struct(content, struct, "")
    return Conformed(kept, walk.faults, walk.unknown)


def without_nulls(value: Any) -> Any:
    """The value without fields and items that are null: Kubernetes takes them for left out."""
    if isinstance(value, dict):
        return {str(key): without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def unknown_fields(content: Mapping[str, Any], kind: type[Resource], path: str = "") -> list[str]:
    """Fields of a custom resource that its struct does not have, each with the likely right name."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    found: list[str] = []
    for name, value in content.items():
        at = joined(path, name)
        if name not in known:
            if path or name not in ("apiVersion", "kind"):
                found.append(_unknown(at, name, known))
            continue
        inner = _resource_in(known[name])
        if inner is None or at in ("metadata", "status"):
            continue
        for place, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(item, Mapping):
                found += unknown_fields(item, inner, at if place is None else f"{at}[{place}]")
    return found


def _resource_in(annotation: Any) -> type[Resource] | None:
    if isinstance(annotation, type) and issubclass(annotation, Resource):
        return annotation
    return next((found for part in get_args(annotation) if (found := _resource_in(part)) is not None), None)


def joined(path: str, name: str) -> str:
    """`spec.nodeSelector[topology.kubernetes.io/zone]`, `spec.replicas`."""
    if "." in name or "/" in name or not name:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _unknown(at: str, name: str, known: Iterable[str]) -> str:
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f"{at}: there is no such field" + (f"; did you mean {lower[near[0]]}?" if near else "")


class _Walk:
    def __init__(self) -> None:
        self.faults: list[FieldFault] = []
        self.unknown: list[str] = []

    def struct(self, value: Mapping[Any, Any], struct: str, path: str) -> dict[str, Any]:
        fields = fields_of(struct) or {}
        kept: dict[str, Any] = {}
        for raw_name, item in value.items():
            name = str(raw_name)
            at = joined(path, name)
            field = fields.get(name)
            if field is None:
                if path or name not in ("apiVersion", "kind"):
                    self.unknown.append(_unknown(at, name, fields))
            elif item is not None and (good := self.value(item, field.type, at)) is not None:
                kept[name] = good
        return kept

    def fault(self, path: str, value: object, message: str) -> None:
        self.faults.append(FieldFault(path, value, message))

    def value(self, value: Any, type_: str, path: str) -> Any:
        """The value as its type has it; None when there is a fault in it."""
        match type_:
            case "string" | "bytes" | "time" | "microtime":
                return self.text(value, path)
            case "int":
                return self.whole(value, path)
            case "bool":
                if isinstance(value, bool):
                    return value
                self.fault(path, value, "must be true or false, without quotes")
                return None
            case "float":
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    return value
                self.fault(path, value, "must be a number")
                return None
            case "quantity":
                return self.quantity(value, path)
            case "intstr":
                if isinstance(value, (int, str)) and not isinstance(value, bool):
                    return value
                self.fault(path, value, "must be a whole number or a text as 25%")
                return None
            case "raw":
                return without_nulls(value)
            case _ if type_.startswith("[]"):
                return self.items(value, type_[2:], path)
            case _ if not isinstance(value, Mapping):
                self.fault(path, value, "must be an object: fields below it, indented, each as `name: value`")
                return None
            case _ if type_.startswith("{}"):
                return self.entries(value, type_[2:], path)
            case _:
                return self.struct(value, type_, path)

    def text(self, value: Any, path: str) -> str | None:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            self.fault(path, value, f'must be a text; put it in quotes ("{str(value).lower()}", or the word as it was)')
        elif isinstance(value, (int, float)):
            self.fault(path, value, f'must be a text; put it in quotes: "{value}"')
        else:
            self.fault(path, value, "must be a text")
        return None

    def whole(self, value: Any, path: str) -> int | None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
            return value
        hint = f"; take the quotes off: {value}" if isinstance(value, str) and value.strip().isdecimal() else ""
        self.fault(path, value, f"must be a whole number{hint}")
        return None

    def quantity(self, value: Any, path: str) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self.fault(path, value, "must be a quantity; write for example 500m, 2, 1.5Gi")
            return None
        text = str(value).strip()
        try:
            if abs(parse_quantity("", text)) > _LARGEST:
                raise OverflowError
        except QuantityError as error:
            near = _near_quantity(text)
            self.fault(path, value, str(error) + (f"; did you mean {near}?" if near else ""))
            return None
        except (ArithmeticError, ValueError):
            self.fault(path, value, "is out of range")
            return None
        return text

    def items(self, value: Any, type_: str, path: str) -> list[Any] | None:
        if not isinstance(value, list):
            self.fault(path, value, "must be a list; begin each item with `- `")
            return None
        kept = []
        for index, item in enumerate(value):
            if item is not None and (good := self.value(item, type_, f"{path}[{index}]")) is not None:
                kept.append(good)
        return kept

    def entries(self, value: Mapping[Any, Any], type_: str, path: str) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for raw_name, item in value.items():
            name = str(raw_name).lower() if isinstance(raw_name, bool) else str(raw_name)
            if item is None:
                if type_ == "string":
                    kept[name] = ""
            elif (good := self.value(item, type_, joined(path, name))) is not None:
                kept[name] = good
        return kept


_SUFFIXES = {"gb": "Gi", "gib": "Gi", "g": "G", "mb": "Mi", "mib": "Mi", "gi": "Gi", "mi": "Mi", "ki": "Ki", "kb": "Ki"}
_SUFFIXES |= {"kib": "Ki", "ti": "Ti", "tb": "Ti", "tib": "Ti"}


def _near_quantity(text: str) -> str:
    """`4GB` is meant as 4Gi, `0,5` as 0.5, `2 Gi` as 2Gi; empty: no idea."""
    squeezed = text.replace(" ", "").replace(",", ".")
    number = squeezed.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    suffix = squeezed[len(number) :]
    cores = number if suffix.lower().startswith("c") else ""  # `2 cores`, `2cpu`
    for candidate in (squeezed, number + _SUFFIXES.get(suffix.lower(), suffix), cores):
        try:
            parse_quantity("", candidate)
        except (QuantityError, ArithmeticError, ValueError):
            continue
        return candidate
    return ""
