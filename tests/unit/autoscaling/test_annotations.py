from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.autoscaling import annotations as module
from wainwright.autoscaling.annotations import (
    ALIASES,
    DOMAIN,
    PROGRESS_DEADLINE_ANNOTATION,
    Metric,
    ScalingAnnotations,
    parse_annotations,
)
from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.config import AutoscalerConfig

CONFIG = AutoscalerConfig()
NAMES = (
    module.CLASS,
    module.METRIC,
    module.MIN_SCALE,
    module.MAX_SCALE,
    module.INITIAL_SCALE,
    module.ACTIVATION_SCALE,
    module.TARGET,
    module.TARGET_UTILIZATION,
    module.TARGET_BURST_CAPACITY,
    module.WINDOW,
    module.PANIC_WINDOW,
    module.PANIC_THRESHOLD,
    module.AGGREGATION,
    module.SCALE_DOWN_DELAY,
    module.POD_RETENTION,
)


def parse(**annotations: str) -> tuple[ScalingAnnotations, list[str]]:
    """Keyword arguments are the names, with underscores for hyphens."""
    given = {DOMAIN + name.replace("_", "-"): value for name, value in annotations.items()}
    parsed, faults = parse_annotations(given, CONFIG)
    return parsed, [fault.key.removeprefix(DOMAIN) for fault in faults]


def test_no_annotations_ask_for_nothing() -> None:
    assert parse() == (ScalingAnnotations(), [])


def test_an_annotation_at_fault_counts_as_absent_and_the_others_stay() -> None:
    parsed, faults = parse(target="0", window="90s", min_scale="x")
    assert sorted(faults) == ["min-scale", "target"]
    assert parsed == ScalingAnnotations(window=timedelta(seconds=90))


@pytest.mark.parametrize("value", ["NaN", "Inf", "-inf", "1e999"])
@pytest.mark.parametrize(
    "name",
    [
        module.TARGET,
        module.TARGET_UTILIZATION,
        module.TARGET_BURST_CAPACITY,
        module.PANIC_WINDOW,
        module.PANIC_THRESHOLD,
    ],
)
def test_nan_and_infinities_are_refused(name: str, value: str) -> None:
    parsed, faults = parse_annotations({DOMAIN + name: value}, CONFIG)
    assert parsed == ScalingAnnotations()
    assert [fault.key for fault in faults] == [DOMAIN + name]
    assert value in str(faults[0])


@pytest.mark.parametrize(("name", "alias"), ALIASES.items())
def test_the_spelling_with_hyphens_wins_over_its_alias(name: str, alias: str) -> None:
    """Values that are wrong on purpose: the fault tells which key was read."""
    _, faults = parse_annotations({DOMAIN + alias: "?", DOMAIN + "class": "kpa.autoscaling.knative.dev"}, CONFIG)
    assert [fault.key for fault in faults] == [DOMAIN + alias]
    both = {DOMAIN + alias: "??", DOMAIN + name: "?", DOMAIN + "class": "kpa.autoscaling.knative.dev"}
    _, faults = parse_annotations(both, CONFIG)
    assert [(fault.key, fault.value) for fault in faults] == [(DOMAIN + name, "?")]


def test_contradicting_bounds_stay_with_a_fault_because_the_lower_one_wins_anyway() -> None:
    parsed, faults = parse(min_scale="5", max_scale="3")
    assert faults == ["max-scale"]
    assert (parsed.min_scale, parsed.max_scale) == (5, 3)


def test_activation_scale_outside_the_bounds() -> None:
    assert parse(activation_scale="3", min_scale="4")[1] == ["activation-scale"]
    assert parse(activation_scale="5", max_scale="4")[1] == ["activation-scale"]
    assert parse(activation_scale="5", max_scale="0")[1] == []
    assert parse(activation_scale="1")[1] == ["activation-scale"]


def test_a_max_scale_that_the_cluster_forbids_is_left_out() -> None:
    limited = AutoscalerConfig(max_scale=5, max_scale_limit=10)
    for value in ("0", "11"):
        parsed, faults = parse_annotations({DOMAIN + "max-scale": value}, limited)
        assert parsed.max_scale is None
        assert len(faults) == 1
    assert parse_annotations({DOMAIN + "max-scale": "10"}, limited)[0].max_scale == 10


def test_zero_initial_scale_needs_the_clusters_leave() -> None:
    assert parse(initial_scale="0")[1] == ["initial-scale"]
    allowed = AutoscalerConfig(allow_zero_initial_scale=True)
    assert parse_annotations({DOMAIN + "initial-scale": "0"}, allowed) == (ScalingAnnotations(initial_scale=0), ())


def test_metrics_and_aggregations() -> None:
    assert parse(metric="rps")[0].metric is Metric.RPS
    assert parse(metric="memory")[1] == ["metric"]
    assert parse(metric_aggregation_algorithm="weightedExponential")[0].aggregation is Aggregation.WEIGHTED_EXPONENTIAL
    assert parse(metric_aggregation_algorithm="median") == (ScalingAnnotations(), [])


def test_progress_deadline() -> None:
    parsed, faults = parse_annotations({PROGRESS_DEADLINE_ANNOTATION: "50s"}, CONFIG)
    assert (parsed.progress_deadline, faults) == (timedelta(seconds=50), ())
    for value in ("50", "0s", "-1s", "1.5s"):
        parsed, faults = parse_annotations({PROGRESS_DEADLINE_ANNOTATION: value}, CONFIG)
        assert parsed.progress_deadline is None
        assert [fault.key for fault in faults] == [PROGRESS_DEADLINE_ANNOTATION]


@given(
    st.dictionaries(
        st.sampled_from([DOMAIN + name for name in (*NAMES, *ALIASES.values())]),
        st.one_of(st.text(max_size=8), st.sampled_from(["1", "0", "60s", "NaN", "1e400", "linear", "9" * 30])),
    )
)
def test_any_annotations_are_read_without_an_exception(annotations: dict[str, str]) -> None:
    _, faults = parse_annotations(annotations, CONFIG)
    assert {fault.key for fault in faults} <= set(annotations)


def test_every_annotation_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text()
    for name in NAMES:
        assert f"`{name}`" in page
