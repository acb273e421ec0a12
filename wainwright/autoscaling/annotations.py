"""The annotations `autoscaling.knative.dev/*` of a PodAutoscaler: parsed, validated, each fault named.

The object may change at any time, so a bad value never stops it: it counts as absent, and its fault is for a
condition and an event.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.config import HPA_CLASS, KPA_CLASS, AutoscalerConfig
from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.literals import LiteralError, parse_float, parse_int32
from wainwright.autoscaling.parsers import (
    TARGET_MIN,
    SettingsReader,
    at_least,
    between,
    burst_capacity,
    duration_up_to_an_hour,
    positive_seconds,
    seconds_up_to_an_hour,
    window,
)

DOMAIN: Final = "autoscaling.knative.dev/"
PROGRESS_DEADLINE_ANNOTATION: Final = "serving.knative.dev/progress-deadline"
PROGRESS_DEADLINE_DEFAULT: Final = timedelta(seconds=600)

CLASS: Final = "class"
METRIC: Final = "metric"
MIN_SCALE: Final = "min-scale"
MAX_SCALE: Final = "max-scale"
INITIAL_SCALE: Final = "initial-scale"
ACTIVATION_SCALE: Final = "activation-scale"
TARGET: Final = "target"
TARGET_UTILIZATION: Final = "target-utilization-percentage"
TARGET_BURST_CAPACITY: Final = "target-burst-capacity"
WINDOW: Final = "window"
PANIC_WINDOW: Final = "panic-window-percentage"
PANIC_THRESHOLD: Final = "panic-threshold-percentage"
AGGREGATION: Final = "metric-aggregation-algorithm"
SCALE_DOWN_DELAY: Final = "scale-down-delay"
POD_RETENTION: Final = "scale-to-zero-pod-retention-period"

ALIASES: Final[Mapping[str, str]] = {
    MIN_SCALE: "minScale",
    MAX_SCALE: "maxScale",
    INITIAL_SCALE: "initialScale",
    TARGET_UTILIZATION: "targetUtilizationPercentage",
    TARGET_BURST_CAPACITY: "targetBurstCapacity",
    PANIC_WINDOW: "panicWindowPercentage",
    PANIC_THRESHOLD: "panicThresholdPercentage",
    AGGREGATION: "metricAggregationAlgorithm",
    SCALE_DOWN_DELAY: "scaleDownDelay",
    POD_RETENTION: "scaleToZeroPodRetentionPeriod",
}
"""Second spellings; where both are there, the one with hyphens counts."""

ACTIVATION_SCALE_MIN: Final = 2
_AGGREGATIONS: Final = {
    "linear": Aggregation.LINEAR,
    "weighted-exponential": Aggregation.WEIGHTED_EXPONENTIAL,
    "weightedExponential": Aggregation.WEIGHTED_EXPONENTIAL,
}


class Metric(enum.StrEnum):
    """What load counts: requests in flight, or requests per second."""

    CONCURRENCY = "concurrency"
    RPS = "rps"


class ScalingAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """The valid annotations; None where absent or refused. Percentages are as written, 1 to 100 or more."""

    autoscaler_class: str | None = None
    metric: Metric | None = None
    min_scale: int | None = None
    max_scale: int | None = None
    initial_scale: int | None = None
    activation_scale: int | None = None
    target: float | None = None
    target_utilization_percentage: float | None = None
    target_burst_capacity: float | None = None
    window: timedelta | None = None
    panic_window_percentage: float | None = None
    panic_threshold_percentage: float | None = None
    aggregation: Aggregation | None = None
    scale_down_delay: timedelta | None = None
    scale_to_zero_pod_retention_period: timedelta | None = None
    progress_deadline: timedelta | None = None


def parse_annotations(
    annotations: Mapping[str, str], config: AutoscalerConfig
) -> tuple[ScalingAnnotations, tuple[Fault, ...]]:
    """What the annotations ask for, and every fault in them (empty: valid).

    A value at fault by itself, or one the cluster forbids, is left out. Where two valid values contradict each other
    (max-scale below min-scale), both stay, with a fault: the bounds say which one wins.
    """
    reader = SettingsReader(annotations, prefix=DOMAIN, aliases=ALIASES)
    read = reader.value
    named = reader.text(CLASS)[1]
    autoscaler_class = KPA_CLASS if named is None else named
    if autoscaler_class.endswith("knative.dev") and autoscaler_class not in (KPA_CLASS, HPA_CLASS):
        reader.refuse(CLASS, f"must be {KPA_CLASS}, {HPA_CLASS} or a class outside knative.dev")
    deadline = SettingsReader(annotations)
    parsed = ScalingAnnotations(
        autoscaler_class=named,
        metric=_metric(reader, autoscaler_class),
        min_scale=read(MIN_SCALE, at_least(parse_int32, 0)),
        max_scale=read(MAX_SCALE, _max_scale(config)),
        initial_scale=read(INITIAL_SCALE, _initial_scale(config)),
        activation_scale=read(ACTIVATION_SCALE, at_least(parse_int32, ACTIVATION_SCALE_MIN)),
        target=read(TARGET, at_least(parse_float, TARGET_MIN)),
        target_utilization_percentage=read(TARGET_UTILIZATION, between(parse_float, 1, 100)),
        target_burst_capacity=read(TARGET_BURST_CAPACITY, burst_capacity),
        window=read(WINDOW, window),
        panic_window_percentage=read(PANIC_WINDOW, between(parse_float, 1, 100)),
        panic_threshold_percentage=read(PANIC_THRESHOLD, between(parse_float, 110, 1000)),
        aggregation=_aggregation(reader, named),
        scale_down_delay=read(SCALE_DOWN_DELAY, seconds_up_to_an_hour),
        scale_to_zero_pod_retention_period=read(POD_RETENTION, duration_up_to_an_hour),
        progress_deadline=deadline.value(PROGRESS_DEADLINE_ANNOTATION, positive_seconds),
    )
    _check_together(reader, parsed)
    return parsed, (*reader.faults, *deadline.faults)


def _max_scale(config: AutoscalerConfig) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        value, limit = at_least(parse_int32, 0)(text), config.max_scale_limit
        if limit and value == 0:
            raise LiteralError(f"0 means unlimited, and the cluster allows at most {limit}")
        if limit and value > limit:
            raise LiteralError(f"must be in [1, {limit}], the cluster's max-scale-limit")
        return value

    return parsed


def _initial_scale(config: AutoscalerConfig) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        value = at_least(parse_int32, 0)(text)
        if value == 0 and not config.allow_zero_initial_scale:
            raise LiteralError("0 is not allowed by the cluster")
        return value

    return parsed


def _metric(reader: SettingsReader, autoscaler_class: str) -> Metric | None:
    """The metric of our class. Other classes have metrics of their own, which are not ours to judge."""
    _, text = reader.text(METRIC)
    if text is None:
        return None
    if autoscaler_class == KPA_CLASS:
        try:
            return Metric(text)
        except ValueError:
            reader.refuse(METRIC, "must be concurrency or rps")
    elif autoscaler_class == HPA_CLASS and not text:
        reader.refuse(METRIC, "must not be empty")
    return None


def _aggregation(reader: SettingsReader, named_class: str | None) -> Aggregation | None:
    """As upstream, an unknown algorithm is a fault only where the class is named and ours; it reads as linear."""
    _, text = reader.text(AGGREGATION)
    if not text:
        return None
    if text not in _AGGREGATIONS and named_class == KPA_CLASS:
        reader.refuse(AGGREGATION, "must be linear or weighted-exponential")
    return _AGGREGATIONS.get(text)


def _check_together(reader: SettingsReader, parsed: ScalingAnnotations) -> None:
    low, high, activation = parsed.min_scale or 0, parsed.max_scale or 0, parsed.activation_scale
    if 0 < high < low:
        reader.refuse(MAX_SCALE, f"is less than {DOMAIN}{MIN_SCALE} ({low})")
    if activation is not None and low > activation:
        reader.refuse(ACTIVATION_SCALE, f"is less than {DOMAIN}{MIN_SCALE} ({low})")
    if activation is not None and 0 < high < activation:
        reader.refuse(ACTIVATION_SCALE, f"is greater than {DOMAIN}{MAX_SCALE} ({high})")
