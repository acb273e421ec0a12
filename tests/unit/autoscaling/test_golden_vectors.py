"""The golden vector files, row by row."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.autoscaling.golden import vector_rows
from tests.unit.autoscaling.test_golden_traces import as_derived
from wainwright.autoscaling.annotations import parse_annotations
from wainwright.autoscaling.buckets import Aggregation, Buckets
from wainwright.autoscaling.conditions import active_condition, ready_threshold
from wainwright.autoscaling.config import AutoscalerConfig, parse_config
from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.faults import InvalidSettings
from wainwright.autoscaling.instants import from_unix_ms, unix_second
from wainwright.autoscaling.replay import Settings, prefixed
from wainwright.autoscaling.request_stats import RequestEvent, RequestStats
from wainwright.autoscaling.sample_size import sample_size
from wainwright.autoscaling.scale import (
    Active,
    Probe,
    TargetState,
    bounded,
    derive_scale_policy,
    scale_step,
)
from wainwright.autoscaling.spec import (
    Reachability,
    activators_wanted,
    first_excess_burst_capacity,
)

T0 = 1_900_000_000
NOW = datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC)


def at(t: float) -> datetime:
    return from_unix_ms(1000 * T0 + round(1000 * t))


@pytest.mark.parametrize("row", vector_rows("aggregation"), ids=lambda r: f"{r['algorithm']}-{r['window_s']}s")
def test_window_averages(row: dict[str, Any]) -> None:
    assert row["granularity_s"] == 1
    assert row["t0_unix"] == T0
    aggregation = Aggregation(row["algorithm"])
    buckets = Buckets(length=row["window_s"], aggregation=aggregation)
    for op in row["ops"]:
        match op:
            case ["r", t, value]:
                buckets = buckets.record(unix_second(at(t)), value)
            case ["z", seconds]:
                buckets = buckets.resize(seconds)
            case ["a", t, average, is_empty]:
                second = unix_second(at(t))
                assert buckets.is_empty(second) == is_empty, op
                got = buckets.average(second)
                if aggregation is Aggregation.LINEAR:
                    assert got == average, op
                else:
                    assert math.isclose(got, average, rel_tol=1e-9, abs_tol=0), op
            case _:
                pytest.fail(f"unknown op {op}")


@pytest.mark.parametrize("row", vector_rows("max_window"), ids=lambda r: f"{r['duration_s']}s")
def test_scale_down_delay_window(row: dict[str, Any]) -> None:
    assert row["granularity_s"] == 2
    window = DelayWindow.of(row["duration_s"])
    assert window is not None
    for t, value, maximum in row["ops"]:
        window = window.record(unix_second(at(t)), value)
        assert window.maximum() == maximum, (t, value)


def test_sample_sizes() -> None:
    assert [[population, sample_size(population)] for population, _ in vector_rows("sample_size")] == vector_rows(
        "sample_size"
    )


@pytest.mark.parametrize("row", vector_rows("derived_spec"))
def test_derived_spec(row: dict[str, Any]) -> None:
    spec = Settings(
        config=row["config"],
        annotations=row["annotations"],
        container_concurrency=row["container_concurrency"],
        reachability=Reachability(row["reachability"]),
    ).spec()
    assert as_derived(spec) == row["derived"]
    assert row["initial_desired"] == -1
    assert first_excess_burst_capacity(spec) == row["initial_excess_burst_capacity"]
    for ready, activators in row["num_activators_by_ready"].items():
        assert activators_wanted(spec, int(ready)) == activators


CLOSED_GAPS = (
    {"max-scale-up-rate": "NaN"},
    {"panic-threshold-percentage": "0"},
)
"""Knative takes these; we refuse NaN everywhere, and a panic threshold at which every tick would be a panic."""


def config_values(config: AutoscalerConfig) -> dict[str, Any]:
    return {
        "activator-capacity": config.activator_capacity,
        "allow-zero-initial-scale": config.allow_zero_initial_scale,
        "container-concurrency-target-default": config.container_concurrency_target_default,
        "container-concurrency-target-fraction": config.container_concurrency_target_fraction,
        "enable-scale-to-zero": config.enable_scale_to_zero,
        "initial-scale": config.initial_scale,
        "max-scale": config.max_scale,
        "max-scale-down-rate": config.max_scale_down_rate,
        "max-scale-limit": config.max_scale_limit,
        "max-scale-up-rate": config.max_scale_up_rate,
        "min-scale": config.min_scale,
        "panic-threshold-percentage": config.panic_threshold_percentage,
        "panic-window-percentage": config.panic_window_percentage,
        "pod-autoscaler-class": config.pod_autoscaler_class,
        "requests-per-second-target-default": config.requests_per_second_target_default,
        "scale-down-delay-s": config.scale_down_delay.total_seconds(),
        "scale-to-zero-grace-period-s": config.scale_to_zero_grace_period.total_seconds(),
        "scale-to-zero-pod-retention-period-s": config.scale_to_zero_pod_retention_period.total_seconds(),
        "stable-window-s": config.stable_window.total_seconds(),
        "target-burst-capacity": config.target_burst_capacity,
        "target-utilization": 0.7,
    }


@pytest.mark.parametrize("row", vector_rows("config"), ids=lambda r: str(r["data"]))
def test_config(row: dict[str, Any]) -> None:
    data = row["data"]
    if row["ok"] and data not in CLOSED_GAPS:
        assert config_values(parse_config(data)) == row["values"]
        return
    with pytest.raises(InvalidSettings) as caught:
        parse_config(data)
    for fault in caught.value.faults:
        assert fault.key in str(caught.value)
        assert fault.key in data or fault.key == "max-scale"
        assert fault.value in str(caught.value)


@pytest.mark.parametrize("row", vector_rows("annotations"), ids=lambda r: str(r["annotations"]))
def test_annotations(row: dict[str, Any]) -> None:
    annotations = prefixed(row["annotations"])
    _, faults = parse_annotations(annotations, parse_config(row["config"]))
    assert (not faults) == row["ok"], faults
    for fault in faults:
        assert fault.key in annotations
        assert fault.value == annotations[fault.key]
        assert fault.value in str(fault)
    if not row["ok"]:
        named = {key for key in annotations if key in row["error"]}
        assert {fault.key for fault in faults} & named


@pytest.mark.parametrize("row", vector_rows("scale_to_zero"))
def test_scale_step(row: dict[str, Any]) -> None:
    config = parse_config(row["config"])
    annotations, faults = parse_annotations(prefixed(row["annotations"]), config)
    assert not faults
    policy = derive_scale_policy(
        config,
        annotations,
        reachability=Reachability(row["reachability"]),
        progress_deadline=timedelta(seconds=row["progress_deadline_s"]),
    )
    target = TargetState(
        active=Active(row["active_status"]),
        active_since=NOW - timedelta(seconds=row["active_age_s"]),
        initialized=row["scale_target_initialized"],
        replicas=row["current_replicas"],
        proxying=row["sks_mode"] == "Proxy",
        buffered_since=None if row["proxy_for_s"] is None else NOW - timedelta(seconds=row["proxy_for_s"]),
    )
    decision = scale_step(policy, target, row["decider_desired"], NOW)
    assert decision.probe_wanted == row["probed"]
    if decision.probe_wanted:
        answer = Probe.ANSWERS if row["probe"] == "ok" else Probe.SILENT
        asked = TargetState(
            active=target.active,
            active_since=target.active_since,
            initialized=target.initialized,
            replicas=target.replicas,
            proxying=target.proxying,
            buffered_since=target.buffered_since,
            probe=answer,
        )
        decision = scale_step(policy, asked, row["decider_desired"], NOW)
        assert not decision.probe_wanted
    recheck = decision.recheck_after
    assert decision.scale == row["result_scale"]
    assert decision.write == row["patched_replicas"]
    assert ([] if recheck is None else [recheck.total_seconds()]) == row["enqueue_after_s"]
    assert decision.keep_probing == row["async_probe_started"]
    assert decision.write is None or decision.write >= 0
    assert bounded(policy, row["decider_desired"], initialized=target.initialized) >= -1


def test_active_condition() -> None:
    for row in vector_rows("active_condition"):
        low, initial, initialized, has_service, before, want, ready, threshold, after, reason, initialized_after = row
        min_scale = int(low or 0)
        initial_scale = int(initial or 1)
        assert ready_threshold(min_scale, initial_scale, initialized=initialized) == threshold, row
        got = active_condition(
            before=Active(before),
            initialized=initialized,
            wish=want,
            ready_pods=ready,
            min_scale=min_scale,
            initial_scale=initial_scale,
            has_service=has_service,
        )
        assert [str(got.status), str(got.reason), got.initialized] == [after, reason, initialized_after], row


@pytest.mark.parametrize("row", vector_rows("request_stats"), ids=lambda r: f"{len(r['ops'])}-ops")
def test_request_stats(row: dict[str, Any]) -> None:
    stats = RequestStats(since=at(0))
    for op in row["ops"]:
        if op[0] == "report":
            _, t, average, proxied, count, proxied_count = op
            report, stats = stats.report(at(t))
            assert report.average_concurrency == average, op
            assert report.average_proxied_concurrency == proxied, op
            assert report.request_count == count, op
            assert report.proxied_request_count == proxied_count, op
        else:
            stats = stats.handle(RequestEvent(op[0]), at(op[1]))
