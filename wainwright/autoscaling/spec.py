"""The parameters of one decider, derived from configuration, annotations and the pod's concurrency limit."""

from __future__ import annotations

import enum
import math
from datetime import timedelta
from typing import Final

import msgspec

from wainwright.autoscaling.annotations import Metric, ScalingAnnotations
from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.literals import MAX_INT32, MIN_INT32, SECOND_NS
from wainwright.autoscaling.parsers import TARGET_MIN, UNLIMITED

RPS_UTILIZATION: Final = 0.7
"""Share of the target requests per second to aim for; upstream has no setting for it."""
ACTIVATORS_MIN: Final = 2
_MICROSECOND: Final = timedelta(microseconds=1)


class Reachability(enum.StrEnum):
    """Whether traffic is routed to the target. UNREACHABLE lifts the brakes on the way down."""

    UNKNOWN = ""
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


class DeciderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision depends on besides load, ready pods and state.

    target, total: load per pod to aim for, and that a pod can bear (requests in flight or per second).
    target_burst_capacity: same unit, summed over pods; 0 none, -1 endless. panic_threshold: wished over ready pods.
    activation_scale: pods to start with when there is load at all; 0 none. Windows and delay: whole seconds.
    silence_is_zero: no samples for a whole stable window mean no load, because whatever sees load reports it by
    itself; else they mean "cannot tell".
    """

    metric: Metric = Metric.CONCURRENCY
    aggregation: Aggregation = Aggregation.LINEAR
    target: float
    total: float
    target_burst_capacity: float
    activator_capacity: float
    panic_threshold: float
    max_scale_up_rate: float
    max_scale_down_rate: float
    activation_scale: int
    initial_scale: int
    stable_window_s: int
    panic_window_s: int
    scale_down_delay_s: int
    reachable: bool
    silence_is_zero: bool


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def panic_window_s(stable_window: timedelta, percentage: float) -> int:
    """Whole seconds, rounded half up, at least 1."""
    nanoseconds = int((stable_window // _MICROSECOND) * 1000 * percentage / 100)
    return max(1, (nanoseconds + SECOND_NS // 2) // SECOND_NS)


def _defaults(config: AutoscalerConfig, metric: Metric, container_concurrency: int) -> tuple[float, float]:
    """Load that a pod can bear, and the share of it to aim for, where no annotation says otherwise."""
    match metric:
        case Metric.CONCURRENCY:
            total = float(container_concurrency) or config.container_concurrency_target_default
            return total, config.container_concurrency_target_fraction
        case Metric.RPS:
            return config.requests_per_second_target_default, RPS_UTILIZATION


def derive_spec(
    config: AutoscalerConfig,
    annotations: ScalingAnnotations,
    *,
    container_concurrency: int = 0,
    reachability: Reachability = Reachability.UNKNOWN,
    source_reports_by_itself: bool = True,
) -> DeciderSpec:
    """The decider's parameters.

    container_concurrency: requests in flight that a pod admits, 0 for any number. source_reports_by_itself: silence
    may mean zero at all (Knative: only with an endless burst capacity, where nothing is scraped); say False for a
    source that is read by us, so that one which cannot be reached never looks like no load.
    """
    metric = annotations.metric or Metric.CONCURRENCY
    total, utilization = _defaults(config, metric, container_concurrency)
    if annotations.target is not None:
        limited = metric is Metric.CONCURRENCY and container_concurrency > 0
        total = min(annotations.target, total) if limited else annotations.target
    if annotations.target_utilization_percentage is not None:
        utilization = annotations.target_utilization_percentage / 100
    burst = _or(annotations.target_burst_capacity, config.target_burst_capacity)
    window = annotations.window or config.stable_window
    delay = config.scale_down_delay if annotations.scale_down_delay is None else annotations.scale_down_delay
    return DeciderSpec(
        metric=metric,
        aggregation=annotations.aggregation or Aggregation.LINEAR,
        target=max(TARGET_MIN, total * utilization),
        total=total,
        target_burst_capacity=burst,
        activator_capacity=config.activator_capacity,
        panic_threshold=_or(annotations.panic_threshold_percentage, config.panic_threshold_percentage) / 100,
        max_scale_up_rate=config.max_scale_up_rate,
        max_scale_down_rate=config.max_scale_down_rate,
        activation_scale=annotations.activation_scale or 0,
        initial_scale=config.initial_scale if annotations.initial_scale is None else annotations.initial_scale,
        stable_window_s=int(window.total_seconds()),
        panic_window_s=panic_window_s(window, _or(annotations.panic_window_percentage, config.panic_window_percentage)),
        scale_down_delay_s=int(delay.total_seconds()),
        reachable=reachability is not Reachability.UNREACHABLE,
        silence_is_zero=source_reports_by_itself and burst == UNLIMITED,
    )


def first_excess_burst_capacity(spec: DeciderSpec) -> int:
    """What a decider says of its burst reserve before its first decision: the initial scale's, rounded to zero."""
    if spec.target_burst_capacity in (0.0, UNLIMITED):
        return int(spec.target_burst_capacity)
    spare = spec.initial_scale * spec.total - spec.target_burst_capacity
    return int(min(max(spare, MIN_INT32), MAX_INT32))


def activators_wanted(spec: DeciderSpec, ready_pods: int) -> int:
    """Request buffers in front of the target: enough for the pods' capacity plus the burst reserve, at least 2.

    Wainwright runs none; the number is kept for those who put a buffering proxy before their pods.
    """
    if spec.target_burst_capacity == 0:
        return ACTIVATORS_MIN
    load = ready_pods * spec.total + max(spec.target_burst_capacity, 0.0)
    return max(ACTIVATORS_MIN, math.ceil(load / spec.activator_capacity))
