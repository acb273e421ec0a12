"""From a decider's wish to what is written: bounds, initial scale, and the way to and from zero.

`scale_step` only says what to do; it writes, probes and re-queues nothing.
Source: Knative Serving, pkg/reconciler/autoscaling/kpa (scaler.go), whose answers the golden vectors record.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Final

import msgspec

from wainwright.autoscaling.annotations import PROGRESS_DEADLINE_DEFAULT, ScalingAnnotations
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import SCALE_UNKNOWN
from wainwright.autoscaling.parsers import UNLIMITED
from wainwright.autoscaling.spec import Reachability

ACTIVATION_SLACK: Final = timedelta(seconds=30)
"""Beyond the progress deadline, so that whoever watches the pods can say first why they do not come."""
PROXY_RECHECK: Final = timedelta(seconds=3)
"""How soon to look again when a target that just lost its load is buffered already."""


class Active(enum.StrEnum):
    """Status of the Active condition. UNKNOWN: pods are wanted and awaited (activating)."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ScalePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and delays between a wish and a write.

    min_scale, max_scale: in pods, already lifted where the target is unreachable; max 0 is none, and min wins over a
    smaller max. initial_scale: acts as min_scale until the target was initialized. activation_timeout: how long
    awaited pods may take. probes_buffer: before zero, whatever buffers requests must answer in the target's place.
    sees_load_at_zero: some source can see load while there are no pods; without one, the last pod stays.
    """

    min_scale: int
    max_scale: int
    initial_scale: int
    reachable: bool
    enable_scale_to_zero: bool
    stable_window: timedelta
    grace_period: timedelta
    pod_retention: timedelta
    activation_timeout: timedelta
    probes_buffer: bool
    sees_load_at_zero: bool = True


def derive_scale_policy(
    config: AutoscalerConfig,
    annotations: ScalingAnnotations,
    *,
    reachability: Reachability = Reachability.UNKNOWN,
    progress_deadline: timedelta = PROGRESS_DEADLINE_DEFAULT,
    sees_load_at_zero: bool = True,
) -> ScalePolicy:
    """progress_deadline: the cluster's, which an annotation replaces. An unreachable target has no lower bound, no
    initial scale and no retention: nothing is sent to it.
    """
    reachable = reachability is not Reachability.UNREACHABLE
    min_scale = config.min_scale if annotations.min_scale is None else annotations.min_scale
    burst = annotations.target_burst_capacity
    retention = annotations.scale_to_zero_pod_retention_period
    if retention is None:
        retention = config.scale_to_zero_pod_retention_period
    return ScalePolicy(
        min_scale=min_scale if reachable else 0,
        max_scale=config.max_scale if annotations.max_scale is None else annotations.max_scale,
        initial_scale=config.initial_scale if annotations.initial_scale is None else annotations.initial_scale,
        reachable=reachable,
        enable_scale_to_zero=config.enable_scale_to_zero,
        stable_window=annotations.window or config.stable_window,
        grace_period=config.scale_to_zero_grace_period,
        pod_retention=retention if reachable else timedelta(),
        activation_timeout=(annotations.progress_deadline or progress_deadline) + ACTIVATION_SLACK,
        probes_buffer=(config.target_burst_capacity if burst is None else burst) != UNLIMITED,
        sees_load_at_zero=sees_load_at_zero,
    )


class Probe(enum.StrEnum):
    """Whether what buffers requests stands in front of the target."""

    UNASKED = "unasked"
    ANSWERS = "answers"
    SILENT = "silent"
    """Also when asking failed."""


class TargetState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the target. active_since: last change of the Active condition's status.

    buffered_since: since when requests are known to be buffered before the target, None when they are not known to
    be. proxying: they are routed through the buffer now. initialized: the initial scale was ready once.
    """

    active: Active
    active_since: datetime
    initialized: bool
    replicas: int
    proxying: bool = False
    buffered_since: datetime | None = None
    probe: Probe = Probe.UNASKED


class ScaleReason(enum.StrEnum):
    """Why the scale step answers as it does."""

    UNKNOWN = "Unknown"
    """There is no wish yet."""
    WISH = "Wish"
    BOUNDS = "Bounds"
    """The wish was moved by min scale, max scale or initial scale."""
    ZERO_DISABLED = "ScaleToZeroDisabled"
    NO_SOURCE_AT_ZERO = "NoSourceAtZero"
    """Nothing could see load while there are no pods, so one stays."""
    ACTIVATING = "Activating"
    ACTIVATION_TIMED_OUT = "ActivationTimedOut"
    STABLE_WINDOW = "StableWindow"
    """Active for less than a stable window: one pod stays for the rest of it."""
    DEACTIVATING = "Deactivating"
    """The target is to be marked inactive first; pods stay."""
    PROBE_WANTED = "ProbeWanted"
    """The answer depends on the probe: ask, and call again with it."""
    NOT_BUFFERED = "NotBuffered"
    POD_RETENTION = "PodRetention"
    GRACE_PERIOD = "GracePeriod"
    IDLE = "Idle"
    """Inactive for long enough: zero."""


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """scale: pods the target should have, -1 for unknown; the Active condition follows it. write: replicas to write,
    None to leave the target alone. recheck_after: look again then, though nothing may have changed.
    """

    scale: int
    write: int | None
    reason: ScaleReason
    recheck_after: timedelta | None = None

    @property
    def probe_wanted(self) -> bool:
        return self.reason is ScaleReason.PROBE_WANTED

    @property
    def keep_probing(self) -> bool:
        """The probe failed: repeat it beside the ticks until it answers."""
        return self.reason is ScaleReason.NOT_BUFFERED


