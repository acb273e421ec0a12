"""The annotations `autoscaling.knative.dev/*` of a PodAutoscaler: parsed, validated, each fault named.

The object may change at any time, so a bad value never stops it: it counts as absent, and its fault is for a
condition and an event.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.config import (
    HPA_CLASS,
    KPA_CLASS,
    TARGET_MIN,
    WINDOW_MAX_NS,
    AutoscalerConfig,
    burst_capacity_problem,
    whole_seconds,
    window_bounds,
)
from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.literals import LiteralError, duration, parse_duration_ns, parse_float, parse_int32

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

_T = TypeVar("_T")


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


class _Reader:
    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.annotations = annotations
        self.faults: list[Fault] = []

    def text(self, name: str) -> tuple[str, str | None]:
        """Key as the user wrote it, and its text, None when absent."""
        key = DOMAIN + name
        alias = ALIASES.get(name)
        if key not in self.annotations and alias is not None and DOMAIN + alias in self.annotations:
            key = DOMAIN + alias
        return key, self.annotations.get(key)

    def refuse(self, name: str, problem: str) -> None:
        key, text = self.text(name)
        self.faults.append(Fault(key, text or "", problem))

    def value(self, name: str, parse: Callable[[str], _T], holds: Callable[[_T], str | None]) -> _T | None:
        """The parsed value; None when it is absent or a fault was noted (holds: what is wrong with it)."""
        _, text = self.text(name)
        if text is None:
            return None
        try:
            parsed = parse(text)
        except LiteralError as error:
            self.refuse(name, str(error))
            return None
        if (problem := holds(parsed)) is not None:
            self.refuse(name, problem)
            return None
        return parsed

    def duration(self, name: str, holds: Callable[[int], str | None]) -> timedelta | None:
        nanoseconds = self.value(name, parse_duration_ns, holds)
        return None if nanoseconds is None else duration(nanoseconds)


def _between(low: float, high: float) -> Callable[[float], str | None]:
    return lambda value: None if low <= value <= high else f"must be in [{low:g}, {high:g}]"


def _at_least(low: float) -> Callable[[float], str | None]:
    return lambda value: None if value >= low else f"must be at least {low:g}"


def _up_to_an_hour(nanoseconds: int) -> str | None:
    return None if 0 <= nanoseconds <= WINDOW_MAX_NS else "must be in [0s, 1h]"


def _delay(nanoseconds: int) -> str | None:
    return _up_to_an_hour(nanoseconds) or whole_seconds(nanoseconds)


def parse_annotations(
    annotations: Mapping[str, str], config: AutoscalerConfig
) -> tuple[ScalingAnnotations, tuple[Fault, ...]]:
    """What the annotations ask for, and every fault in them (empty: valid).

    A value at fault by itself, or one the cluster forbids, is left out. Where two valid values contradict each other
    (max-scale below min-scale), both stay, with a fault: the bounds say which one wins.
    """
    reader = _Reader(annotations)
    read = reader.value
    _, named = reader.text(CLASS)
    autoscaler_class = KPA_CLASS if named is None else named
    if autoscaler_class.endswith("knative.dev") and autoscaler_class not in (KPA_CLASS, HPA_CLASS):
        reader.refuse(CLASS, f"must be {KPA_CLASS}, {HPA_CLASS} or a class outside knative.dev")
    parsed = ScalingAnnotations(
        autoscaler_class=named,
        metric=_metric(reader, autoscaler_class),
        min_scale=read(MIN_SCALE, parse_int32, _at_least(0)),
        max_scale=read(MAX_SCALE, parse_int32, _max_scale(config)),
        initial_scale=read(INITIAL_SCALE, parse_int32, _initial_scale(config)),
        activation_scale=read(ACTIVATION_SCALE, parse_int32, _at_least(ACTIVATION_SCALE_MIN)),
        target=read(TARGET, parse_float, _at_least(TARGET_MIN)),
        target_utilization_percentage=read(TARGET_UTILIZATION, parse_float, _between(1, 100)),
        target_burst_capacity=read(TARGET_BURST_CAPACITY, parse_float, burst_capacity_problem),
        window=reader.duration(WINDOW, window_bounds),
        panic_window_percentage=read(PANIC_WINDOW, parse_float, _between(1, 100)),
        panic_threshold_percentage=read(PANIC_THRESHOLD, parse_float, _between(110, 1000)),
        aggregation=_aggregation(reader, named),
        scale_down_delay=reader.duration(SCALE_DOWN_DELAY, _delay),
        scale_to_zero_pod_retention_period=reader.duration(POD_RETENTION, _up_to_an_hour),
        progress_deadline=_progress_deadline(reader),
    )
    _check_together(reader, parsed)
    return parsed, tuple(reader.faults)


def _max_scale(config: AutoscalerConfig) -> Callable[[int], str | None]:
    def holds(value: int) -> str | None:
        limit = config.max_scale_limit
        if value < 0:
            return "must be at least 0"
        if limit and value == 0:
            return f"0 means unlimited, and the cluster allows at most {limit}"
        if limit and value > limit:
            return f"must be in [1, {limit}], the cluster's max-scale-limit"
        return None

    return holds


def _initial_scale(config: AutoscalerConfig) -> Callable[[int], str | None]:
    def holds(value: int) -> str | None:
        if value < 0:
            return "must be at least 0"
        if value == 0 and not config.allow_zero_initial_scale:
            return "0 is not allowed by the cluster"
        return None

    return holds


def _metric(reader: _Reader, autoscaler_class: str) -> Metric | None:
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


def _aggregation(reader: _Reader, named_class: str | None) -> Aggregation | None:
    """As upstream, an unknown algorithm is a fault only where the class is named and ours; it reads as linear."""
    _, text = reader.text(AGGREGATION)
    if not text:
        return None
    if text not in _AGGREGATIONS and named_class == KPA_CLASS:
        reader.refuse(AGGREGATION, "must be linear or weighted-exponential")
    return _AGGREGATIONS.get(text)


def _progress_deadline(reader: _Reader) -> timedelta | None:
    text = reader.annotations.get(PROGRESS_DEADLINE_ANNOTATION)
    if text is None:
        return None
    try:
        nanoseconds = parse_duration_ns(text)
    except LiteralError as error:
        reader.faults.append(Fault(PROGRESS_DEADLINE_ANNOTATION, text, str(error)))
        return None
    if nanoseconds <= 0 or whole_seconds(nanoseconds):
        reader.faults.append(Fault(PROGRESS_DEADLINE_ANNOTATION, text, "must be whole seconds above 0"))
        return None
    return duration(nanoseconds)


def _check_together(reader: _Reader, parsed: ScalingAnnotations) -> None:
    low, high, activation = parsed.min_scale or 0, parsed.max_scale or 0, parsed.activation_scale
    if 0 < high < low:
        reader.refuse(MAX_SCALE, f"is less than {DOMAIN}{MIN_SCALE} ({low})")
    if activation is not None and low > activation:
        reader.refuse(ACTIVATION_SCALE, f"is less than {DOMAIN}{MIN_SCALE} ({low})")
    if activation is not None and 0 < high < activation:
        reader.refuse(ACTIVATION_SCALE, f"is greater than {DOMAIN}{MAX_SCALE} ({high})")
