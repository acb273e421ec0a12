"""Gates: what `add` hands back. Open says "the batch that held this item is over, or the pod was queued anew"."""

from __future__ import annotations

import math
from typing import Any

from wainwright.batching.store import LONGEST_BLOCK_SECONDS, Store, translated
from wainwright.clock import Clock, SystemClock
from wainwright.errors import StoreUnavailable

UNREACHABLE_PAUSE_SECONDS = 0.1
"""Between two looks while Redis does not answer."""


class Gate:
    """The gate of one queued item, exact: it is open as soon as `seen` does not hold this very entry for this pod.

    entry: the item's place as `seen` holds it, `<nodepool>/<entry id>`; empty for a pod that was not queued because a
    live plan has it, or it waits to be retried, or it is set aside: that gate is open.
    """

    __slots__ = ("_clock", "_store", "entry", "uid")

    def __init__(self, store: Store, uid: str, entry: str, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self.uid = uid
        self.entry = entry

    def __repr__(self) -> str:
        return f"Gate(uid={self.uid!r}, entry={self.entry!r})"

    def is_open(self) -> bool:
        """Raises StoreUnavailable: then nobody knows."""
        return self._is_open(self._store.redis)

    def _is_open(self, client: Any) -> bool:
        if not self.entry:
            return True
        with translated():
            return bool(client.hget(self._store.keys.seen, self.uid) != self.entry)

    def wait(self, timeout_seconds: float) -> bool:
        """Blocks until the gate is open, or answers False after timeout_seconds; one look is always taken.

        The stream of gates only wakes: it is read from where it stood before the look, so no wake-up is missed, and the
        look is taken anew every few seconds, so nothing depends on the stream being kept. Redis may be emptied (then
        the gate is open), restarted or unreachable meanwhile.
        """
        until_seconds = self._clock.monotonic_seconds() + timeout_seconds
        position: str | None = None
        while True:
            try:
                if position is None:
                    position = self._last_wake_up()
                # By the client that blocks: its connection is there, and a flush wakes many waiters at once.
                if self._is_open(self._store.blocking):
                    return True
                left_seconds = until_seconds - self._clock.monotonic_seconds()
                if left_seconds <= 0:
                    return False
                position = self._next_wake_up(position, min(left_seconds, LONGEST_BLOCK_SECONDS))
            except StoreUnavailable:
                position = None
                left_seconds = until_seconds - self._clock.monotonic_seconds()
                if left_seconds <= 0:
                    return False
                self._clock.sleep(min(left_seconds, UNREACHABLE_PAUSE_SECONDS))

    def _last_wake_up(self) -> str:
        with translated():
            last = self._store.blocking.xrevrange(self._store.keys.gates, count=1)
        return str(last[0][0]) if last else "0-0"

    def _next_wake_up(self, position: str, block_seconds: float) -> str:
        with translated():
            streams: Any = self._store.blocking.xread(
                {self._store.keys.gates: position}, count=1000, block=math.ceil(block_seconds * 1000)
            )
        return str(streams[0][1][-1][0]) if streams else position
