"""Small works that must not hold up the watcher: done one after the other, the same one never queued twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from wainwright.clock import Clock, SystemClock
from wainwright.errors import TemporaryError

logger = logging.getLogger(__name__)

Work = Callable[[], None]

SHORTEST_BACKOFF: Final = 0.5
LONGEST_BACKOFF: Final = 5.0
QUIET_SECONDS: Final = 60.0
"""A work that keeps failing is reported once in so long."""


class Chores:
    """Runs works by key, earliest first; `run` is for a thread of its own.

    A work that raises a TemporaryError is done again, with back-off; any other error is reported and the work dropped
    (one that is due regularly comes again).
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._due: dict[str, tuple[float, Work]] = {}
        self._regular: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._reported: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stopped = False

    def soon(self, key: str, work: Work, *, after_seconds: float = 0.0) -> None:
        """Does the work after so long. Under a key that waits already, the newer work takes its place, at the earlier
        of both times.
        """
        with self._changed:
            at = self._clock.monotonic_seconds() + after_seconds
            waiting = self._due.get(key)
            self._due[key] = (min(at, waiting[0]) if waiting else at, work)
            self._changed.notify()

    def every(self, seconds: float, key: str, work: Work) -> None:
        """Does the work now and then again and again, so long after it was last done."""
        self._regular[key] = seconds
        self.soon(key, work)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Until `stop`."""
        while True:
            with self._changed:
                while not self._stopped and self._wait_seconds() > 0:
                    self._changed.wait(min(self._wait_seconds(), 3600.0))
                if self._stopped:
                    return
            self.run_due()

    def run_due(self) -> None:
        """Does everything that is due now, each once."""
        with self._changed:
            now = self._clock.monotonic_seconds()
            due = sorted((at, key) for key, (at, _) in self._due.items() if at <= now)
            works = [(key, self._due.pop(key)[1]) for _, key in due]
        for key, work in works:
            self._do(key, work)

    def _wait_seconds(self) -> float:
        now = self._clock.monotonic_seconds()
        return min((at - now for at, _ in self._due.values()), default=float("inf"))

    def _do(self, key: str, work: Work) -> None:
        try:
            work()
        except TemporaryError as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._report(key, error, unexpected=False)
            self._again(key, work, min(LONGEST_BACKOFF, SHORTEST_BACKOFF * 2 ** (failures - 1)))
            return
        except Exception as error:
            self._report(key, error, unexpected=True)
        else:
            self._failures.pop(key, None)
            self._reported.pop(key, None)
        if key in self._regular:
            self._again(key, work, self._regular[key])

    def _again(self, key: str, work: Work, seconds: float) -> None:
        with self._changed:
            if key not in self._due:
                self._due[key] = (self._clock.monotonic_seconds() + seconds, work)

    def _report(self, key: str, error: Exception, *, unexpected: bool) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._reported.get(key, float("-inf")) >= QUIET_SECONDS:
            self._reported[key] = now
            logger.warning("action=chore_failed chore=%s error=%s", key, error, exc_info=error if unexpected else None)
