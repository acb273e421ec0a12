"""Hypothesis strategies for pod autoscaling: settings, loads and what happens to a scaler over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from wainwright.autoscaling.annotations import Metric
from wainwright.autoscaling.buckets import Aggregation, Buckets
from wainwright.autoscaling.spec import DeciderSpec

START = datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC)
START_S = 1_900_000_000

loads = st.one_of(
    st.just(0.0),
    st.integers(0, 2000).map(float),
    st.floats(0, 5000, allow_nan=False).map(lambda value: round(value, 3)),
    st.floats(0, 1e9, allow_nan=False),
    st.sampled_from([1e-8, 5e-7, 1e12, 1e300]),
)
plain_loads = st.integers(0, 5_000_000).map(lambda value: value / 1000)
ready_counts = st.one_of(st.integers(0, 30), st.integers(0, 5000))


def instant(milliseconds: int) -> datetime:
    """milliseconds after START, which is an even second."""
    return START + timedelta(milliseconds=milliseconds)


@st.composite
def specs(draw: st.DrawFn, aggregation: Aggregation = Aggregation.LINEAR) -> DeciderSpec:
    total = draw(st.sampled_from([0.01, 1.0, 2.5, 10.0, 100.0]))
    stable = draw(st.sampled_from([6, 7, 10, 60, 90]))
    return DeciderSpec(
        metric=draw(st.sampled_from(Metric)),
        aggregation=aggregation,
        target=max(0.01, total * draw(st.sampled_from([0.7, 1.0, 0.333]))),
        total=total,
        target_burst_capacity=draw(st.sampled_from([-1.0, 0.0, 200.0, 12.5])),
        activator_capacity=100.0,
        panic_threshold=draw(st.sampled_from([1.1, 2.0, 10.0])),
        max_scale_up_rate=draw(st.sampled_from([1.1, 2.0, 1000.0, 1e308])),
        max_scale_down_rate=draw(st.sampled_from([1.1, 2.0, 1000.0])),
        activation_scale=draw(st.sampled_from([0, 0, 2, 9])),
        initial_scale=draw(st.integers(0, 5)),
        stable_window_s=stable,
        panic_window_s=draw(st.integers(1, stable)),
        scale_down_delay_s=draw(st.sampled_from([0, 0, 1, 7, 30])),
        reachable=draw(st.booleans()),
        silence_is_zero=draw(st.booleans()),
    )


@st.composite
def histories(draw: st.DrawFn, values: st.SearchStrategy[float] = loads, size: int = 40) -> list[tuple[int, float]]:
    """Samples as (second, value) in order of arrival: mostly the next second, now and then late, early or after a
    gap.
    """
    second, samples = START_S, []
    for _ in range(draw(st.integers(0, size))):
        second += draw(st.sampled_from([0, 1, 1, 1, 1, 2, 5, 20, 70]))
        late = draw(st.sampled_from([0, 0, 0, 0, 1, 3, 8, 59, 61]))
        samples.append((second - late, draw(values)))
    return samples


@st.composite
def windows_of(
    draw: st.DrawFn, aggregation: Aggregation = Aggregation.LINEAR, values: st.SearchStrategy[float] = loads
) -> Buckets:
    buckets = Buckets(length=draw(st.sampled_from([1, 2, 6, 10, 60])), aggregation=aggregation)
    for second, value in draw(histories(values, size=15)):
        buckets = buckets.record(second, value)
    if draw(st.booleans()):
        buckets = buckets.resize(draw(st.integers(1, 90)))
    return buckets


def events(shard: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """What happens to a shard: ("sample", autoscaler, ms ago, value), ("pass", ms), ("spec", autoscaler, spec),
    ("tick", ready pods of each, None for those that cannot be counted).
    """
    autoscaler = st.integers(0, shard - 1)
    ready = st.lists(st.one_of(st.none(), ready_counts), min_size=shard, max_size=shard)
    samples = st.tuples(st.just("sample"), autoscaler, st.sampled_from([0, 0, 0, 900, 2500, 61_000]), loads)
    tick = st.tuples(st.just("tick"), ready)
    passing = st.tuples(st.just("pass"), st.sampled_from([0, 250, 1000, 2000, 2000, 3700, 60_000, 61_000, -500]))
    changed = st.tuples(st.just("spec"), autoscaler, specs())
    return st.lists(st.one_of(samples, samples, samples, passing, passing, tick, tick, changed), max_size=40)
