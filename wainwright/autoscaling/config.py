"""The ConfigMap `config-autoscaler`: Knative's keys, defaults and bounds, parsed into a frozen value.

Every fault is found, not the first only; one fault refuses the whole map, and `DynamicConfig` keeps the last good one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from wainwright.autoscaling.faults import Fault, InvalidSettings
from wainwright.autoscaling.literals import parse_bool, parse_float, parse_int32
from wainwright.autoscaling.parsers import (
    TARGET_MIN,
    SettingsReader,
    above,
    at_least,
    between,
    burst_capacity,
    duration_from_zero,
    fraction,
    positive_duration,
    seconds_from_zero,
    window,
)

KPA_CLASS: Final = "kpa.autoscaling.knative.dev"
HPA_CLASS: Final = "hpa.autoscaling.knative.dev"


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


_PERCENTAGE: Final = "container-concurrency-target-percentage"
_DEFAULT_TARGET: Final = "container-concurrency-target-default"
_INITIAL_SCALE: Final = "initial-scale"

_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "pod-autoscaler-class": ("pod_autoscaler_class", str),
    "enable-scale-to-zero": ("enable_scale_to_zero", parse_bool),
    "allow-zero-initial-scale": ("allow_zero_initial_scale", parse_bool),
    _INITIAL_SCALE: ("initial_scale", at_least(parse_int32, 0)),
    "min-scale": ("min_scale", at_least(parse_int32, 0)),
    "max-scale": ("max_scale", at_least(parse_int32, 0)),
    "max-scale-limit": ("max_scale_limit", at_least(parse_int32, 0)),
    _PERCENTAGE: ("container_concurrency_target_fraction", fraction),
    _DEFAULT_TARGET: ("container_concurrency_target_default", parse_float),
    "requests-per-second-target-default": ("requests_per_second_target_default", at_least(parse_float, TARGET_MIN)),
    "target-burst-capacity": ("target_burst_capacity", burst_capacity),
    "activator-capacity": ("activator_capacity", at_least(parse_float, 1)),
    "stable-window": ("stable_window", window),
    "panic-window-percentage": ("panic_window_percentage", between(parse_float, 1, 100)),
    "panic-threshold-percentage": ("panic_threshold_percentage", above(parse_float, 0)),
    "max-scale-up-rate": ("max_scale_up_rate", above(parse_float, 1)),
    "max-scale-down-rate": ("max_scale_down_rate", above(parse_float, 1)),
    "scale-down-delay": ("scale_down_delay", seconds_from_zero),
    "scale-to-zero-grace-period": ("scale_to_zero_grace_period", positive_duration),
    "scale-to-zero-pod-retention-period": ("scale_to_zero_pod_retention_period", duration_from_zero),
}
"""Key → field and parser."""

CONFIG_KEYS: Final = tuple(_SETTINGS)
"""Every key that is read; docs and tests are held against it."""


def parse_config(data: Mapping[str, str]) -> AutoscalerConfig:
    """The settings in a ConfigMap's data; absent keys take their defaults, unknown ones are skipped.

    Raises InvalidSettings with every fault. Stricter than Knative in two points: NaN and infinities are refused, and
    panic-threshold-percentage must be above 0 (at 0 every tick would be a panic).
    """
    reader = SettingsReader(data)
    read = {field: reader.value(key, parse) for key, (field, parse) in _SETTINGS.items()}
    config = AutoscalerConfig(**{field: value for field, value in read.items() if value is not None})
    _check_together(reader, config)
    if reader.faults:
        raise InvalidSettings(reader.faults)
    return config


def _check_together(reader: SettingsReader, config: AutoscalerConfig) -> None:
    """Bounds between keys. A key at fault reads as its default here, so it is not reported again for its neighbour."""
    faulty = {fault.key for fault in reader.faults}
    if config.initial_scale == 0 and not config.allow_zero_initial_scale:
        reader.refuse(_INITIAL_SCALE, "must be at least 1 unless allow-zero-initial-scale is true")
    target = config.container_concurrency_target_fraction * config.container_concurrency_target_default
    if target < TARGET_MIN:
        written = reader.text(_DEFAULT_TARGET)[1] is not None
        key, other = (_DEFAULT_TARGET, _PERCENTAGE) if written else (_PERCENTAGE, _DEFAULT_TARGET)
        reader.refuse(key, f"times {other} yields a target of {target:g}, below {TARGET_MIN}")
    limited = config.max_scale_limit > 0 and not faulty & {"max-scale", "max-scale-limit"}
    if limited and not 1 <= config.max_scale <= config.max_scale_limit:
        reader.refuse("max-scale", f"is {config.max_scale}, must be in [1, max-scale-limit ({config.max_scale_limit})]")
    if not faulty & {"max-scale", "min-scale"} and 0 < config.max_scale < config.min_scale:
        reader.refuse("min-scale", f"must be at most max-scale ({config.max_scale})")


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
