"""Requests and answers without HTTP, and the decoding of bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import ApiError, bad_request, unsupported_media_type
from wainwright.sim.apiserver.kinds import Object
from wainwright.sim.apiserver.protobuf import MEDIA_TYPE, decode_protobuf
from wainwright.sim.apiserver.store import Watch

JSON = "application/json"
_MOST_NODES = 1_000_000
"""Values in one YAML document, aliases counted as often as they are used: a few lines can stand for billions."""


@dataclass(frozen=True, slots=True)
class Request:
    """headers: names in lower case. query: the last value of each name, decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("1", "true", "t")

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise ApiError(422, "Invalid", f'dryRun: Unsupported value: "{value}": supported values: "All"', details={})
        return bool(value)

    @property
    def manager(self) -> str:
        """Who writes: the fieldManager parameter, else the first word of the user agent."""
        return self.query.get("fieldManager") or self.headers.get("user-agent", "unknown").partition("/")[0]


@dataclass(slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class WatchStream:
    """An answer that goes on: what `watch` holds, for `timeout_seconds`, with `bookmarks` now and then."""

    watch: Watch
    timeout_seconds: float
    bookmarks: bool
    content_type: str = JSON


def answer(status: int, obj: Any) -> Response:
    return Response(status, msgspec.json.encode(obj))


def refusal(error: ApiError) -> Response:
    response = answer(error.code, error.status())
    if error.retry_after_seconds:  # 0 is no header: clients would come back at once
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def timestamp(now: datetime) -> str:
    """RFC 3339 in whole seconds, as metadata carries it."""
    return f"{now.year:04}-{now.month:02}-{now.day:02}T{now.hour:02}:{now.minute:02}:{now.second:02}Z"


def decode_object(request: Request) -> Object:
    """The object in a body. Raises ApiError 400 for what cannot be read, 415 for another format than JSON or YAML."""
    obj = decode_document(request.body, request.media_type)
    if not isinstance(obj, dict):
        raise bad_request("the request body is not an object")
    return obj


def decode_document(body: bytes, media_type: str) -> Any:
    if media_type in ("", JSON) or media_type.endswith("+json"):
        return decode_json(body)
    if media_type == MEDIA_TYPE:
        return decode_protobuf(body)
    if media_type == "application/yaml" or media_type.endswith("+yaml"):
        return _decode_yaml(body)
    raise unsupported_media_type([JSON, "application/yaml", MEDIA_TYPE])


def decode_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise bad_request(f"the object provided is unrecognized: {why}") from error


def _decode_yaml(body: bytes) -> Any:
    import yaml

    try:
        document = yaml.load(body, Loader=_yaml_loader())  # noqa: S506
        return _plain(document, [_MOST_NODES])
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from error


_LOADERS: list[Any] = []


def _yaml_loader() -> Any:
    """SafeLoader (the C one where there is one) that leaves dates as text, as JSON has none."""
    if not _LOADERS:
        import yaml

        base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        resolvers_by_character = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }
        _LOADERS.append(type("Loader", (base,), {"yaml_implicit_resolvers": resolvers_by_character}))
    return _LOADERS[0]


def _plain(value: Any, budget: list[int]) -> Any:
    """The value with text keys and no shared parts. Raises ValueError when it is too large when written out."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError("too many values")
    if isinstance(value, dict):
        return {_key(key): _plain(item, budget) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, budget) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(f"{type(value).__name__} has no JSON form")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
