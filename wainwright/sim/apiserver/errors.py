"""Errors as a Kubernetes API server reports them: Status objects with code, reason and details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wainwright.sim.apiserver.kinds import Kind


BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""The largest request body, as of the real server."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One field that does not validate. `reason` is FieldValueRequired, FieldValueInvalid and so on."""

    field: str
    reason: str
    message: str


_INTRODUCTIONS = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
}


def required(field: str, detail: str = "") -> Fault:
    return Fault(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: object, detail: str) -> Fault:
    return Fault(field, "FieldValueInvalid", f"Invalid value: {_quote(value)}: {detail}")


def unsupported(field: str, value: object, supported: Sequence[str]) -> Fault:
    options = ", ".join(f'"{option}"' for option in supported)
    return Fault(field, "FieldValueNotSupported", f"Unsupported value: {_quote(value)}: supported values: {options}")


def forbidden_field(field: str, detail: str) -> Fault:
    return Fault(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> Fault:
    return Fault(field, "FieldValueDuplicate", f"Duplicate value: {_quote(value)}")


def mistyped(field: str, value: object, wanted: str) -> Fault:
    found = _type_name(value)
    return Fault(
        field,
        "FieldValueTypeInvalid",
        f'Invalid value: "{found}": {field} in body must be of type {wanted}: "{found}"',
    )


def _quote(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (dict, list)):
        import msgspec

        return msgspec.json.encode(value).decode()
    return str(value)


def _type_name(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "null"


class ApiError(Exception):
    """A request that was refused. `status()` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self._has_details = details is not None
        self.retry_after_seconds = retry_after_seconds
        self.continuation = ""
        """Continue token that goes into the metadata of the Status."""
        if retry_after_seconds:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continuation} if self.continuation else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details or self._has_details:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(kind, name))


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Fault] = ()) -> ApiError:
    details = _details(kind, name)
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def invalid_object(kind: Kind, name: str, faults: Sequence[Fault]) -> ApiError:
    texts = [f"{fault.field}: {fault.message}" if fault.field else fault.message for fault in faults]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.name
    details["causes"] = [{"reason": f.reason, "message": f.message, "field": f.field} for f in faults]
    return ApiError(422, "Invalid", f'{kind.title} "{name}" is invalid: {text}', details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unknown_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large_version(wanted: int, current: int) -> ApiError:
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after_seconds=1,
    )


def too_many_requests(message: str, retry_after_seconds: int, causes: Sequence[dict[str, str]] = ()) -> ApiError:
    details: dict[str, Any] = {"causes": list(causes)} if causes else {}
    return ApiError(429, "TooManyRequests", message, details=details, retry_after_seconds=retry_after_seconds)


def too_large() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT_BYTES}")
