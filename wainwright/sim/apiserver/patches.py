"""Merge patch (RFC 7386), JSON patch (RFC 6902), and Kubernetes' strategic merge patch.

None of them changes its input: what they return shares unchanged parts with it.
"""

from __future__ import annotations

from typing import Any

from wainwright.sim.apiserver.errors import ApiError, bad_request
from wainwright.sim.apiserver.kinds import Object
from wainwright.sim.apiserver.types import fields_of


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Object, operations: Any) -> Any:
    """Raises ApiError 422 for an operation that cannot be carried out, 400 for one that is none."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document: Any = target
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("invalid JSON patch: each operation needs op and path")
        document = _operate(document, operation)
    return document


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _put(document, path, operation.get("value"), insert=True)
        case "replace":
            _read(document, path)
            return _put(document, path, operation.get("value"), insert=False)
        case "remove":
            return _without(document, path)
        case "test":
            found = _read(document, path, missing_is_null=True)
            if found != operation.get("value"):
                raise _unprocessable()
            return document
        case "move":
            source = _pointer(str(operation.get("from", "")))
            value = _read(document, source)
            return _put(_without(document, source), path, value, insert=True)
        case "copy":
            return _put(document, path, _read(document, _pointer(str(operation.get("from", "")))), insert=True)
        case other:
            raise bad_request(f"Unexpected kind: {other}")


def _unprocessable() -> ApiError:
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _pointer(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _position(items: list[Any], part: str, *, end: bool) -> int:
    if part == "-" and end:
        return len(items)
    if not part.isdigit() or int(part) > len(items) - (0 if end else 1):
        raise _unprocessable()
    return int(part)


def _read(document: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_position(document, part, end=False)]
        elif missing_is_null:
            return None
        else:
            raise _unprocessable()
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and part not in document:
            raise _unprocessable()
        return {**document, part: _put(document[part], rest, value, insert=insert) if rest else value}
    if isinstance(document, list):
        items = list(document)
        at = _position(items, part, end=insert and not rest)
        if rest:
            items[at] = _put(items[at], rest, value, insert=insert)
        elif insert:
            items.insert(at, value)
        else:
            items[at] = value
        return items
    raise _unprocessable()


def _without(document: Any, path: list[str]) -> Any:
    if not path:
        raise _unprocessable()
    part, rest = path[0], path[1:]
    if isinstance(document, dict) and part in document:
        if rest:
            return {**document, part: _without(document[part], rest)}
        return {key: value for key, value in document.items() if key != part}
    if isinstance(document, list):
        items = list(document)
        at = _position(items, part, end=False)
        if rest:
            items[at] = _without(items[at], rest)
        else:
            del items[at]
        return items
    raise _unprocessable()


def strategic_merge(target: Object, patch: Any, struct: str) -> Object:
    """Kubernetes' own merge of an object of type `struct`: listed items meet by the key that the type says; `$patch`,
    `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList` are directives.
    """
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    merged: Object = _strategic(target, patch, struct)
    return merged


def _strategic(target: Any, patch: dict[str, Any], struct: str) -> Any:
    directive = patch.get("$patch")
    plain = {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "replace":
        return plain
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise ApiError(500, "", f"unknown patch type: {directive} in map: {patch}")
    result = dict(target) if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, doomed in patch.items():
        if key.startswith("$deleteFromPrimitiveList/") and isinstance(doomed, list):
            name = key.split("/", 1)[1]
            result[name] = [item for item in result.get(name) or () if item not in doomed]
    fields = fields_of(struct) or {}
    for key, value in plain.items():
        field = fields.get(key)
        inner = field.type if field is not None else ""
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            merged = _strategic(result.get(key), value, inner.removeprefix("{}"))
            if value.get("$patch") == "delete":
                result.pop(key, None)
            else:
                result[key] = merged
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{key}")
            merge_key = field.merge_key if field is not None else None
            result[key] = _strategic_list(result.get(key), value, inner.removeprefix("[]"), merge_key, order)
        else:
            result[key] = value
    for key, order in patch.items():
        name = key.removeprefix("$setElementOrder/")
        if name != key and name not in plain and isinstance(order, list) and isinstance(result.get(name), list):
            field = fields.get(name)
            merge_key = (field.merge_key if field is not None else None) or ""
            result[name] = _ordered(result[name], order, result[name], merge_key)
    return result


def _strategic_list(target: Any, patch: list[Any], struct: str, merge_key: str | None, order: Any) -> list[Any]:
    """merge_key: None replaces the list, "" makes it a set."""
    present = list(target) if isinstance(target, list) else []
    replaced = any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch)
    if merge_key is None or replaced:
        return [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    result = list(present)
    if not merge_key:
        result += [item for item in patch if item not in present]
    for item in patch if merge_key else ():
        if not isinstance(item, dict) or merge_key not in item:
            raise ApiError(500, "", f"map: {item} does not contain declared merge key: {merge_key}")
        wanted = item[merge_key]
        at = next((i for i, old in enumerate(result) if isinstance(old, dict) and old.get(merge_key) == wanted), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_strategic({}, item, struct))
        else:
            result[at] = _strategic(result[at], item, struct)
    result = _ordered(result, patch, present, merge_key)
    return _ordered(result, order, present, merge_key) if isinstance(order, list) else result


def _ordered(items: list[Any], order: list[Any], server: list[Any], merge_key: str) -> list[Any]:
    """Items that the order names come in its order; the others are put between them, each before the first one that
    stood behind it on the server, else at the end. So a new item comes before what nobody named.
    """

    def identity(item: Any) -> Any:
        found = item.get(merge_key) if isinstance(item, dict) and merge_key else item
        return repr(found) if isinstance(found, (dict, list)) else found

    ranks = {identity(item): rank for rank, item in enumerate(order)}
    places = {identity(item): place for place, item in enumerate(server)}
    named = sorted((item for item in items if identity(item) in ranks), key=lambda item: ranks[identity(item)])
    others = [item for item in items if identity(item) not in ranks]
    merged: list[Any] = []
    while named and others:
        other, name = places.get(identity(others[0])), places.get(identity(named[0]))
        first = other is not None and name is not None and other < name
        merged.append(others.pop(0) if first else named.pop(0))
    return merged + named + others
