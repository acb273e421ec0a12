"""Windows are served by shard: one worker holds a shard's lock and closes whatever falls due in it.

However many windows are open, none holds a thread: their deadlines stand in the sorted set `windows`. The holder reads
them, sleeps until the next one, and is woken by the stream `opened` when a window opens or fills up, the only two ways
in which a deadline can come nearer.
"""

from __future__ import annotations

import math
import secrets
import threading
import zlib
from collections.abc import Callable, Sequence

import msgspec

from wainwright.batching.locks import WINDOW_LEASE_MS, Lock
from wainwright.batching.store import Store, translated
from wainwright.clock import Clock, SystemClock
from wainwright.errors import FenceLost

DEFAULT_SHARDS = 8
"""Shards of windows: as many window workers can be busy at once."""
FOR_SECONDS = 30.0
"""A holder leaves after this, so that shards spread anew over workers that came or went."""
IDLE_SECONDS = 3.0
"""A holder leaves after this long without an open window: an idle system does nothing."""
LONGEST_SLEEP_SECONDS = 0.6
"""Below a third of the lease (2.5 s), so that the lock is renewed from the loop: a hung loop loses it."""
EARLY_SECONDS = 0.05
"""A blocking read ends up to a tick of the server's clock late (8-42 ms measured), so it is asked to end this early."""
NAP_SECONDS = 0.02
"""The rest is slept here, in naps: a window that fills up meanwhile is closed after one nap."""
GATHER_SECONDS = 0.1
"""Closed batches are told at the latest after this, while more windows are being closed."""


def shard_of(node_pool: str, shards: int) -> int:
    """The same everywhere and for ever; another number of shards moves NodePools (their windows are in Redis)."""
    return zlib.crc32(node_pool.encode()) % shards


def lock_name(shard: int) -> str:
    return f"window:{shard}"


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was just closed. batch: its id; size: its pods."""

    batch: str
    size: int


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What one visit to a shard did. held: False where another holds it; closed: batches; again: windows of this shard
    are open and nobody is here, so hint it again; lost: the lock was lost on the way (another serves it).
    """

    held: bool
    closed: int = 0
    again: bool = False
    lost: bool = False


class OpenWindows(msgspec.Struct, frozen=True, kw_only=True):
    """The open windows at one instant. due_ms: deadline by NodePool; now_ms: server time; position: of `opened`."""

    due_ms: dict[str, int]
    now_ms: int
    position: str

    def of_shard(self, shard: int, shards: int) -> dict[str, int]:
        return {pool: due for pool, due in self.due_ms.items() if shard_of(pool, shards) == shard}


def open_windows(store: Store) -> OpenWindows:
    """One round trip; the position is not younger than the windows, so reading on from it misses nothing."""
    with translated():
        pipe = store.redis.pipeline(transaction=False)
        pipe.xrevrange(store.keys.opened, count=1)
        pipe.time()
        pipe.zrange(store.keys.windows, 0, -1, withscores=True)
        last, (seconds, microseconds), windows = pipe.execute()
    return OpenWindows(
        due_ms={pool: int(due) for pool, due in windows},
        now_ms=int(seconds) * 1000 + int(microseconds) // 1000,
        position=str(last[0][0]) if last else "0-0",
    )


def close_window(store: Store, lock: Lock, node_pool: str) -> Closed | None:
    """Closes the NodePool's window if it is due, under the shard's lock; None where nothing usable came of it.

    Raises FenceLost when the lock is not held any more, StoreUnavailable when nobody knows (safe to repeat).
    """
    reply = store.run("close", *lock.claim, node_pool, secrets.token_hex(4))
    if reply[0] == "fenced":
        raise FenceLost(f"the lock {lock.name} was lost before the window of {node_pool} was closed")
    if reply[0] != "closed" or not reply[1]:
        return None
    return Closed(batch=reply[1], size=int(reply[2]))


