"""Protobuf bodies as objects. kubectl sends some (create deployment, drain, auth can-i); answers are JSON."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from wainwright.sim.apiserver.errors import bad_request, unsupported_media_type
from wainwright.sim.apiserver.kinds import Object
from wainwright.sim.apiserver.types import Field, numbered_fields, struct_of

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def decode_protobuf(body: bytes) -> Object:
    """The object in an envelope. Raises ApiError 400 for broken bodies, 415 for kinds whose fields are not known."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_entries(body[4:]))
        meta = {number: bytes(value).decode() for number, value in _entries(envelope.get(1, b""))}
        api_version, name = meta.get(1, ""), meta.get(2, "")
        group = api_version.rpartition("/")[0]
        type_ = "meta.DeleteOptions" if name == "DeleteOptions" else struct_of(group, name)
        if type_ is None:
            raise unsupported_media_type(["application/json", "application/yaml"])
        return {"kind": name, "apiVersion": api_version, **_message(bytes(envelope.get(2, b"")), type_)}
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, OverflowError, msgspec.DecodeError) as error:
        raise bad_request(f"protobuf: {error}") from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError("a number is too long")


def _entries(data: bytes | int) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a message: whole numbers, or bytes."""
    if isinstance(data, int):
        raise TypeError("a message was expected")
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                number, at = _varint(data, at)
                yield key >> 3, number
            case 1:
                yield key >> 3, data[at : at + 8]
                at += 8
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise IndexError("the message ends within a field")
                yield key >> 3, data[at : at + size]
                at += size
            case 5:
                yield key >> 3, data[at : at + 4]
                at += 4
            case wire_type:
                raise TypeError(f"wire type {wire_type} is not known")


def _message(data: bytes, type_: str) -> Object:
    fields = numbered_fields(type_)
    found: Object = {}
    for number, value in _entries(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.inline:
            found |= _message(value, field.type)
        elif field.type.startswith("[]"):
            found.setdefault(field.name, []).append(_value(value, field.type[2:]))
        elif field.type.startswith("{}"):
            key, item = _pair(value, field.type[2:])
            found.setdefault(field.name, {})[key] = item
        else:
            decoded = _value(value, field.type)
            if field.pointer or not _is_zero(decoded, field):
                found[field.name] = decoded
    return found


def _is_zero(value: Any, field: Field) -> bool:
    """Go writes fields that are no pointers even when nobody set them."""
    return value in (None, "", 0, False, {}) and (field.type != "quantity" or value in ("", None))


def _pair(data: bytes, type_: str) -> tuple[str, Any]:
    entry = dict(_entries(data))
    return bytes(entry.get(1, b"")).decode(), _value(entry.get(2, b""), type_)


def _value(value: Any, type_: str) -> Any:
    match type_:
        case "string":
            return bytes(value).decode()
        case "int":
            return value - 2**64 if value >= 2**63 else int(value)
        case "bool":
            return bool(value)
        case "float":
            return struct.unpack("<d", value)[0]
        case "bytes":
            return base64.b64encode(value).decode()
        case "time" | "microtime":
            return _time(value, micro=type_ == "microtime")
        case "quantity":
            return bytes(dict(_entries(value)).get(1, b"")).decode()
        case "intstr":
            parts = dict(_entries(value))
            return bytes(parts.get(3, b"")).decode() if parts.get(1) else _value(parts.get(2, 0), "int")
        case "raw":
            return msgspec.json.decode(dict(_entries(value)).get(1, b"null"))
        case _ if type_.startswith("[]"):
            return [_value(item, type_[2:]) for _, item in _entries(value)]
        case _:
            return _message(value, type_)


def _time(data: bytes, *, micro: bool) -> str | None:
    parts = dict(_entries(data))
    seconds = _value(parts.get(1, 0), "int")
    if not seconds:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    if micro:
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{parts.get(2, 0) // 1000:06d}Z"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
