from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.strategies import START_S, histories, loads, plain_loads, windows_of
from wainwright.autoscaling.buckets import Aggregation, Buckets, merged, round_average, smoothing_coefficient


def window(length: int = 6, aggregation: Aggregation = Aggregation.LINEAR) -> Buckets:
    return Buckets(length=length, aggregation=aggregation)


def test_samples_of_one_second_add_up() -> None:
    buckets = window().record(100, 2.0).record(100, 3.0)
    assert buckets.values == (5.0,)
    assert buckets.average(100) == 5.0


def test_a_young_window_averages_only_what_it_has() -> None:
    buckets = window(60).record(100, 4.0).record(101, 6.0)
    assert buckets.average(101) == 5.0  # (4 + 6) / 2, not / 60


def test_seconds_between_writes_count_as_zero() -> None:
    buckets = window(60).record(100, 6.0).record(103, 6.0)
    assert buckets.values == (6.0, 0.0, 0.0, 6.0)
    assert buckets.average(103) == 3.0


def test_missing_newest_seconds_are_left_out_instead_of_counting_as_zero() -> None:
    buckets = window(6)
    for second in range(100, 106):
        buckets = buckets.record(second, 10.0)
    assert buckets.average(108) == 10.0  # three seconds old ones left, divided by three


def test_a_write_a_whole_window_later_starts_anew() -> None:
    buckets = window(6).record(100, 5.0).record(106, 1.0)
    assert (buckets.first_s, buckets.values) == (106, (1.0,))
    assert window(6).record(100, 5.0).record(105, 1.0).first_s == 100


def test_a_late_sample_goes_to_its_own_second_and_may_begin_the_window() -> None:
    buckets = window(6).record(105, 1.0).record(102, 3.0)
    assert buckets.values == (3.0, 0.0, 0.0, 1.0)
    assert (buckets.first_s, buckets.last_s) == (102, 105)


def test_a_sample_older_than_the_window_is_dropped() -> None:
    buckets = window(6).record(105, 1.0)
    assert buckets.record(99, 50.0) == buckets
    assert buckets.record(100, 50.0) != buckets


def test_a_window_is_empty_one_second_after_its_length_and_zero_on_that_second() -> None:
    """Upstream's edge: exactly one window after the last write there is no load, but there is data."""
    buckets = window(6).record(100, 5.0)
    assert not buckets.is_empty(106)
    assert buckets.average(106) == 0.0
    assert buckets.is_empty(107)
    assert window(6).is_empty(100)


def test_growing_a_young_window_counts_its_unfilled_part_as_zeros() -> None:
    buckets = window(6).record(100, 6.0).record(101, 6.0).resize(12)
    assert buckets.average(101) == 2.0  # 12 / 6: as if the six old seconds had been filled


def test_shrinking_keeps_the_newest_seconds() -> None:
    buckets = window(6)
    for second in range(100, 106):
        buckets = buckets.record(second, float(second))
    assert buckets.resize(2).values == (104.0, 105.0)
    assert buckets.resize(2).total == 209.0
    assert buckets.resize(6) is buckets


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_sample_may_be_nan_or_infinite(value: float) -> None:
    buckets = window().record(100, 1.0)
    for second in (99, 100, 101, 200):
        with pytest.raises(ValueError, match="finite"):
            buckets.record(second, value)
        with pytest.raises(ValueError, match="finite"):
            buckets.put(second, value)


def test_a_sum_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        window().record(100, 1e308).record(100, 1e308)


def test_an_absurd_sample_leaves_no_load_behind_when_it_has_left_the_window() -> None:
    """1e300 swamps every other load in a running sum, so the sum is made anew when it leaves."""
    buckets = window(6).record(99, 0.1).record(100, 1e300)
    for second in range(101, 107):
        buckets = buckets.record(second, 0.1)
    assert buckets.average(106) == 0.1


