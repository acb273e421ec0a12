"""The Active condition: has the target pods for its load, is it waiting for them, or does it have no load?"""

from __future__ import annotations

import enum

import msgspec

from wainwright.autoscaling.scale import Active


class ActiveReason(enum.StrEnum):
    """NONE goes with Active=True."""

    NONE = ""
    NO_TRAFFIC = "NoTraffic"
    QUEUED = "Queued"
    TIMED_OUT = "TimedOut"


class ActiveCondition(msgspec.Struct, frozen=True, kw_only=True):
    """initialized: the initial scale was ready once (sticky; it survives scale to zero)."""

    status: Active
    reason: ActiveReason
    initialized: bool


def ready_threshold(min_scale: int, initial_scale: int, *, initialized: bool) -> int:
    """Ready pods from which on a target is active: its min scale, at least 1; before it is initialized, the larger of
    min and initial scale instead, so 0 for an initial scale of 0.
    """
    return max(min_scale, 1) if initialized else max(min_scale, initial_scale)


def active_condition(
    *,
    before: Active,
    initialized: bool,
    wish: int,
    ready_pods: int,
    min_scale: int,
    initial_scale: int,
    has_service: bool = True,
) -> ActiveCondition:
    """The condition after a reconcile.

    wish: what the scale step answered, -1 for unknown. min_scale: the bound in force (0 while unreachable).
    has_service: the target can be reached, without which it never counts as initialized.
    """
    threshold = ready_threshold(min_scale, initial_scale, initialized=initialized)
    initialized = initialized or (has_service and ready_pods >= threshold)
    was_inactive = before is Active.FALSE
    if wish == 0 or threshold == 0:
        timed_out = before is Active.UNKNOWN and threshold > 0
        status, reason = Active.FALSE, ActiveReason.TIMED_OUT if timed_out else ActiveReason.NO_TRAFFIC
    elif wish < 0 and was_inactive:
        status, reason = Active.FALSE, ActiveReason.NO_TRAFFIC
    elif ready_pods < threshold:
        status, reason = Active.UNKNOWN, ActiveReason.QUEUED
    else:
        status, reason = Active.TRUE, ActiveReason.NONE
    return ActiveCondition(status=status, reason=reason, initialized=initialized)
