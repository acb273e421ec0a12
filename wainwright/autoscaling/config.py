"""The ConfigMap `config-autoscaler`: Knative's keys, defaults and bounds, parsed into a frozen value.

Every fault is found, not the first only; one fault refuses the whole map, and `DynamicConfig` keeps the last good one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from wainwright.autoscaling.faults import Fault, InvalidSettings
from wainwright.autoscaling.literals import (
    SECOND_NS,
    LiteralError,
    duration,
    parse_bool,
    parse_duration_ns,
    parse_float,
    parse_int32,
)

KPA_CLASS: Final = "kpa.autoscaling.knative.dev"
HPA_CLASS: Final = "hpa.autoscaling.knative.dev"
TARGET_MIN: Final = 0.01
"""Smallest target per pod: below it, the count of pods would only follow noise."""
WINDOW_MIN_NS: Final = 6 * SECOND_NS
WINDOW_MAX_NS: Final = 3600 * SECOND_NS
UNLIMITED: Final = -1.0
"""Target burst capacity: endless."""

CONFIG_KEYS: Final = (
    "pod-autoscaler-class",
    "enable-scale-to-zero",
    "allow-zero-initial-scale",
    "initial-scale",
    "min-scale",
    "max-scale",
    "max-scale-limit",
    "container-concurrency-target-percentage",
    "container-concurrency-target-default",
    "requests-per-second-target-default",
    "target-burst-capacity",
    "activator-capacity",
    "stable-window",
    "panic-window-percentage",
    "panic-threshold-percentage",
    "max-scale-up-rate",
    "max-scale-down-rate",
    "scale-down-delay",
    "scale-to-zero-grace-period",
    "scale-to-zero-pod-retention-period",
)
"""Every key that is read; docs and tests are held against it."""

_T = TypeVar("_T")


class AutoscalerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster-wide settings of pod autoscaling. Scales count pods; rates are factors per decision."""

    pod_autoscaler_class: str = KPA_CLASS
    """Class of a PodAutoscaler that names none."""
    enable_scale_to_zero: bool = True
    """False: one pod stays whatever the load."""
    allow_zero_initial_scale: bool = False
    initial_scale: int = 1
    """Pods that a new target must have had ready once before it may scale freely."""
    min_scale: int = 0
    max_scale: int = 0
    """0: no upper bound."""
    max_scale_limit: int = 0
    """0: none; else every max-scale must lie in [1, this]."""
    container_concurrency_target_fraction: float = 0.7
    """Share of a pod's concurrency to aim for, above 0 up to 1 (the key is a percentage: 70 and 0.7 both say 0.7)."""
    container_concurrency_target_default: float = 100.0
    """Requests in flight per pod where containerConcurrency is 0."""
    requests_per_second_target_default: float = 200.0
    target_burst_capacity: float = 211.0
    """Requests in flight to be ready for beyond the current load; 0: none, -1: endless."""
    activator_capacity: float = 100.0
    stable_window: timedelta = timedelta(seconds=60)
    panic_window_percentage: float = 10.0
    """Of the stable window, 1 to 100."""
    panic_threshold_percentage: float = 200.0
    """Wished pods in percent of ready pods from which on panic begins; above 0."""
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay: timedelta = timedelta()
    scale_to_zero_grace_period: timedelta = timedelta(seconds=30)
    scale_to_zero_pod_retention_period: timedelta = timedelta()


