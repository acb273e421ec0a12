"""What a PodAutoscaler's status says after a pass: conditions with reasons, scales, sources. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from wainwright.api.meta import Condition
from wainwright.api.podautoscalers import PodAutoscaler, SourceStatus
from wainwright.api.reasons import ConditionReason, ConditionType
from wainwright.autoscaling.conditions import active_condition
from wainwright.autoscaling.decider import SCALE_UNKNOWN, Verdict
from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.instants import from_unix_ms, unix_second
from wainwright.autoscaling.scale import Active, ScaleDecision, ScaleReason, TargetState
from wainwright.podscaling.autoscalers import Autoscaler
from wainwright.podscaling.deciding import Decided
from wainwright.podscaling.folding import source_of
from wainwright.podscaling.records import SourceRecord
from wainwright.podscaling.targets import TargetFacts

PATIENCE_SECONDS: Final = 5
"""A source that fails for less is not told of: one lost answer a minute would flip conditions for ever."""
MOST_FAULTS_TOLD: Final = 10


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A status. scales: None leaves what stands there."""

    conditions: tuple[Condition, ...]
    desired_scale: int | None = None
    actual_scale: int | None = None
    sources: tuple[SourceStatus, ...] | None = None


def target_state(pa: PodAutoscaler, replicas: int, now: datetime) -> TargetState:
    """What the scale step needs, from the conditions: their times are the state machine's clock, so it survives
    everything that the object survives.
    """
    active = pa.condition(ConditionType.ACTIVE)
    return TargetState(
        active=_active(active),
        active_since=(active.last_transition_time if active is not None else None) or now,
        initialized=is_initialized(pa),
        replicas=replicas,
    )


def is_initialized(pa: PodAutoscaler) -> bool:
    condition = pa.condition(ConditionType.SCALE_TARGET_INITIALIZED)
    return condition is not None and condition.status == "True"


def _active(condition: Condition | None) -> Active:
    try:
        return Active(condition.status) if condition is not None else Active.UNKNOWN
    except ValueError:
        return Active.UNKNOWN


def initial_scale(one: Autoscaler, facts: TargetFacts) -> int:
    """Pods that must have been ready once. A target that was made with none, and for which no annotation asks for
    more, starts at zero: waiting for a first pod would be waiting for nothing.
    """
    if facts.exists and facts.replicas == 0 and not one.is_initial_named and not one.policy.min_scale:
        return 0
    return one.policy.initial_scale


def told(decided: Decided, step: ScaleDecision, now: datetime, *, refused: str = "") -> Told:
    """The status after the scale step. refused: why the API server did not take the new scale."""
    one, facts = decided.autoscaler, decided.target
    target = target_condition(facts, refused)
    metrics = _metrics_condition(decided, now)
    settings = _settings_condition(one.faults)
    ready = facts.ready or 0
    if facts.exists and facts.ready is not None:
        active, initialized = _active_conditions(one, facts, step, ready)
    else:
        active = one.pa.condition(ConditionType.ACTIVE) or Condition(type=ConditionType.ACTIVE)
        initialized = _initialized_condition(done=is_initialized(one.pa))
    return Told(
        conditions=_with_ready(one, (settings, target, metrics, initialized, active)),
        desired_scale=None if step.scale == SCALE_UNKNOWN else step.scale,
        actual_scale=None if facts.ready is None else ready,
        sources=_sources(decided, now),
    )


def told_aside(one: Autoscaler) -> Told:
    """The status of one that cannot work: faulty, or somebody else's target."""
    if one.rival:
        message = f"PodAutoscaler {one.rival} is older and scales {one.target} already; nothing is done here"
        target = _condition(ConditionType.SCALE_TARGET_FOUND, "False", ConditionReason.TARGET_SHARED, message)
        return Told(conditions=_with_ready(one, (_settings_condition(one.faults), target)))
    return Told(conditions=_with_ready(one, (_settings_condition((*one.refused, *one.faults)),)))


def target_condition(facts: TargetFacts, refused: str) -> Condition:
    type_ = ConditionType.SCALE_TARGET_FOUND
    if refused:
        return _condition(type_, "False", ConditionReason.SCALE_REFUSED, refused)
    if facts.exists is False:
        return _condition(type_, "False", ConditionReason.TARGET_NOT_FOUND, facts.problem)
    if facts.exists is None or facts.ready is None:
        return _condition(type_, "Unknown", ConditionReason.TARGET_UNKNOWN, facts.problem)
    return _condition(type_, "True", ConditionReason.TARGET_FOUND)


