"""KPAMetrics: the deciders of all autoscalers, kept in Redis. Names and meaning are those of Knative's first KPA
(pkg/reconciler/v1alpha1/autoscaling/kpa, v0.3): get, create, delete, watch, update.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from wainwright.autoscaling.decider import SCALE_UNKNOWN, DeciderState
from wainwright.autoscaling.instants import from_unix_ms
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.batching.store import LONGEST_BLOCK_SECONDS, Store, translated
from wainwright.errors import PermanentError, StoreUnavailable
from wainwright.podscaling.records import Record, decode_record, encode_record

logger = logging.getLogger(__name__)

ScaleUnknown: Final = SCALE_UNKNOWN
"""No recommendation yet; never written to a target."""
KEPT: Final = 20_000
"""Changed wishes that are kept, at least; who falls further behind is told of every key."""
_PAGE: Final = 500
_PAUSE_SECONDS: Final = 0.5


class MetricNotFound(PermanentError):
    """There is no decider under this namespace and name."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A decider. spec: what it decides by. desired_scale: its last wish, ScaleUnknown before the first. uid: of the
    PodAutoscaler it is for.
    """

    namespace: str
    name: str
    spec: DeciderSpec
    uid: str = ""
    desired_scale: int = ScaleUnknown
    excess_burst_capacity: int = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def metric_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


class Watching:
    """A watcher of wishes, running; `stop` ends it."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._stop,), name="wishes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, seconds: float) -> bool:
        """Waits for its end; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


class KPAMetrics:
    """The deciders in Redis. Thread-safe; every method but `watch` raises StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, namespace: str, name: str) -> Metric:
        """Raises MetricNotFound."""
        key = metric_key(namespace, name)
        keys = self._store.keys
        with translated():
            pipe: Any = self._store.raw.pipeline(transaction=True)
            pipe.get(keys.kpa_state(key))
            pipe.hget(keys.kpa_specs, key)
            text, spec = pipe.execute()
        record = decode_record(text)
        if record is None or spec is None:
            raise MetricNotFound(f"there is no decider for {key}")
        return _metric(namespace, name, record, spec)

    def create(self, metric: Metric, *, ready_pods: int = 0) -> Metric:
        """Begins a decider; one that is there already is kept, and returned. A new one has no wish yet."""
        now_ms = self._store.now_ms()
        state = DeciderState.start(metric.spec, ready_pods, from_unix_ms(now_ms))
        record = Record(decided_ms=now_ms, uid=metric.uid, state=state)
        answer = self._store.run("kpa_create", metric.key, encode_record(record), msgspec.json.encode(metric.spec))
        kept = decode_record(answer[0])
        return _metric(metric.namespace, metric.name, kept or record, answer[1])

    def delete(self, namespace: str, name: str) -> None:
        """Forgets a decider and its statistics; deleting nothing is no error."""
        self._store.run("kpa_forget", metric_key(namespace, name))

    def update(self, metric: Metric) -> Metric:
        """Other parameters for a live decider; its statistics stay. Raises MetricNotFound.

        The next tick derives the parameters from ConfigMap and PodAutoscaler again, which have the last word.
        """
        if not self._store.run("kpa_update", metric.key, msgspec.json.encode(metric.spec)):
            raise MetricNotFound(f"there is no decider for {metric.key}")
        return self.get(metric.namespace, metric.name)

    def watch(self, fn: Callable[[str], None]) -> Watching:
        """Calls fn("namespace/name") whenever a wish changed, from a thread of its own, until stopped.

        Any number of watchers; none misses a change after this call: one that fell behind what is kept, or finds
        Redis emptied, is called with every key there is. The same key may come more than once.
        """
        position = self._newest()
        return Watching(lambda stop: self._watch(fn, position, stop))

    # Watching ---------------------------------------------------------------------------------------------------------

    def _newest(self) -> str:
        key = self._store.keys.kpa_wishes
        entries: Any = self._store.read(lambda redis: redis.xrevrange(key, count=1))
        return str(entries[0][0]) if entries else "0-0"

    def _watch(self, fn: Callable[[str], None], position: str, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                keys, position = self._changed(position)
            except StoreUnavailable:
                stop.wait(_PAUSE_SECONDS)
                continue
            for key in keys:
                try:
                    fn(key)
                except Exception:
                    logger.exception("action=wish_watcher_failed key=%s", key)

    def _changed(self, position: str) -> tuple[list[str], str]:
        """Keys whose wish changed behind `position`, and the position after them; waits a while for the first."""
        stream = self._store.keys.kpa_wishes
        with translated():
            oldest: Any = self._store.redis.xrange(stream, count=1)
            newest: Any = self._store.redis.xrevrange(stream, count=1)
        end = str(newest[0][0]) if newest else "0-0"
        emptied = _order(end) < _order(position)
        full = position == "0-0" and self._length() >= KEPT
        trimmed = full or (bool(oldest) and position != "0-0" and _order(oldest[0][0]) > _order(position))
        if emptied or trimmed:
            return self._all_keys(), end
        with translated():
            block_ms = round(LONGEST_BLOCK_SECONDS * 1000)
            answer: Any = self._store.blocking.xread({stream: position}, count=_PAGE, block=block_ms)
        entries = _entries(answer)
        if not entries:
            return [], position
        return list(dict.fromkeys(fields["pa"] for _, fields in entries)), entries[-1][0]

    def _length(self) -> int:
        length: Any = self._store.read(lambda redis: redis.xlen(self._store.keys.kpa_wishes))
        return int(length)

    def _all_keys(self) -> list[str]:
        specs: Any = self._store.read(lambda redis: redis.hkeys(self._store.keys.kpa_specs))
        return sorted(specs)


def _entries(answer: Any) -> list[tuple[str, dict[str, str]]]:
    """Of the one stream that was read."""
    return [(str(identity), fields) for identity, fields in answer[0][1]] if answer else []


def _order(identity: Any) -> tuple[int, int]:
    milliseconds, _, number = str(identity).partition("-")
    return int(milliseconds), int(number or 0)


def _metric(namespace: str, name: str, record: Record, spec: bytes | str) -> Metric:
    return Metric(
        namespace=namespace,
        name=name,
        spec=msgspec.json.decode(spec, type=DeciderSpec),
        uid=record.uid,
        desired_scale=record.state.desired,
        excess_burst_capacity=record.state.excess_burst_capacity,
    )