class _Reader:
    """Reads one map, and notes each fault instead of stopping at it."""

    def __init__(self, data: Mapping[str, str]) -> None:
        self.data = data
        self.faults: list[Fault] = []

    def value(self, key: str, parse: Callable[[str], _T], default: _T, holds: Callable[[_T], str | None]) -> _T:
        """The parsed value; the default when the key is absent or a fault was noted.

        holds: what is wrong with a parsed value, None when nothing is.
        """
        if (text := self.data.get(key)) is None:
            return default
        try:
            parsed = parse(text)
        except LiteralError as error:
            self.faults.append(Fault(key, text, str(error)))
            return default
        if (problem := holds(parsed)) is not None:
            self.faults.append(Fault(key, text, problem))
            return default
        return parsed

    def duration(self, key: str, default: timedelta, holds: Callable[[int], str | None]) -> timedelta:
        nanoseconds = self.value(key, parse_duration_ns, None, lambda parsed: None if parsed is None else holds(parsed))
        return default if nanoseconds is None else duration(nanoseconds)

    def refuse(self, key: str, value: object, problem: str) -> None:
        self.faults.append(Fault(key, self.data.get(key, str(value)), problem))


def _at_least(bound: float) -> Callable[[float], str | None]:
    return lambda value: None if value >= bound else f"must be at least {bound:g}"


def _above(bound: float) -> Callable[[float], str | None]:
    return lambda value: None if value > bound else f"must be greater than {bound:g}"


def whole_seconds(nanoseconds: int) -> str | None:
    return None if nanoseconds % SECOND_NS == 0 else "must be whole seconds"


def window_bounds(nanoseconds: int) -> str | None:
    if not WINDOW_MIN_NS <= nanoseconds <= WINDOW_MAX_NS:
        return "must be in [6s, 1h]"
    return whole_seconds(nanoseconds)


def _delay(nanoseconds: int) -> str | None:
    return "must not be negative" if nanoseconds < 0 else whole_seconds(nanoseconds)


def _anything(_: object) -> None:
    return None


def as_fraction(value: float) -> float:
    """A percentage or a fraction as a fraction: above 1 it was meant in percent, so 1 is 100 % and 1.1 is 1.1 %."""
    return value / 100 if value > 1 else value


def burst_capacity_problem(value: float) -> str | None:
    return None if value >= 0 or value == UNLIMITED else "must be at least 0, or -1 for unlimited"


def parse_config(data: Mapping[str, str]) -> AutoscalerConfig:
    """The settings in a ConfigMap's data; absent keys take their defaults, unknown ones are skipped.

    Raises InvalidSettings with every fault. Stricter than Knative in two points: NaN and infinities are refused, and
    panic-threshold-percentage must be above 0 (at 0 every tick would be a panic).
    """
    reader = _Reader(data)
    read = reader.value
    default = AutoscalerConfig()
    zero_allowed = read("allow-zero-initial-scale", parse_bool, default.allow_zero_initial_scale, _anything)
    min_scale = read("min-scale", parse_int32, default.min_scale, _at_least(0))
    max_scale = read("max-scale", parse_int32, default.max_scale, _at_least(0))
    limit = read("max-scale-limit", parse_int32, default.max_scale_limit, _at_least(0))
    fraction = read(
        "container-concurrency-target-percentage",
        parse_float,
        default.container_concurrency_target_fraction * 100,
        lambda value: None if 0 < as_fraction(value) <= 1 else "must be above 0 and at most 100",
    )
    concurrency = read(
        "container-concurrency-target-default", parse_float, default.container_concurrency_target_default, _anything
    )
    config = AutoscalerConfig(
        pod_autoscaler_class=read("pod-autoscaler-class", str, default.pod_autoscaler_class, _anything),
        enable_scale_to_zero=read("enable-scale-to-zero", parse_bool, default.enable_scale_to_zero, _anything),
        allow_zero_initial_scale=zero_allowed,
        initial_scale=read("initial-scale", parse_int32, default.initial_scale, _at_least(0 if zero_allowed else 1)),
        min_scale=min_scale,
        max_scale=max_scale,
        max_scale_limit=limit,
        container_concurrency_target_fraction=as_fraction(fraction),
        container_concurrency_target_default=concurrency,
        requests_per_second_target_default=read(
            "requests-per-second-target-default",
            parse_float,
            default.requests_per_second_target_default,
            _at_least(TARGET_MIN),
        ),
        target_burst_capacity=read(
            "target-burst-capacity", parse_float, default.target_burst_capacity, burst_capacity_problem
        ),
        activator_capacity=read("activator-capacity", parse_float, default.activator_capacity, _at_least(1)),
        stable_window=reader.duration("stable-window", default.stable_window, window_bounds),
        panic_window_percentage=read(
            "panic-window-percentage",
            parse_float,
            default.panic_window_percentage,
            lambda value: None if 1 <= value <= 100 else "must be in [1, 100]",
        ),
        panic_threshold_percentage=read(
            "panic-threshold-percentage", parse_float, default.panic_threshold_percentage, _above(0)
        ),
        max_scale_up_rate=read("max-scale-up-rate", parse_float, default.max_scale_up_rate, _above(1)),
        max_scale_down_rate=read("max-scale-down-rate", parse_float, default.max_scale_down_rate, _above(1)),
        scale_down_delay=reader.duration("scale-down-delay", default.scale_down_delay, _delay),
        scale_to_zero_grace_period=reader.duration(
            "scale-to-zero-grace-period",
            default.scale_to_zero_grace_period,
            lambda ns: None if ns > 0 else "must be positive",
        ),
        scale_to_zero_pod_retention_period=reader.duration(
            "scale-to-zero-pod-retention-period",
            default.scale_to_zero_pod_retention_period,
            lambda ns: None if ns >= 0 else "must not be negative",
        ),
    )
    _check_together(reader, config)
    if reader.faults:
        raise InvalidSettings(reader.faults)
    return config


