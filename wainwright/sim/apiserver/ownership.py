"""Server-side apply: who owns which field, conflicts, and what a manager gives up by leaving it out.

Owners are tracked from the first apply on: an object that was only ever created, replaced or patched has no
managedFields, and its first apply finds all its fields with the manager `before-first-apply`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import ApiError
from wainwright.sim.apiserver.kinds import Object
from wainwright.sim.apiserver.shapes import KEY_DEFAULTS, Shape

Path = tuple[str, ...]
"""Steps as FieldsV1 writes them: `f:spec`, `k:{"name":"web"}`, `v:"item"`."""

_FIRST = "before-first-apply"
_NOBODYS = {"apiVersion", "kind"}
_NOBODYS_METADATA = frozenset(
    {"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
)
_PRESENT = object()
"""The value of a list item as such, beside its fields."""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, how (Apply or Update), through which sub-resource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(slots=True)
class Claim:
    """What one manager owns."""

    manager: Manager
    api_version: str
    time: str
    paths: set[Path]


def leaves(obj: Object, shape: Shape) -> dict[Path, Any]:
    """The value of every field that can be owned, by path."""
    found: dict[Path, Any] = {}
    for key, value in obj.items():
        if key == "metadata":
            owned = {name: item for name, item in value.items() if name not in _NOBODYS_METADATA}
            if owned:
                _walk(owned, shape.field(key), ("f:metadata",), found)
        elif key not in _NOBODYS:
            _walk(value, shape.field(key), (f"f:{key}",), found)
    return found


def _walk(value: Any, shape: Shape, path: Path, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value and not shape.atomic:
        for key, item in value.items():
            _walk(item, shape.field(key), (*path, f"f:{key}"), found)
    elif isinstance(value, list) and value and shape.list_keys:
        for item in value:
            step = (*path, _step(item, shape.list_keys))
            found[step] = _PRESENT
            if isinstance(item, dict):
                _walk(item, shape.item(), step, found)
    elif isinstance(value, list) and value and shape.is_set:
        for item in value:
            found[*path, f"v:{_json(item)}"] = _PRESENT
    else:
        found[path] = value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _step(item: Any, keys: tuple[str, ...]) -> str:
    values = {key: item.get(key, KEY_DEFAULTS.get(key)) for key in sorted(keys)} if isinstance(item, dict) else item
    return f"k:{_json(values)}"


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Live values with what a configuration says put over them."""
    if isinstance(config, dict) and isinstance(live, dict) and not shape.atomic:
        merged = dict(live)
        for key, value in config.items():
            merged[key] = merge(live.get(key), value, shape.field(key))
        return merged
    if isinstance(config, list) and isinstance(live, list) and shape.list_keys:
        places = {_step(item, shape.list_keys): index for index, item in enumerate(live)}
        items = list(live)
        for item in config:
            place = places.get(_step(item, shape.list_keys))
            if place is None:
                items.append(item)
            else:
                items[place] = merge(items[place], item, shape.item())
        return items
    if isinstance(config, list) and isinstance(live, list) and shape.is_set:
        return live + [item for item in config if item not in live]
    return config


# managedFields ----------------------------------------------------------------------------------------------------


