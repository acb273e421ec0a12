"""The Batcher: pods queue for a NodePool's window, a batch comes out, its gates open when it is over.

Karpenter v0.5.4's Batcher with its state in Redis: any number of processes add, one consumer waits. In the distributed
system the consumer is `shards.serve_shard` and the tasks behind it; `wait` and `flush` are for one consumer in one
process, who embeds the Batcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import msgspec

from wainwright.batching.gates import Gate
from wainwright.batching.locks import WINDOW_LEASE_MS, Lock
from wainwright.batching.shards import DEFAULT_SHARDS, close_window, lock_name, open_windows, shard_of
from wainwright.batching.store import Store
from wainwright.clock import Clock, SystemClock
from wainwright.errors import FenceLost, PoolNotInUse, ViewIncomplete

PODS_PER_CALL = 500
"""Pods one script call adds: more gains little (190,000 a second at 500) and holds the server longer."""
LONGEST_NAP_SECONDS = 0.1
"""How long a waiting consumer sleeps before it looks again at its window."""


class Item(msgspec.Struct, frozen=True):
    """A pod to be queued: identity only; what it needs is read from the view when it is solved. pod: namespace/name."""

    uid: str
    pod: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A closed window's items in the order they came; window: how long it was open. kind: fresh, or retry."""

    id: str
    node_pool: str
    kind: str
    items: tuple[Item, ...]
    window: timedelta


class Batcher:
    """The queue of one NodePool, known by name and UID.

    epoch: when given, `add` is refused unless the cluster view has this epoch and is complete. hint: called with the
    shard when a window opened, or filled up, that nobody serves.
    """

    def __init__(
        self,
        store: Store,
        node_pool: str,
        node_pool_uid: str,
        *,
        shards: int = DEFAULT_SHARDS,
        epoch: str | None = None,
        hint: Callable[[int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.node_pool = node_pool
        self.node_pool_uid = node_pool_uid
        self.shard = shard_of(node_pool, shards)
        self.epoch = epoch
        self._store = store
        self._hint = hint
        self._clock = clock or SystemClock()
        self._handed_out: set[str] = set()

    def add(self, items: Sequence[Item]) -> list[Gate]:
        """Queues pods, each at most once however often and by whomever it is added; a gate for each, in order.

        A pod that waits already, for whichever NodePool, or is in a batch that is not over, gets the gate of that. One
        that is in a live plan, waits to be retried, or is set aside, is not queued, and its gate is open. Only a new
        pod extends the window.
        Raises PoolNotInUse, ViewIncomplete, StoreUnavailable; all may be repeated, nothing is queued twice.
        """
        gates: list[Gate] = []
        for first in range(0, len(items), PODS_PER_CALL):
            gates += self._add(items[first : first + PODS_PER_CALL])
        return gates

    def _add(self, items: Sequence[Item]) -> Iterator[Gate]:
        pods = [part for item in items for part in (item.uid, item.pod)]
        reply = self._store.run(
            "add", self.node_pool, self.node_pool_uid, lock_name(self.shard), self.epoch or "", *pods
        )
        if reply[0] == "gone":
            raise PoolNotInUse(f"NodePool {self.node_pool} is not in use under UID {self.node_pool_uid}")
        if reply[0] == "view":
            raise ViewIncomplete(f"the cluster view is not complete in epoch {self.epoch}")
        if int(reply[1]) and self._hint is not None:
            self._hint(self.shard)
        return (
            Gate(self._store, item.uid, entry, clock=self._clock) for item, entry in zip(items, reply[3:], strict=True)
        )

    def wait(self, timeout_seconds: float) -> Batch | None:
        """The next batch, or None after timeout_seconds. Closes the window itself when it is due.

        A batch is handed out once per Batcher; one that an earlier process took and did not flush comes again.
        """
        until_seconds = self._clock.monotonic_seconds() + timeout_seconds
        while True:
            batch = self._closed_batch()
            if batch is not None:
                self._handed_out.add(batch.id)
                return batch
            windows = open_windows(self._store)
            due_ms = windows.due_ms.get(self.node_pool)
            if due_ms is not None and due_ms <= windows.now_ms and self._close():
                continue
            left_seconds = until_seconds - self._clock.monotonic_seconds()
            if left_seconds <= 0:
                return None
            nap_seconds = min(LONGEST_NAP_SECONDS, left_seconds)
            if due_ms is not None:
                nap_seconds = min(nap_seconds, max(0.001, (due_ms - windows.now_ms) / 1000))
            self._clock.sleep(nap_seconds)

    def flush(self, batch: Batch, outcome: str = "flushed") -> bool:
        """Opens the gates of the batch's items, whatever came of it; False when it was over already."""
        self._handed_out.discard(batch.id)
        return flush_batch(self._store, batch.id, outcome)

    def requeue(self, batch: Batch, why: str) -> int:
        """Opens the gates and queues the pods anew; the number queued. None of a batch that is over or planned."""
        self._handed_out.discard(batch.id)
        return requeue_batch(self._store, batch.id, why)

    def _close(self) -> bool:
        """Whether there may be a batch now: closed here, or by whoever serves the shard."""
        lock = Lock(self._store, lock_name(self.shard), WINDOW_LEASE_MS, clock=self._clock)
        if lock.acquire() is None:
            return False
        try:
            close_window(self._store, lock, self.node_pool)
        except FenceLost:
            return False
        finally:
            lock.release()
        return True

    def _closed_batch(self) -> Batch | None:
        """The first closed batch of this NodePool that was not handed out yet: fresh ones first, then by age."""
        keys = self._store.keys
        closed: list[str] = self._store.read(lambda redis: redis.zrange(keys.batches("closed"), 0, -1))
        for name in closed:
            if name in self._handed_out or not name.startswith(f"{self.node_pool}-"):
                continue
            batch = read_batch(self._store, name)
            if batch is not None and batch.node_pool == self.node_pool:
                return batch
        return None


def read_batch(store: Store, batch: str) -> Batch | None:
    """The record of a batch, or None when there is none (any more)."""
    node_pool, kind, items, window_ms = store.read(
        lambda redis: redis.hmget(store.keys.batch(batch), ["nodepool", "kind", "items", "window_ms"])
    )
    if node_pool is None or items is None:
        return None
    entries = msgspec.json.decode(items, type=list[tuple[str, str, str]])
    return Batch(
        id=batch,
        node_pool=node_pool,
        kind=kind or "fresh",
        items=tuple(Item(uid, pod) for uid, pod, _ in entries),
        window=timedelta(milliseconds=int(window_ms or 0)),
    )


def flush_batch(store: Store, batch: str, outcome: str, *, lock: Lock | None = None) -> bool:
    """Ends a batch and opens its gates; False when it was over already. With a lock, raises FenceLost unless held."""
    reply = int(store.run("flush", *_claim(lock), batch, outcome))
    if reply < 0:
        raise FenceLost(f"the lock was lost before batch {batch} was flushed")
    return bool(reply)


def requeue_batch(store: Store, batch: str, why: str, *, lock: Lock | None = None) -> int:
    """Ends a closed batch and queues its pods anew, in the same step; the number queued. Pods that a complete view does
    not show as provisionable are left out. A batch that is not closed stays as it is (0).
    """
    reply = int(store.run("requeue", *_claim(lock), batch, why))
    if reply == -1:
        raise FenceLost(f"the lock was lost before batch {batch} was queued anew")
    return max(reply, 0)


def _claim(lock: Lock | None) -> tuple[str, str, int]:
    return ("", "", 0) if lock is None else lock.claim
