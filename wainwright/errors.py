"""Error classes, split by what the caller does next. Adapters translate their client's errors into these."""

from __future__ import annotations


class WainwrightError(Exception):
    """Base of all of ours."""


class TemporaryError(WainwrightError):
    """Try again later; nothing is wrong with the request. retry_after: seconds, None where nobody said."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(WainwrightError):
    """The same request will fail again."""


class StoreUnavailable(TemporaryError):
    """Redis did not answer in time or refused; a write may or may not have happened (every write may be repeated)."""


class FenceLost(PermanentError):
    """The caller does not hold the lock or lease any more: stop, change nothing."""


class PoolNotInUse(PermanentError):
    """The NodePool is not in use under that UID (deleted, or replaced): route the pod to another one."""


class ViewIncomplete(TemporaryError):
    """The cluster view is of another epoch or not listed completely yet: wait until the watcher says so."""


class KubeUnavailable(TemporaryError):
    """The API server did not answer in time, or answered 5xx or 429; a write may or may not have happened."""


class KubeError(PermanentError):
    """The API server refused. status: HTTP code; reason: the Status object's reason."""

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFound(KubeError):
    """404."""


class AlreadyExists(KubeError):
    """409 with reason AlreadyExists."""


class Conflict(KubeError):
    """409 otherwise: another version, another UID, already bound."""


class Expired(KubeError):
    """410: the resourceVersion is older than the kept history; list anew."""


class Refused(KubeError):
    """429 of an eviction: a disruption budget holds the pod; not a server too busy."""


class ViewNotReady(TemporaryError):
    """The cluster view is missing, incomplete or stale: nothing may be decided on it."""
