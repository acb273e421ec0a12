"""What the simulated cloud's service and its callers say to each other, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from wainwright.cloud.errors import (
    CloudError,
    CloudUnavailable,
    InstanceNotFound,
    InstanceTerminated,
    InsufficientCapacity,
    RequestExpired,
    RequestRefused,
    Throttled,
    TokenMismatch,
)
from wainwright.cloud.port import Instance, LaunchRequest
from wainwright.scheduling.instance_types import OfferingKey


class LaunchCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of a launch. boot_seconds: how long this one takes to boot; None: as long as the service says."""

    request: LaunchRequest
    boot_seconds: float | None = None


class InstanceList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a list. full: everything there is; else only what changed since the version that was named."""

    version: str
    full: bool
    instances: tuple[Instance, ...]


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of every answer that is not a success. error: the name of a class in wainwright.cloud.errors."""

    error: str
    message: str
    reason: str = ""
    retry_after_seconds: float = 0.0
    offerings: tuple[OfferingKey, ...] = ()
    instance: Instance | None = None


_STATUS: Final[dict[type[CloudError], HTTPStatus]] = {
    InsufficientCapacity: HTTPStatus.SERVICE_UNAVAILABLE,
    RequestRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    TokenMismatch: HTTPStatus.CONFLICT,
    InstanceTerminated: HTTPStatus.GONE,
    InstanceNotFound: HTTPStatus.NOT_FOUND,
    RequestExpired: HTTPStatus.FORBIDDEN,
    Throttled: HTTPStatus.TOO_MANY_REQUESTS,
    CloudUnavailable: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def answer_of(error: CloudError) -> tuple[HTTPStatus, ErrorAnswer]:
    """How the service says it."""
    status = _STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    name, message = type(error).__name__, str(error)
    match error:
        case InsufficientCapacity(offerings=offerings):
            return status, ErrorAnswer(error=name, message=message, offerings=offerings)
        case RequestRefused(reason=reason):
            return status, ErrorAnswer(error=name, message=message, reason=reason)
        case InstanceTerminated(instance=instance):
            return status, ErrorAnswer(error=name, message=message, instance=instance)
        case Throttled(retry_after_seconds=seconds):
            return status, ErrorAnswer(error=name, message=message, retry_after_seconds=seconds)
        case _:
            return status, ErrorAnswer(error=name, message=message)


def error_of(answer: ErrorAnswer) -> CloudError:
    """The error that an answer tells of; CloudUnavailable for one that is not known."""
    if answer.error == "InstanceTerminated" and answer.instance is not None:
        return InstanceTerminated(answer.instance)
    make = _MAKE.get(answer.error)
    return make(answer) if make else CloudUnavailable(f"{answer.error}: {answer.message}")


_MAKE: Final[dict[str, Callable[[ErrorAnswer], CloudError]]] = {
    "InsufficientCapacity": lambda answer: InsufficientCapacity(answer.offerings, answer.message),
    "RequestRefused": lambda answer: RequestRefused(answer.reason, answer.message),
    "TokenMismatch": lambda answer: TokenMismatch(answer.message),
    "InstanceNotFound": lambda answer: InstanceNotFound(answer.message),
    "RequestExpired": lambda answer: RequestExpired(answer.message),
    "Throttled": lambda answer: Throttled(answer.retry_after_seconds, answer.message),
}
