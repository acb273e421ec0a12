"""Everything a cloud call can fail with, split by what the caller does next.

| error | did something happen in the cloud? | the caller |
|---|---|---|
| InsufficientCapacity | no | remembers the offerings as unavailable, tries anew with what the claim still keeps |
| RequestRefused | no | gives up this claim: the same request would be refused again |
| TokenMismatch | perhaps, under this token | is at fault: asks with `find`, then treats the claim as failing |
| InstanceTerminated | long over | makes a new attempt or lets the claim fail; the token is used up |
| Throttled | no | sends the same request again after `retry_after_seconds` |
| CloudUnavailable | unknown | sends the same request again: only a received answer ends an attempt |
| RequestExpired | no | dates the request anew, having checked that it is still wanted |
| InstanceNotFound | it is gone | goes on as after a finished deletion |
| NodeClassNotReady | no | tells the user through the NodePool's conditions, tries again later |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wainwright.scheduling.instance_types import OfferingKey

if TYPE_CHECKING:
    from wainwright.cloud.port import Instance


class CloudError(Exception):
    """Base of all of them; the message is a sentence for the user. No client library's exception leaves an adapter."""


class InsufficientCapacity(CloudError):
    """None of the request's options has room now. offerings: what turned out to be sold out; `*` matches all."""

    def __init__(self, offerings: tuple[OfferingKey, ...], message: str = "") -> None:
        self.offerings = offerings
        names = ", ".join(str(key) for key in offerings[:5]) + (", …" if len(offerings) > 5 else "")
        super().__init__(message or f"no capacity for any of {len(offerings)} offerings: {names}")


class RequestRefused(CloudError):
    """Refused for good, nothing launched. reason: one CamelCase word for conditions and events."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class TokenMismatch(RequestRefused):
    """The token was used before with another request: whatever is there under it, this request did not make it."""

    def __init__(self, message: str) -> None:
        super().__init__("TokenMismatch", message)


class InstanceTerminated(CloudError):
    """The token's instance was launched, and is terminated since (or being terminated). instance: what it was."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        super().__init__(f"instance {instance.id} of token {instance.token} is {instance.state}")


class Throttled(CloudError):
    """Too many requests; nothing was done."""

    def __init__(self, retry_after_seconds: float, message: str = "") -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message or f"the cloud throttles requests; again in {retry_after_seconds:g} s")


class CloudUnavailable(CloudError):
    """No answer was received (time-out, lost connection, internal error): what happened is unknown."""


class RequestExpired(CloudError):
    """The launch request was older than the cloud allows when it arrived; nothing was done."""


class InstanceNotFound(CloudError):
    """There is no such instance, or not any more."""


class NodeClassNotReady(CloudError):
    """The NodeClass that the NodePool names does not exist or cannot be used yet."""
