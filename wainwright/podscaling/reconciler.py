"""Reconciler: brings a target to its wish and the PodAutoscaler's status up to date; writes only what differs.

Level-triggered: what a pass finds is all it needs, so a lost hint or a failed write is made good by the next tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, Final

import msgspec

from wainwright.api.meta import Condition
from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.api.reasons import ConditionType, EventReason
from wainwright.autoscaling.decider import SCALE_UNKNOWN
from wainwright.autoscaling.scale import ScaleDecision, ScaleReason, scale_step
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.kube.status import merged_conditions, write_conditions
from wainwright.podscaling.autoscalers import Autoscaler
from wainwright.podscaling.conditions import Told, target_state, told, told_aside
from wainwright.podscaling.deciding import Decided, Pass, ShardDecider
from wainwright.podscaling.metrics import KPAMetrics
from wainwright.podscaling.scaler import KPAScaler

logger = logging.getLogger(__name__)

_WARNED_TYPES: Final = (
    ConditionType.SETTINGS_VALID,
    ConditionType.SCALE_TARGET_FOUND,
    ConditionType.METRICS_AVAILABLE,
)
"""Conditions whose turning bad is worth a Warning event."""


class Reconciler:
    """Thread-safe. executor: does the writes; a pass does not wait for them."""

    def __init__(
        self,
        kube: KubeClient,
        decider: ShardDecider,
        scaler: KPAScaler,
        metrics: KPAMetrics,
        recorder: EventRecorder,
        executor: Executor,
    ) -> None:
        self._kube = kube
        self._decider = decider
        self._scaler = scaler
        self._metrics = metrics
        self._recorder = recorder
        self._executor = executor
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def reconcile(self, key: str) -> None:
        """One step for "namespace/name", here and now: its decider exists and is current, its target has the scale it
        should have, its status says so. A key that is none is reported and dropped; an autoscaler that does not exist
        is forgotten. Raises ViewNotReady, StoreUnavailable.
        """
        namespace, slash, name = key.partition("/")
        if not slash or not namespace or not name or "/" in name:
            logger.error("action=malformed_key key=%r", key)
            return
        passed = self._decider.look([key])
        if not passed.decided and not passed.aside:
            passed = self._decider.decide_keys([key])
        if not passed.decided and not passed.aside:
            self._metrics.delete(namespace, name)
            return
        for work in self._works(passed):
            work()

    def carry_out(self, passed: Pass) -> int:
        """Begins the writes that a pass calls for; how many autoscalers have any. One that is still being written to is
        left to the next pass.
        """
        begun = 0
        for work in self._works(passed):
            self._executor.submit(work)
            begun += 1
        return begun

    # What there is to do ----------------------------------------------------------------------------------------------

    def _works(self, passed: Pass) -> list[Callable[[], None]]:
        works: list[Callable[[], None]] = []
        for decided in passed.decided:
            if not decided.written:
                continue
            step = first_step(decided, passed.now)
            if step.write is not None or self._says_something_new(
                decided.autoscaler.pa, told(decided, step, passed.now), passed.now
            ):
                self._add(works, decided.autoscaler.key, lambda d=decided, s=step: self._bring(d, s, passed.now))  # type: ignore[misc]
        for one in passed.aside:
            status = told_aside(one)
            if not one.pa.is_terminating and self._says_something_new(one.pa, status, passed.now):
                self._add(works, one.key, lambda o=one, s=status: self._write_status(o, s, passed.now))  # type: ignore[misc]
        return works

    def _add(self, works: list[Callable[[], None]], key: str, work: Callable[[], None]) -> None:
        with self._lock:
            if key in self._busy:
                return
            self._busy.add(key)

        def guarded() -> None:
            try:
                work()
            except Exception:
                logger.exception("action=reconcile_failed pa=%s", key)
            finally:
                with self._lock:
                    self._busy.discard(key)

        works.append(guarded)

    # Doing it ---------------------------------------------------------------------------------------------------------

    def _bring(self, decided: Decided, step: ScaleDecision, now: datetime) -> None:
        one = decided.autoscaler
        refused = ""
        if step.write is not None:
            scaled = self._scaler.carry_out(one, decided.desired, now, decided.decision)
            refused = scaled.refused
            if refused:
                about = ObjectReference.of(POD_AUTOSCALERS, one.pa.metadata)
                self._recorder.event(about, EventReason.SCALE_REFUSED, "Warning", refused)
            elif scaled.written is None and scaled.scale == SCALE_UNKNOWN:
                return  # a conflict, or no answer: the next tick
        self._write_status(one, told(decided, step, now, refused=refused), now)

    def _write_status(self, one: Autoscaler, status: Told, now: datetime) -> None:
        pa = one.pa
        beside = _beside(pa, status)
        try:
            written = write_conditions(
                self._kube,
                POD_AUTOSCALERS,
                pa.metadata,
                pa.status.conditions,
                status.conditions,
                now,
                beside=beside,
                beside_changed=bool(beside),
            )
        except (Conflict, NotFound):
            return  # another version by now: the next tick has it
        except (KubeError, KubeUnavailable) as error:
            logger.warning("action=status_not_written pa=%s why=%r", one.key, str(error))
            return
        if written:
            self._warn(pa, status.conditions)

    def _warn(self, pa: PodAutoscaler, conditions: tuple[Condition, ...]) -> None:
        for condition in conditions:
            before = pa.condition(condition.type)
            same = before is not None and (before.status, before.message) == (condition.status, condition.message)
            first = before is None and condition.status == "Unknown"
            if condition.type in _WARNED_TYPES and condition.status != "True" and not same and not first:
                about = ObjectReference.of(POD_AUTOSCALERS, pa.metadata)
                self._recorder.event(about, condition.reason, "Warning", condition.message or condition.reason)

    @staticmethod
    def _says_something_new(pa: PodAutoscaler, status: Told, now: datetime) -> bool:
        return bool(_beside(pa, status)) or merged_conditions(pa.status.conditions, status.conditions, now) is not None


def first_step(decided: Decided, now: datetime) -> ScaleDecision:
    """The scale step as far as the view tells; nothing to write where the target cannot be seen."""
    one, facts = decided.autoscaler, decided.target
    if not facts.exists:
        return ScaleDecision(scale=SCALE_UNKNOWN, write=None, reason=ScaleReason.UNKNOWN)
    return scale_step(one.policy, target_state(one.pa, facts.replicas, now), decided.desired, now)


def _beside(pa: PodAutoscaler, status: Told) -> dict[str, Any]:
    """Fields of the status that change; empty when none does."""
    held = pa.status
    beside: dict[str, Any] = {}
    if status.desired_scale is not None and status.desired_scale != held.desired_scale:
        beside["desiredScale"] = status.desired_scale
    if status.actual_scale is not None and status.actual_scale != held.actual_scale:
        beside["actualScale"] = status.actual_scale
    if pa.metadata.generation != held.observed_generation:
        beside["observedGeneration"] = pa.metadata.generation
    if status.sources is not None and status.sources != held.metrics:
        beside["metrics"] = [
            {**msgspec.to_builtins(one), **({"since": f"{one.since:%Y-%m-%dT%H:%M:%SZ}"} if one.since else {})}
            for one in status.sources
        ]
    return beside
