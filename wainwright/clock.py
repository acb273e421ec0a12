"""The only place that reads this machine's clocks. Decision code takes `now` instead."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time (aware, UTC) and monotonic seconds; tests own one that moves only when told."""

    def now(self) -> datetime: ...

    def monotonic_seconds(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
