"""KPAScaler: from a wish to a write of the Scale sub-resource, with bounds, the way to zero, an event and a record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, Protocol

from wainwright.api.podautoscalers import PodAutoscaler, Scale
from wainwright.api.reasons import EventReason
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import SCALE_UNKNOWN, Decision
from wainwright.autoscaling.scale import ScaleReason, scale_step
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound, StoreUnavailable
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.podscaling.autoscalers import Autoscaler, define
from wainwright.podscaling.conditions import target_state
from wainwright.podscaling.targets import ScaleClient

logger = logging.getLogger(__name__)


class IdleFirst(Protocol):
    """Marks pods so that idle ones go first."""

    def mark(self, one: Autoscaler, selector: str, going: int) -> None:
        """going: how many pods are about to be removed. Never raises: the order is a courtesy, not a condition."""


class Scaled(NamedTuple):
    """scale: pods the target should have, -1 for unknown. written: None when nothing was. refused: why the API server
    did not take it; empty: it did, or may the next time (a conflict, no answer).
    """

    scale: int
    written: int | None
    reason: ScaleReason
    refused: str = ""


class KPAScaler:
    """Scales targets. Thread-safe. config: the configuration in force."""

    def __init__(
        self,
        scales: ScaleClient,
        store: Store,
        recorder: EventRecorder,
        idle_first: IdleFirst,
        config: Callable[[], AutoscalerConfig],
        clock: Clock,
    ) -> None:
        self._scales = scales
        self._store = store
        self._recorder = recorder
        self._idle_first = idle_first
        self._config = config
        self._clock = clock

    def scale(self, pa: PodAutoscaler, desired: int) -> int:
        """Bounds, the way to and from zero, and the write where the target really has another number.

        Returns the pods the target should have by that; -1 for unknown, also for a PodAutoscaler of another class.
        Raises KubeError (NotFound, Conflict), KubeUnavailable, and ViewNotReady while no configuration is known.
        """
        one = define(pa, self._config(), 1)
        if one is None:
            return SCALE_UNKNOWN
        return self._carry_out(one, desired, self._clock.now(), None).scale

    def carry_out(self, one: Autoscaler, desired: int, now: datetime, decision: Decision) -> Scaled:
        """The same for an autoscaler at hand; answers in place of raising, since the next tick tries again."""
        unchanged = Scaled(SCALE_UNKNOWN, None, ScaleReason.UNKNOWN)
        try:
            return self._carry_out(one, desired, now, decision)
        except Conflict:
            logger.info("action=scale_conflict pa=%s target=%s", one.key, one.target)
            return unchanged
        except KubeUnavailable as error:
            logger.warning("action=scale_put_off pa=%s why=%r", one.key, str(error))
            return unchanged
        except NotFound as error:
            return unchanged._replace(refused=f"{one.target} has no Scale: {error}")
        except KubeError as error:
            return unchanged._replace(refused=str(error))

    def _carry_out(self, one: Autoscaler, desired: int, now: datetime, decision: Decision | None) -> Scaled:
        scale = self._scales.read(one.target)
        replicas = scale.spec.replicas
        step = scale_step(one.policy, target_state(one.pa, replicas, now), desired, now)
        if step.write is None:
            return Scaled(step.scale, None, step.reason)
        if step.write < replicas:
            self._idle_first.mark(one, scale.status.selector, replicas - step.write)
        self._scales.write(one.target, scale, step.write)
        self._tell(one, scale, step.write, step.reason, why(one, decision))
        return Scaled(step.scale, step.write, step.reason)

    def _tell(self, one: Autoscaler, scale: Scale, replicas: int, reason: ScaleReason, because: str) -> None:
        before = scale.spec.replicas
        about = ObjectReference.of(POD_AUTOSCALERS, one.pa.metadata)
        kind = EventReason.SCALED_UP if replicas > before else EventReason.SCALED_DOWN
        message = f"Scaled {one.target} from {before} to {replicas} ({reason}): {because}"
        self._recorder.event(about, kind, "Normal", message)
        logger.info("action=scaled pa=%s from=%d to=%d reason=%s why=%r", one.key, before, replicas, reason, because)
        try:
            self._store.run("kpa_log", one.key, before, replicas, str(reason), because, str(one.target))
        except StoreUnavailable as error:
            logger.warning("action=scale_not_noted pa=%s why=%r", one.key, str(error))


def why(one: Autoscaler, decision: Decision | None) -> str:
    """The numbers behind a wish, for people."""
    if decision is None or decision.stable_value is None:
        return "no load known"
    parts = [f"load {decision.stable_value:g} over {one.spec.stable_window_s} s"]
    if decision.panic_value is not None:
        parts.append(f"{decision.panic_value:g} over {one.spec.panic_window_s} s")
    parts.append(f"target {one.spec.target:g} a pod")
    parts.append(f"{decision.ready_pods if decision.ready_pods is not None else '?'} pods ready")
    if decision.panic:
        parts.append("in panic")
    if decision.limits:
        parts.append(f"limited by {', '.join(decision.limits)}")
    return ", ".join(parts)