def _check_together(reader: _Reader, config: AutoscalerConfig) -> None:
    """Bounds between keys, each checked only where the keys themselves are without fault."""
    faulty = {fault.key for fault in reader.faults}
    target = config.container_concurrency_target_fraction * config.container_concurrency_target_default
    if target < TARGET_MIN:
        default, percentage = "container-concurrency-target-default", "container-concurrency-target-percentage"
        key, other = (default, percentage) if default in reader.data else (percentage, default)
        reader.refuse(key, "", f"times {other} yields a target of {target:g}, below {TARGET_MIN}")
    limited = config.max_scale_limit > 0 and not faulty & {"max-scale", "max-scale-limit"}
    if limited and not 1 <= config.max_scale <= config.max_scale_limit:
        reader.refuse("max-scale", config.max_scale, f"must be in [1, max-scale-limit ({config.max_scale_limit})]")
    if not faulty & {"max-scale", "min-scale"} and 0 < config.max_scale < config.min_scale:
        reader.refuse("min-scale", config.min_scale, f"must be at most max-scale ({config.max_scale})")


def unread_keys(data: Mapping[str, str]) -> dict[str, str | None]:
    """Keys of a ConfigMap that nothing reads, each with the key that was probably meant, None where none is near.

    They are no fault (Knative skips them, and old ones linger), but worth a warning. `_example` is expected.
    """
    return {
        key: next(iter(difflib.get_close_matches(key, CONFIG_KEYS, n=1, cutoff=0.8)), None)
        for key in sorted(data)
        if key not in CONFIG_KEYS and key != "_example"
    }


class DynamicConfig:
    """The configuration in force. It follows the ConfigMap; what it hands out is frozen.

    The first data must be valid (InvalidSettings otherwise). A later invalid change is refused whole: `update`
    returns its faults for an event, and the last good configuration stays.
    """

    def __init__(self, data: Mapping[str, str] | None = None) -> None:
        self._current = parse_config(data or {})

    def current(self) -> AutoscalerConfig:
        return self._current

    def update(self, data: Mapping[str, str]) -> tuple[Fault, ...]:
        """Takes over new data. Returns the faults for which it was refused; empty: it is in force."""
        try:
            self._current = parse_config(data)
        except InvalidSettings as error:
            return error.faults
        return ()
