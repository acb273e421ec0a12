"""A queue of keys to reconcile: each key once at a time, with delays and back-off."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from wainwright.sim.controllers.client import ApiError, Unreachable

_log = logging.getLogger(__name__)
_BACKOFF_SECONDS = 0.05
_MAX_BACKOFF_SECONDS = 10.0


class KeyQueue:
    """Keys waiting for `reconcile`. A key added while it is worked on is worked on again afterwards.

    A key is never worked on twice at once. A reconcile that fails is repeated with back-off from 50 ms to 10 s. It may
    return seconds after which to look at the key again.
    """

    def __init__(self, name: str, reconcile: Callable[[str], Awaitable[float | None]], workers: int = 8) -> None:
        self._name = name
        self._reconcile = reconcile
        self._workers = workers
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Semaphore(0)

    def add(self, key: str) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._wake.release()

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key later; of several timers of a key the earliest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._wake.acquire()
            key = self._ready.popleft()
            self._queued.discard(key)
            self._working.add(key)
            try:
                again_after = await self._reconcile(key)
                self._failures.pop(key, None)
                if again_after is not None:
                    self.add_after(key, again_after)
            except Exception as error:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                if isinstance(error, ApiError | Unreachable):
                    level = logging.DEBUG if isinstance(error, ApiError) and error.status == 409 else logging.WARNING
                    _log.log(level, "%s %s: %s", self._name, key, error)
                else:
                    _log.exception("%s %s", self._name, key)
                self.add_after(key, min(_BACKOFF_SECONDS * 2**failures, _MAX_BACKOFF_SECONDS))
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)
