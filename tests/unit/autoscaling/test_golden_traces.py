"""Knative's own answers to 60 recorded loads, and one case from the field, decision by decision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.autoscaling.golden import FIELD_TRACE, TRACES
from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.replay import SettingsUpdate, Trace, replay
from wainwright.autoscaling.spec import DeciderSpec

FIELDS = (
    "t",
    "ready_pods",
    "desired",
    "excess_burst_capacity",
    "valid",
    "panic",
    "max_panic_pods",
    "stable_value",
    "panic_value",
    "panic_since",
)


def as_derived(spec: DeciderSpec) -> dict[str, Any]:
    """The spec under the names of the golden data's "derived"."""
    return {
        "activation_scale": spec.activation_scale,
        "activator_capacity": spec.activator_capacity,
        "aggregation": str(spec.aggregation),
        "initial_scale": spec.initial_scale,
        "max_scale_down_rate": spec.max_scale_down_rate,
        "max_scale_up_rate": spec.max_scale_up_rate,
        "panic_threshold": spec.panic_threshold,
        "panic_window_s": spec.panic_window_s,
        "reachable": spec.reachable,
        "scale_down_delay_s": spec.scale_down_delay_s,
        "scaling_metric": str(spec.metric),
        "scrape_target_set": not spec.silence_is_zero,
        "stable_window_s": spec.stable_window_s,
        "target_burst_capacity": spec.target_burst_capacity,
        "target_value": spec.target,
        "total_value": spec.total,
    }


def same(field: str, expected: Any, got: Any, *, weighted: bool) -> bool:
    """Exact, but for the README's tolerances; panic_since is a time whose origin was shifted, compared to the ms."""
    if expected is None or got is None or isinstance(expected, str):
        return bool(expected == got)
    if field == "panic_since":
        return round(1000 * expected) == round(1000 * got)
    if weighted and field in ("stable_value", "panic_value"):
        return math.isclose(expected, got, rel_tol=1e-9, abs_tol=0)
    if weighted and field == "excess_burst_capacity":
        return abs(expected - got) <= 1
    return bool(expected == got)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_decision_equals_knatives(path: Path) -> None:
    trace = msgspec.json.decode(path.read_bytes(), type=Trace)
    decisions = replay(trace)
    weighted = trace.spec().aggregation is Aggregation.WEIGHTED_EXPONENTIAL
    for event in trace.events:
        if event[0] != "d":
            continue
        got = next(decisions).event()
        for field, expected in zip(FIELDS, event[1:], strict=True):
            if field != "ready_pods":
                assert same(field, expected, got[field], weighted=weighted), (field, event, got)
    assert next(decisions, None) is None


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_derived_parameters_of_each_trace_equal_knatives(path: Path) -> None:
    raw = msgspec.json.decode(path.read_bytes())
    settings = msgspec.convert(raw, Trace)
    assert as_derived(settings.spec()) == raw["derived"]
    current: Any = settings
    for event in raw["events"]:
        if event[0] == "u":
            current = current.updated(msgspec.convert(event[2], SettingsUpdate))
            assert as_derived(current.spec()) == event[3]


def test_panic_takes_the_larger_of_both_windows() -> None:
    """Load 100, then 40, and at 106 eight of ten pods are gone: panic wishes 4, the stable window still 10 (93/10)."""
    trace = msgspec.json.decode(FIELD_TRACE.read_bytes(), type=Trace)
    for event, replayed in zip([e for e in trace.events if e[0] == "d"], replay(trace), strict=True):
        got = replayed.event()
        for field, expected in zip(FIELDS, event[1:], strict=True):
            if field not in ("excess_burst_capacity", "max_panic_pods"):  # left null in this file
                assert same(field, expected, got[field], weighted=False), (field, event, got)
        if got["t"] >= 106:
            assert got["panic"]
            assert got["desired"] == 10