def overdue(store: Store, shards: int) -> list[int]:
    """Shards with open windows and nobody to serve them: what the sweep hints."""
    windows = open_windows(store)
    waiting = sorted({shard_of(pool, shards) for pool in windows.due_ms})
    if not waiting:
        return []
    with translated():
        pipe = store.redis.pipeline(transaction=False)
        for shard in waiting:
            pipe.exists(store.keys.lock(lock_name(shard)))
        held = pipe.execute()
    return [shard for shard, is_held in zip(waiting, held, strict=True) if not is_held]


def serve_shard(
    store: Store,
    shard: int,
    shards: int,
    *,
    stop: threading.Event,
    on_closed: Callable[[Sequence[Closed]], None],
    for_seconds: float = FOR_SECONDS,
    idle_seconds: float = IDLE_SECONDS,
    clock: Clock | None = None,
) -> Served:
    """Closes the windows of a shard as they fall due, until for_seconds are over, idle_seconds passed idle, or stop.

    on_closed: gets the batches just closed (several when they fell due together), to hint the solve; while it runs, no
    window closes. Its errors end the visit. Raises StoreUnavailable; the sweep finds the shard again.
    """
    clock = clock or SystemClock()
    lock = Lock(store, lock_name(shard), WINDOW_LEASE_MS, clock=clock)
    if lock.acquire() is None:
        return Served(held=False)
    visit = _Visit(store, shard, shards, lock, stop, on_closed, clock)
    try:
        visit.run(for_seconds, idle_seconds)
    except FenceLost:
        return Served(held=True, closed=visit.closed, lost=True)
    finally:
        lock.release()
    # An adder that saw the lock held did not hint: look once more after it is free.
    again = bool(open_windows(store).of_shard(shard, shards))
    return Served(held=True, closed=visit.closed, again=again)


class _Visit:
    """One holder's stay in a shard."""

    def __init__(
        self,
        store: Store,
        shard: int,
        shards: int,
        lock: Lock,
        stop: threading.Event,
        on_closed: Callable[[Sequence[Closed]], None],
        clock: Clock,
    ) -> None:
        self.closed = 0
        self._store = store
        self._shard = shard
        self._shards = shards
        self._lock = lock
        self._stop = stop
        self._on_closed = on_closed
        self._clock = clock

    def run(self, for_seconds: float, idle_seconds: float) -> None:
        started_seconds = busy_seconds = self._clock.monotonic_seconds()
        while not self._stop.is_set():
            self._keep()
            windows = open_windows(self._store)
            mine = windows.of_shard(self._shard, self._shards)
            due = sorted((pool for pool in mine if mine[pool] <= windows.now_ms), key=mine.__getitem__)
            self._close(due)
            now_seconds = self._clock.monotonic_seconds()
            if mine:
                busy_seconds = now_seconds
            elif now_seconds - busy_seconds >= idle_seconds:
                return
            if now_seconds - started_seconds >= for_seconds:
                return
            if not due:
                next_ms = min(mine.values(), default=None)
                self._sleep(windows.position, None if next_ms is None else (next_ms - windows.now_ms) / 1000)

    def _keep(self) -> None:
        if not self._lock.keep():
            raise FenceLost(f"the lock {self._lock.name} was lost")

    def _close(self, due: Sequence[str]) -> None:
        told_seconds = self._clock.monotonic_seconds()
        closed: list[Closed] = []
        for pool in due:
            self._keep()
            batch = close_window(self._store, self._lock, pool)
            if batch is not None:
                self.closed += 1
                closed.append(batch)
            if closed and self._clock.monotonic_seconds() - told_seconds > GATHER_SECONDS:
                self._on_closed(closed)
                closed, told_seconds = [], self._clock.monotonic_seconds()
        if closed:
            self._on_closed(closed)

    def _sleep(self, position: str, until_due_seconds: float | None) -> None:
        """Until the next deadline, or until a window opens or fills up (in any shard), or some while."""
        seconds = LONGEST_SLEEP_SECONDS if until_due_seconds is None else min(until_due_seconds, LONGEST_SLEEP_SECONDS)
        block_ms = math.floor((seconds - EARLY_SECONDS) * 1000)
        if block_ms < 1:
            self._stop.wait(max(0.001, min(seconds, NAP_SECONDS)))
            return
        with translated():
            self._store.blocking.xread({self._store.keys.opened: position}, count=1, block=block_ms)