def test_values_that_do_not_fit_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values in a window of 2 s"):
        Buckets(length=2, values=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="window of 0 s"):
        Buckets(length=0)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (7.2998125, 7.299813),  # half goes away from zero ...
        (-7.2998125, -7.299813),  # ... on both sides
        (4.9e-7, 0.0),
        (5e-7, 1e-6),
        (1e300, 1e300),
        (1e308, 1e308),  # too large to be scaled
        (123456789.1234564, 123456789.123456),
    ],
)
def test_averages_are_rounded_to_six_decimals(value: float, rounded: float) -> None:
    assert round_average(value) == rounded


def test_smoothing_coefficients() -> None:
    assert smoothing_coefficient(6) == pytest.approx(0.7846, abs=5e-5)
    assert smoothing_coefficient(41) > 0.2
    assert smoothing_coefficient(42) == 0.2
    assert smoothing_coefficient(3600) == 0.2


def test_a_weighted_window_starts_low_and_decays_in_silence() -> None:
    buckets = window(60, Aggregation.WEIGHTED_EXPONENTIAL).record(100, 10.0)
    assert buckets.average(100) == pytest.approx(2.0)  # 0.2 of it: nothing older to add
    assert buckets.average(101) == pytest.approx(1.6)  # times 0.8


@given(windows_of(values=plain_loads), st.integers(0, 100))
def test_an_average_lies_between_the_smallest_and_the_largest_bucket(buckets: Buckets, later: int) -> None:
    second = buckets.last_s + later
    if buckets.values:
        assert min(0.0, *buckets.values) <= buckets.average(second) <= max(buckets.values)


@given(windows_of(values=plain_loads))
def test_the_running_total_is_the_sum(buckets: Buckets) -> None:
    assert buckets.total == pytest.approx(math.fsum(buckets.values), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=30), st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter_within_the_window(samples: list[tuple[int, int]], random: object) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = window(60), window(60)
    for second, value in samples:
        one = one.record(START_S + second, float(value))
    for second, value in shuffled:
        other = other.record(START_S + second, float(value))
    assert one == other


@given(histories())
def test_putting_a_sample_twice_changes_nothing(samples: list[tuple[int, float]]) -> None:
    buckets = window(10)
    for second, value in samples:
        buckets = buckets.put(second, value)
        assert buckets.put(second, value) == buckets


def test_put_replaces_what_the_second_held() -> None:
    buckets = window(10).put(100, 4.0).put(101, 6.0).put(100, 1.0)
    assert buckets.values == (1.0, 6.0)
    assert buckets.total == 7.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 1000)), max_size=30))
def test_sources_add_up_and_repeats_of_one_source_do_not(samples: list[tuple[int, int, int]]) -> None:
    """(source, second, value): merging one window per source equals one window with each source's last word."""
    sources = [window(10) for _ in range(3)]
    last_word: dict[tuple[int, int], int] = {}
    for source, second, value in samples:
        sources[source] = sources[source].put(START_S + second, float(value))
        last_word[second, source] = value
    together = window(10)
    for (second, _), value in sorted(last_word.items()):
        together = together.record(START_S + second, float(value))
    assert merged(sources) == together


def test_a_source_that_fell_silent_a_window_ago_is_left_out() -> None:
    old, new = window(6).record(100, 50.0), window(6).record(106, 1.0)
    assert merged([old, new]) == new
    assert merged([window(6), window(6)]) == window(6)
    assert merged([window(6).record(100, 50.0), window(6).record(105, 1.0)]).average(105) == 8.5  # 51 / 6


@given(windows_of(), st.lists(loads, max_size=12))
def test_extending_equals_putting_one_by_one(bucket: Buckets, values: list[float]) -> None:
    """To the last bit, absurd values included."""
    wanted = bucket
    try:
        for value in values:
            wanted = wanted.put(wanted.last_s + 1, value)
    except ValueError:
        with pytest.raises(ValueError, match="finite"):
            bucket.extended(values)
    else:
        assert bucket.extended(values) == wanted
