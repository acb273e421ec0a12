"""Leases on Redis: a lock with a fence, and a thread that keeps a lease alive while its holder works."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from wainwright.batching.store import Store
from wainwright.clock import Clock, SystemClock
from wainwright.errors import StoreUnavailable

WINDOW_LEASE_MS = 2500
"""Lease on a shard of windows (design §5): so long windows stay shut after their worker's death, at most."""
SOLVE_LEASE_MS = 4000
"""Lease on the one solve (design §2)."""


class Lock:
    """The lock `lock:NAME`: a random holder id and a fence, a number that grows with every acquisition.

    A script that changes something on the holder's behalf demands exactly this holder and fence (`claim`), so a
    holder that slept through its lease can do nothing any more. One object is for one thread (or a `Renewal` of it).
    """

    def __init__(self, store: Store, name: str, lease_ms: int, *, clock: Clock | None = None) -> None:
        self.name = name
        self.lease_ms = lease_ms
        self.holder = secrets.token_hex(8)
        self.fence: int | None = None
        self._store = store
        self._clock = clock or SystemClock()
        self._renewed_seconds = 0.0

    @property
    def claim(self) -> tuple[str, str, int]:
        """Name, holder and fence: what fenced scripts take first. fence is 0, which nobody holds, when not acquired."""
        return self.name, self.holder, self.fence or 0

    def acquire(self) -> int | None:
        """The fence, or None while another holds it; never waits. Raises StoreUnavailable."""
        asked_seconds = self._clock.monotonic_seconds()
        fence = int(self._store.run("lock_acquire", self.name, self.holder, self.lease_ms))
        self.fence = fence or None
        self._renewed_seconds = asked_seconds
        return self.fence

    def renew(self) -> bool:
        """Starts the lease anew; False when it is lost for good. Raises StoreUnavailable: then nobody knows."""
        if self.fence is None:
            return False
        asked_seconds = self._clock.monotonic_seconds()
        if not self._store.run("lock_renew", *self.claim, self.lease_ms):
            self.fence = None
            return False
        self._renewed_seconds = asked_seconds
        return True

    def keep(self) -> bool:
        """Renews when a third of the lease has passed: for a holder that calls it in its loop, so that the lease
        shows progress and not merely life. False when it is lost.
        """
        if self._clock.monotonic_seconds() - self._renewed_seconds < self.lease_ms / 3000:
            return self.fence is not None
        return self.renew()

    def release(self) -> None:
        """Gives it back if it is still held; an unreachable Redis lets it run out. Never raises StoreUnavailable."""
        if self.fence is not None:
            with suppress(StoreUnavailable):
                self._store.run("lock_release", *self.claim)
            self.fence = None

    def renewing(self) -> Renewal:
        """`with lock.renewing() as renewal:` keeps an acquired lock alive; does not release it."""
        return Renewal(self.renew, self.lease_ms, clock=self._clock)


class Renewal:
    """Keeps a lease alive from a thread, three times per lease, while its holder works.

    renew: answers False when the lease is lost; may raise StoreUnavailable, which is tried again until the lease must
    have run out. lost: ask before every act; it is True at the latest when the lease may have been given to another,
    also right after this process was stopped for a while, before the thread has noticed.
    """

    def __init__(self, renew: Callable[[], bool], lease_ms: int, *, clock: Clock | None = None) -> None:
        self._renew = renew
        self._lease_seconds = lease_ms / 1000
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._refused = threading.Event()
        self._valid_until_seconds = self._clock.monotonic_seconds() + self._lease_seconds
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def lost(self) -> bool:
        return self._refused.is_set() or self._clock.monotonic_seconds() >= self._valid_until_seconds

    def _run(self) -> None:
        pause_seconds = self._lease_seconds / 3
        while not self._stop.wait(pause_seconds):
            asked_seconds = self._clock.monotonic_seconds()
            try:
                renewed = self._renew()
            except StoreUnavailable:
                pause_seconds = self._lease_seconds / 10
                continue
            if not renewed:
                self._refused.set()
                return
            self._valid_until_seconds = asked_seconds + self._lease_seconds
            pause_seconds = self._lease_seconds / 3

    def __enter__(self) -> Self:
        self._valid_until_seconds = self._clock.monotonic_seconds() + self._lease_seconds
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