def _active_conditions(
    one: Autoscaler, facts: TargetFacts, step: ScaleDecision, ready: int
) -> tuple[Condition, Condition]:
    """Active, and ScaleTargetInitialized."""
    before = _active(one.pa.condition(ConditionType.ACTIVE))
    found = active_condition(
        before=before,
        initialized=is_initialized(one.pa),
        wish=step.scale,
        ready_pods=ready,
        min_scale=one.policy.min_scale,
        initial_scale=initial_scale(one, facts),
    )
    reason, message = str(found.reason) or str(ConditionReason.ACTIVE), ""
    if step.reason is ScaleReason.NO_SOURCE_AT_ZERO:
        reason = ConditionReason.NO_SOURCE_AT_ZERO
        message = "One pod stays without load: the source `pods` cannot see load while there are none"
    active = _condition(ConditionType.ACTIVE, found.status, reason, message)
    return active, _initialized_condition(done=found.initialized)


def _initialized_condition(*, done: bool) -> Condition:
    type_ = ConditionType.SCALE_TARGET_INITIALIZED
    if done:
        return _condition(type_, "True", ConditionReason.INITIALIZED_ONCE)
    return _condition(type_, "Unknown", ConditionReason.NOT_INITIALIZED)


def _settings_condition(faults: Sequence[Fault]) -> Condition:
    if not faults:
        return _condition(ConditionType.SETTINGS_VALID, "True", ConditionReason.SETTINGS_VALID)
    shown = "; ".join(str(fault) for fault in faults[:MOST_FAULTS_TOLD])
    more = f"; and {len(faults) - MOST_FAULTS_TOLD} more" if len(faults) > MOST_FAULTS_TOLD else ""
    return _condition(ConditionType.SETTINGS_VALID, "False", ConditionReason.INVALID_SETTINGS, shown + more)


def _metrics_condition(decided: Decided, now: datetime) -> Condition:
    type_ = ConditionType.METRICS_AVAILABLE
    verdict = decided.decision.verdict
    if verdict is Verdict.OLDER_THAN_STATE or decided.clock_back_s:
        message = "The Redis server's clock is behind the last decision"
        return _condition(type_, "Unknown", ConditionReason.CLOCK_WENT_BACK, message)
    absent = [name for name in decided.missing if _is_told_missing(decided, name, now)]
    failing = [name for name in absent if _newest(decided, name).failed_s]
    if failing:
        message = "; ".join(f"{name}: {_newest(decided, name).message}" for name in failing)
        return _condition(type_, "False", ConditionReason.COLLECTION_FAILED, message)
    if absent:
        message = "; ".join(f"{name}: {_silence(_newest(decided, name).last_s)}" for name in absent)
        return _condition(type_, "False", ConditionReason.NO_SAMPLES, message)
    if verdict is Verdict.READY_PODS_UNKNOWN:
        return _condition(type_, "Unknown", ConditionReason.PODS_UNKNOWN, decided.target.problem)
    if verdict is Verdict.NO_DATA:
        return _condition(type_, "Unknown", ConditionReason.NOT_COLLECTED)
    return _condition(type_, "True", ConditionReason.METRICS_AVAILABLE)


def _newest(decided: Decided, source: str) -> SourceRecord:
    """The source's own record, or that of the reporter heard last."""
    found = [one for name, one in decided.record.sources.items() if source_of(name) == source]
    return max(found, key=lambda one: (one.last_s, one.failed_s), default=SourceRecord())


def _is_told_missing(decided: Decided, source: str, now: datetime) -> bool:
    created = decided.autoscaler.pa.metadata.creation_timestamp
    last = _newest(decided, source).last_s or (unix_second(created) if created is not None else 0)
    return unix_second(now) - last > PATIENCE_SECONDS


def _silence(last_s: int) -> str:
    return f"no sample since {from_unix_ms(last_s * 1000):%Y-%m-%d %H:%M:%S} UTC" if last_s else "no sample yet"


def _sources(decided: Decided, now: datetime) -> tuple[SourceStatus, ...]:
    statuses = []
    for name, source in decided.autoscaler.sources.items():
        newest = _newest(decided, name)
        absent = name in decided.missing and _is_told_missing(decided, name, now)
        message = newest.message or (_silence(newest.last_s) if absent else "")
        status = "False" if absent else "True" if newest.last_s else "Unknown"
        since = from_unix_ms(newest.since_s * 1000) if newest.since_s else None
        statuses.append(SourceStatus(name=name, type=source.type, status=status, message=message, since=since))
    return tuple(statuses)


def _with_ready(one: Autoscaler, parts: Sequence[Condition]) -> tuple[Condition, ...]:
    """Ready is True when all of them are; else it takes the reason of the first that is not."""
    first = next((part for part in parts if part.status == "False"), None) or next(
        (part for part in parts if part.status != "True"), None
    )
    if first is None:
        ready = _condition(ConditionType.READY, "True", ConditionReason.READY)
    else:
        ready = _condition(ConditionType.READY, first.status, first.reason, first.message)
    generation = one.pa.metadata.generation
    return tuple(msgspec.structs.replace(part, observed_generation=generation) for part in (*parts, ready))


def _condition(type_: str, status: str, reason: str, message: str = "") -> Condition:
    return Condition(type=str(type_), status=str(status), reason=str(reason), message=message)