def claims_of(obj: Object) -> list[Claim]:
    found = []
    for entry in obj["metadata"].get("managedFields") or ():
        paths: set[Path] = set()
        _read(entry.get("fieldsV1") or {}, (), paths)
        manager = Manager(entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", ""))
        found.append(Claim(manager, entry.get("apiVersion", ""), entry.get("time", ""), paths))
    return found


def _read(fields: Object, path: Path, found: set[Path]) -> None:
    if not fields and path:
        found.add(path)
    for step, inner in fields.items():
        if step == ".":
            found.add(path)
        else:
            _read(inner, (*path, step), found)


def _written(paths: Iterable[Path]) -> Object:
    fields: Object = {}
    for path in sorted(paths, key=len):
        node = fields
        for depth, step in enumerate(path):
            inner = node.get(step)
            if inner is None:
                inner = node[step] = {}
            elif not inner and depth < len(path) - 1:
                inner["."] = {}
            node = inner
    return fields


def managed_fields(claims: Iterable[Claim]) -> list[Object]:
    entries = []
    for claim in claims:
        if not claim.paths:
            continue
        entry = {
            "manager": claim.manager.name,
            "operation": claim.manager.operation,
            "apiVersion": claim.api_version,
            "time": claim.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _written(claim.paths),
        }
        if claim.manager.subresource:
            entry["subresource"] = claim.manager.subresource
        entries.append(entry)
    return entries


def apply(
    live: Object | None, config: Object, manager: Manager, shape: Shape, api_version: str, time: str, *, force: bool
) -> Object:
    """The object that a manager's configuration makes of the live one, managedFields included.

    Raises ApiError 409 naming every field that another manager owns with another value, unless `force` takes them over.
    """
    wanted = leaves(config, shape)
    base: Object = live if live is not None else {}
    had = leaves(live, shape) if live is not None else {}
    claims = claims_of(live) if live is not None else []
    if live is not None and not claims:
        created = live["metadata"].get("creationTimestamp", time)
        claims = [Claim(Manager(_FIRST, "Update"), api_version, created, set(had))]
    own = next((claim for claim in claims if claim.manager == manager), None)
    others = [claim for claim in claims if claim.manager != manager]
    changed = {path for path, value in wanted.items() if had.get(path, _MISSING) != value}
    contested = [(claim, sorted(claim.paths & changed)) for claim in others]
    contested = [(claim, paths) for claim, paths in contested if paths]
    if contested and not force:
        raise _conflict(contested)
    for claim, paths in contested:
        claim.paths -= set(paths)
    merged: Object = merge(base, config, shape)
    dropped = (own.paths if own else set()) - set(wanted)
    kept = set(wanted).union(*(claim.paths for claim in others))
    for path in sorted(dropped, key=len):  # an item before its fields, whose keys name it
        if not any(other[: len(path)] == path for other in kept):
            merged = _without(merged, path, shape)
    same = own is not None and own.paths == set(wanted) and not changed
    mine = Claim(manager, api_version, own.time if own is not None and same else time, set(wanted))
    merged["metadata"] = {**merged["metadata"], "managedFields": managed_fields([mine, *others])}
    return merged


_MISSING = object()


def _conflict(contested: list[tuple[Claim, list[Path]]]) -> ApiError:
    causes, lines = [], []
    for claim, paths in contested:
        who = f'"{claim.manager.name}"'
        if claim.manager.subresource:
            who += f' with subresource "{claim.manager.subresource}"'
        if claim.manager.operation == "Update":
            who += f" using {claim.api_version}" + (f" at {claim.time}" if claim.time else "")
        fields = [_dotted(path) for path in paths]
        lines.append(
            f"conflict with {who}: {fields[0]}"
            if len(fields) == 1
            else f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields)
        )
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": f} for f in fields]
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    message = f"Apply failed with {count}: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, details={"causes": causes})


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += f"[{','.join(f'{key}={_json(value)}' for key, value in keys.items())}]"
        else:
            text += f"[={step[2:]}]"
    return text


def _without(value: Any, path: Path, shape: Shape) -> Any:
    """The value less what a path names; unchanged where there is no such thing."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        key = step[2:]
        if not isinstance(value, dict) or key not in value:
            return value
        if rest:
            return {**value, key: _without(value[key], rest, shape.field(key))}
        return {name: item for name, item in value.items() if name != key}
    if not isinstance(value, list):
        return value
    if step.startswith("v:"):
        return [item for item in value if f"v:{_json(item)}" != step]
    items = []
    for item in value:
        if _step(item, shape.list_keys) != step:
            items.append(item)
        elif rest:
            items.append(_without(item, rest, shape.item()))
    return items


def after_update(new: Object, old: Object, manager: Manager, shape: Shape, api_version: str, time: str) -> list[Object]:
    """ManagedFields after another write than an apply: what it changed is the writer's, and nobody else's."""
    before, after = leaves(old, shape), leaves(new, shape)
    changed = {path for path, value in after.items() if before.get(path, _MISSING) != value}
    gone = set(before) - set(after)
    claims = claims_of(new)
    mine = next((claim for claim in claims if claim.manager == manager), None)
    for claim in claims:
        claim.paths -= gone if claim is mine else gone | changed
    if mine is None:
        mine = Claim(manager, api_version, time, set())
        claims.append(mine)
    if changed:
        mine.paths |= changed
        mine.time = time
    return managed_fields(claims)
