"""Instants as the autoscaler counts them: whole seconds for buckets, milliseconds for state that lives in Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def unix_second(now: datetime) -> int:
    """The second that `now` lies in (rounded down), in whole-number arithmetic: no float can move it."""
    return (now - _EPOCH) // _SECOND


def unix_ms(now: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (now - _EPOCH) // _MILLISECOND


def from_unix_ms(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
