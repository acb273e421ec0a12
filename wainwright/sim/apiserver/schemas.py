"""Structural schemas of custom resources: pruning, defaulting, validation.

All three take the schema as the CustomResourceDefinition states it (OpenAPI v3, structural) and a decoded object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from functools import lru_cache
from typing import Any

from wainwright.sim.apiserver.errors import Fault, duplicate, invalid, mistyped, required, unsupported

Schema = Mapping[str, Any]

_NOTHING: Schema = {}
_ROOT = frozenset({"apiVersion", "kind", "metadata"})


def preserves_unknown(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def prune(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Drop, in place, what the schema does not name; the paths of what was dropped."""
    dropped: list[str] = []
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or _NOTHING
        extra = schema.get("additionalProperties")
        kept = not path or schema.get("x-kubernetes-embedded-resource")
        for key in list(value):
            at = f"{path}.{key}" if path else key
            if key in properties:
                if not (kept and key == "metadata"):
                    dropped += prune(value[key], properties[key], at)
            elif kept and key in _ROOT:
                continue
            elif isinstance(extra, dict):
                dropped += prune(value[key], extra, at)
            elif extra is True or preserves_unknown(schema):
                continue
            else:
                del value[key]
                dropped.append(at)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                dropped += prune(item, items, f"{path}[{index}]")
    return dropped


def apply_schema_defaults(value: Any, schema: Schema) -> None:
    """Fill in defaults in place; a null where none is allowed counts as left out."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or _NOTHING
        for key, inner in properties.items():
            if key in value and value[key] is None and not inner.get("nullable"):
                del value[key]
            if key not in value and "default" in inner:
                value[key] = deepcopy(inner["default"])
            if key in value:
                apply_schema_defaults(value[key], inner)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for key, item in value.items():
                if key not in properties:
                    apply_schema_defaults(item, extra)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for item in value:
                apply_schema_defaults(item, items)


def validate(value: Any, schema: Schema, path: str = "") -> Iterator[Fault]:
    """What is wrong with a value, in the words of the real server."""
    if value is None:
        if not schema.get("nullable") and (schema.get("type") or schema.get("x-kubernetes-int-or-string")):
            yield mistyped(path, value, str(schema.get("type", "integer,string")))
        return
    if not _has_type(value, schema):
        yield mistyped(path, value, str(schema.get("type", "integer,string")))
        return
    options = schema.get("enum")
    if options is not None and value not in options:
        yield unsupported(path, value, [str(option) for option in options])
    if isinstance(value, str):
        yield from _validate_text(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _validate_number(value, schema, path)
    elif isinstance(value, list):
        yield from _validate_list(value, schema, path)
    elif isinstance(value, dict):
        yield from _validate_object(value, schema, path)
    yield from _validate_combinations(value, schema, path)


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    match schema.get("type"):
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            if isinstance(value, bool):
                return False
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            return True


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """None for a pattern that Go understands and Python does not: it is not checked."""
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _validate_text(value: str, schema: Schema, path: str) -> Iterator[Fault]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield Fault(path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes")
    if shortest is not None and len(value) < shortest:
        yield invalid(path, value, f"{path} in body should be at least {shortest} chars long")
    pattern = schema.get("pattern")
    if pattern is not None:
        expression = compiled(pattern)
        if expression is not None and not expression.search(value):
            yield invalid(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield invalid(path, value, f'{path} in body must be of type date-time: "{value}"')


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return "T" in value


def _validate_number(value: float, schema: Schema, path: str) -> Iterator[Fault]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        than = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {low}")
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        than = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {high}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield invalid(path, value, f"{path} in body should be a multiple of {step}")
    bits = {"int32": 31, "int64": 63}.get(str(schema.get("format")))
    if bits and not -(2**bits) <= value < 2**bits:
        yield invalid(path, value, f"{path} in body must be of type {schema['format']}: {value}")


def _validate_list(value: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield Fault(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
        return
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from validate(item, items, f"{path}[{index}]")
    yield from _validate_unique(value, schema, path)


def _validate_unique(value: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type not in ("map", "set") and not schema.get("uniqueItems"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[str] = set()
    for index, item in enumerate(value):
        identity = {key: item.get(key) for key in keys} if list_type == "map" and isinstance(item, dict) else item
        text = repr(sorted(identity.items()) if isinstance(identity, dict) else identity)
        if text in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.add(text)


def _validate_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Fault]:
    properties: Mapping[str, Schema] = schema.get("properties") or _NOTHING
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{prefix}{name}")
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield Fault(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items")
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} properties")
    extra = schema.get("additionalProperties")
    for name, item in value.items():
        inner = properties.get(name)
        if inner is not None:
            if not (path or name != "metadata"):
                continue
            yield from validate(item, inner, f"{prefix}{name}")
        elif isinstance(extra, dict):
            yield from validate(item, extra, f"{prefix}{name}")


def _validate_combinations(value: Any, schema: Schema, path: str) -> Iterator[Fault]:
    for inner in schema.get("allOf") or ():
        yield from validate(value, inner, path)
    choices = schema.get("anyOf")
    if choices and not schema.get("x-kubernetes-int-or-string") and not any(_fits(value, c, path) for c in choices):
        yield invalid(path, value, f"{path} in body must validate at least one schema (anyOf)")
    exclusive = schema.get("oneOf")
    if exclusive and sum(_fits(value, choice, path) for choice in exclusive) != 1:
        yield invalid(path, value, f"{path} in body must validate one and only one schema (oneOf)")
    if isinstance(schema.get("not"), dict) and _fits(value, schema["not"], path):
        yield invalid(path, value, f"{path} in body must not validate the schema (not)")


def _fits(value: Any, schema: Schema, path: str) -> bool:
    return next(validate(value, schema, path), None) is None