def bounded(policy: ScalePolicy, wish: int, *, initialized: bool) -> int:
    """The wish within the bounds; also an unknown one (-1) rises to a min scale.

    Where the lower bound lies above the upper one, it wins for every wish, so more load never means fewer pods.
    """
    low = policy.min_scale
    if not initialized and policy.initial_scale > 1 and policy.reachable:
        low = max(low, policy.initial_scale)
    if 0 < policy.max_scale < wish:
        wish = policy.max_scale
    return max(wish, low)


def scale_step(policy: ScalePolicy, target: TargetState, wish: int, now: datetime) -> ScaleDecision:
    """What to write for a decider's wish (-1: none yet).

    A wish of 0 is carried out in steps: an active target stays until it was active for a stable window, is marked
    inactive, and goes to zero when it was inactive for the grace period (and its last pod's retention). Where
    policy.probes_buffer, the step may answer PROBE_WANTED: call it again with target.probe filled in.
    """
    if wish < 0 and target.active is not Active.UNKNOWN:
        return ScaleDecision(scale=wish, write=None, reason=ScaleReason.UNKNOWN)
    scale = bounded(policy, wish, initialized=target.initialized)
    if scale < 0:
        return ScaleDecision(scale=scale, write=None, reason=ScaleReason.UNKNOWN)
    if scale > 0:
        return _written(target, scale, ScaleReason.WISH if scale == wish else ScaleReason.BOUNDS)
    if not policy.enable_scale_to_zero:
        return _written(target, 1, ScaleReason.ZERO_DISABLED)
    if not policy.sees_load_at_zero:
        return _written(target, 1, ScaleReason.NO_SOURCE_AT_ZERO)
    lasted = now - target.active_since
    match target.active:
        case Active.UNKNOWN:
            if lasted > policy.activation_timeout:
                return _written(target, 0, ScaleReason.ACTIVATION_TIMED_OUT)
            return ScaleDecision(
                scale=SCALE_UNKNOWN,
                write=None,
                reason=ScaleReason.ACTIVATING,
                recheck_after=policy.activation_timeout,
            )
        case Active.TRUE:
            if lasted < policy.stable_window:
                return _written(target, 1, ScaleReason.STABLE_WINDOW, policy.stable_window - lasted)
            recheck = PROXY_RECHECK if target.proxying else None
            return ScaleDecision(scale=0, write=None, reason=ScaleReason.DEACTIVATING, recheck_after=recheck)
        case Active.FALSE:
            return _idle_step(policy, target, lasted, now)


def _idle_step(policy: ScalePolicy, target: TargetState, idle: timedelta, now: datetime) -> ScaleDecision:
    """The last step to zero, for a target that was marked inactive `idle` ago."""
    if policy.probes_buffer and target.probe is not Probe.ANSWERS:
        asked = target.probe is Probe.SILENT
        reason = ScaleReason.NOT_BUFFERED if asked else ScaleReason.PROBE_WANTED
        return ScaleDecision(scale=0, write=None, reason=reason)
    if idle >= max(policy.grace_period, policy.pod_retention):
        return _written(target, 0, ScaleReason.IDLE)
    if idle < policy.pod_retention:
        return ScaleDecision(
            scale=0, write=None, reason=ScaleReason.POD_RETENTION, recheck_after=policy.pod_retention - idle
        )
    buffered = now - target.buffered_since if target.buffered_since is not None else timedelta()
    if buffered >= policy.grace_period:
        return _written(target, 0, ScaleReason.IDLE)
    return ScaleDecision(
        scale=0, write=None, reason=ScaleReason.GRACE_PERIOD, recheck_after=policy.grace_period - buffered
    )


def _written(
    target: TargetState, scale: int, reason: ScaleReason, recheck_after: timedelta | None = None
) -> ScaleDecision:
    """Writes only what differs from the replicas that the target really has."""
    write = scale if scale != target.replicas else None
    return ScaleDecision(scale=scale, write=write, reason=reason, recheck_after=recheck_after)
