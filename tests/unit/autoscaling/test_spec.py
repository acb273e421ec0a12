from __future__ import annotations

from datetime import timedelta

import pytest

from wainwright.autoscaling.annotations import Metric, ScalingAnnotations
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.sample_size import sample_size
from wainwright.autoscaling.spec import (
    DeciderSpec,
    Reachability,
    activators_wanted,
    derive_spec,
    first_excess_burst_capacity,
    panic_window_s,
)

CONFIG = AutoscalerConfig()


def derived(container_concurrency: int = 0, **annotations: object) -> DeciderSpec:
    return derive_spec(
        CONFIG,
        ScalingAnnotations(**annotations),  # type: ignore[arg-type]
        container_concurrency=container_concurrency,
    )


def test_targets_per_pod() -> None:
    assert derived().target == 70.0  # 100 x 0.7
    assert derived(container_concurrency=10).target == 7.0
    assert derived(metric=Metric.RPS).target == 140.0  # 200 x 0.7
    assert derived(target=0.01, target_utilization_percentage=1.0).target == 0.01  # never below


def test_a_hard_limit_bounds_the_target_and_a_soft_one_does_not() -> None:
    assert derived(container_concurrency=10, target=50.0).total == 10.0
    assert derived(container_concurrency=10, target=5.0).total == 5.0
    assert derived(target=500.0).total == 500.0
    assert derived(container_concurrency=10, metric=Metric.RPS, target=50.0).total == 50.0


@pytest.mark.parametrize(
    ("window", "percentage", "seconds"), [(60, 10.0, 6), (13, 7.7, 1), (6, 1.0, 1), (25, 10.0, 3), (3600, 100.0, 3600)]
)
def test_panic_windows_are_whole_seconds(window: int, percentage: float, seconds: int) -> None:
    assert panic_window_s(timedelta(seconds=window), percentage) == seconds


def test_silence_means_zero_only_with_an_endless_burst_and_a_source_that_reports_by_itself() -> None:
    endless = ScalingAnnotations(target_burst_capacity=-1.0)
    assert derive_spec(CONFIG, endless).silence_is_zero
    assert not derive_spec(CONFIG, endless, source_reports_by_itself=False).silence_is_zero
    assert not derived().silence_is_zero


def test_only_unreachable_is_not_reachable() -> None:
    reachable = [derive_spec(CONFIG, ScalingAnnotations(), reachability=one).reachable for one in Reachability]
    assert reachable == [True, True, False]


def test_the_first_burst_reserve_is_the_initial_scales() -> None:
    assert first_excess_burst_capacity(derived()) == -111  # 1 x 100 - 211
    assert first_excess_burst_capacity(derived(initial_scale=3, target=0.5)) == -209  # 1.5 - 211, towards zero
    assert first_excess_burst_capacity(derived(target_burst_capacity=-1.0)) == -1


def test_activators() -> None:
    assert activators_wanted(derived(), 0) == 3  # ceil(211 / 100)
    assert activators_wanted(derived(), 10) == 13
    assert activators_wanted(derived(target_burst_capacity=0.0), 1000) == 2


def test_small_populations_are_asked_in_full() -> None:
    assert [sample_size(n) for n in (-1, 0, 1, 3, 4, 10, 100, 10**9)] == [0, 0, 1, 3, 4, 7, 14, 16]
