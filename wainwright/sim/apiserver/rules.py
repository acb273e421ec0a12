"""CEL rules of custom resources (x-kubernetes-validations), evaluated by the library common-expression-language.

Only its extension module is loaded, and only when a schema has rules: the package's `__init__` imports a command line
of half a second. Without the library, and for rules that use Kubernetes' own functions (quantity, ip, url, …), which it
does not have, the server says at the creation of the definition what it does not check.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from wainwright.sim.apiserver.errors import Fault

Schema = Mapping[str, Any]

_KNOWN_FUNCTIONS = {
    *("all", "bool", "bytes", "contains", "double", "duration", "endsWith", "exists", "exists_one", "filter", "float"),
    *("has", "int", "map", "matches", "max", "min", "size", "startsWith", "string", "timestamp", "type", "uint"),
}
_NOTHING: Schema = {}


@cache
def _library() -> Any:
    """The extension module; None where it is not installed."""
    found = importlib.util.find_spec("cel")
    for directory in (found.submodule_search_locations or ()) if found else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(directory) / f"cel{suffix}"
            if path.exists():
                loader = importlib.machinery.ExtensionFileLoader("cel.cel", str(path))
                spec = importlib.util.spec_from_file_location("cel.cel", path, loader=loader)
                assert spec is not None
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
                return module
    return None


@cache
def _program(rule: str) -> Any:
    """A rule ready to run; None for one that cannot be checked here."""
    library = _library()
    if library is None:
        return None
    try:
        program = library.compile(rule)
    except ValueError:
        return None
    named = {name for name in program.functions() if name[:1].isalpha()}
    return program if named <= _KNOWN_FUNCTIONS else None


def _inner(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    for name, inner in (schema.get("properties") or _NOTHING).items():
        yield inner, f"{path}.{name}" if path else name
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield schema[key], f"{path}{suffix}"


def unchecked(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Rules that are not checked: the path each applies to ("" for the object itself) and its text."""
    for rule in schema.get("x-kubernetes-validations") or ():
        text = str(rule.get("rule", ""))
        if _program(text) is None:
            yield path, text
    for inner, at in _inner(schema, path):
        yield from unchecked(inner, at)


def has_rules(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-validations")) or any(has_rules(inner) for inner, _ in _inner(schema, ""))


def broken(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[Fault]:
    """What rules say against a value that is valid otherwise. old: what it was, None at creation or where nobody can
    tell which part of the old object it was; rules that compare with it are passed over then.
    """
    for rule in schema.get("x-kubernetes-validations") or ():
        program = _program(str(rule["rule"]))
        if program is None or (old is None and "oldSelf" in program.variables()):
            continue
        fault = _verdict(program, rule, value, old, schema, path)
        if fault is not None:
            yield fault
    if isinstance(value, dict):
        earlier = old if isinstance(old, dict) else _NOTHING
        properties: Mapping[str, Schema] = schema.get("properties") or _NOTHING
        extra = schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, extra)
            if isinstance(inner, dict):
                yield from broken(item, earlier.get(name), inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for index, item in enumerate(value):
            yield from broken(item, _counterpart(item, old, keys), schema["items"], f"{path}[{index}]")


def _counterpart(item: Any, old: Any, keys: tuple[str, ...]) -> Any:
    """The item of the old list with the same keys; only items of list maps can be told apart."""
    if not keys or not isinstance(old, list):
        return None
    return next((was for was in old if all(was.get(key) == item.get(key) for key in keys)), None)


def _verdict(program: Any, rule: Schema, value: Any, old: Any, schema: Schema, path: str) -> Fault | None:
    variables = {"self": value, "oldSelf": old}
    message = str(rule.get("message") or f"failed rule: {rule['rule']}")
    try:
        if program.execute(variables) is True:
            return None
        expression = _program(str(rule["messageExpression"])) if "messageExpression" in rule else None
        if expression is not None:
            message = str(expression.execute(variables))
    except (RuntimeError, KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        message = f"rule evaluation error: {rule['rule']}: {error}"
    at = path + str(rule.get("fieldPath") or "")
    reason = str(rule.get("reason") or "FieldValueInvalid")
    shown = "Required value" if reason == "FieldValueRequired" else f'Invalid value: "{schema.get("type", "object")}"'
    if reason == "FieldValueForbidden":
        shown = "Forbidden"
    return Fault(at, reason, f"{shown}: {message}")
