"""Specs, windows and targets with defaults, so that a test shows only what matters to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from tests.unit.autoscaling.strategies import START, START_S
from wainwright.autoscaling.annotations import ScalingAnnotations
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import DeciderState
from wainwright.autoscaling.instants import from_unix_ms
from wainwright.autoscaling.scale import Active, ScalePolicy, TargetState, derive_scale_policy
from wainwright.autoscaling.spec import DeciderSpec, derive_spec
from wainwright.autoscaling.windows import Windows

PLAIN = derive_spec(AutoscalerConfig(), ScalingAnnotations(target=10.0, target_utilization_percentage=100.0))
"""Ten requests in flight per pod, 60 s and 6 s windows, panic from twice the ready pods on."""


def a_spec(**changes: Any) -> DeciderSpec:
    return msgspec.structs.replace(PLAIN, **changes)


def loaded(spec: DeciderSpec, value: float, *, seconds: int = 60, until: int = 0) -> Windows:
    """Windows that saw `value` in each of the last seconds; `until`: seconds after START."""
    windows = Windows.new(spec)
    for second in range(START_S + until - seconds + 1, START_S + until + 1):
        windows = windows.record(from_unix_ms(1000 * second), value)
    return windows


def calm(spec: DeciderSpec, **changes: Any) -> DeciderState:
    """A decider that began calm, long ago."""
    state = DeciderState.start(spec, 0, START - timedelta(hours=1))
    return msgspec.structs.replace(state, **changes)


def a_policy(**changes: Any) -> ScalePolicy:
    return msgspec.structs.replace(derive_scale_policy(AutoscalerConfig(), ScalingAnnotations()), **changes)


def a_target(**changes: Any) -> TargetState:
    target = TargetState(active=Active.TRUE, active_since=START - timedelta(hours=1), initialized=True, replicas=3)
    return msgspec.structs.replace(target, **changes)
