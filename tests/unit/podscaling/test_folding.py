"""Samples into windows: in any order, doubled, late, failing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.builders import a_spec
from wainwright.podscaling import folding
from wainwright.podscaling.folding import folded, missing, source_of, together
from wainwright.podscaling.samples import LoadRefused, Sample, believable, decode_samples, encode_samples

SPEC = a_spec(stable_window_s=10, panic_window_s=3)
S = 1_800_000_000


def a_sample(second, value, source="queue", message="length"):
    return Sample("default/web", source, S + second, value, message)


def fold(*samples, sources=None, spec=SPEC, declared=("queue",), at=100):
    return folded(sources or {}, samples, spec, declared, S + at)


samples = st.lists(st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 50).map(float))), max_size=12).map(
    lambda pairs: [a_sample(second, value) for second, value in pairs]
)


@given(samples, samples)
def test_the_quick_way_and_the_plain_one_agree(first, then):
    begun = fold(*first)
    quick = fold(*then, sources=begun)
    real, folding._quickly = folding._quickly, lambda *_: None
    try:
        assert fold(*then, sources=begun) == quick
    finally:
        folding._quickly = real


@given(samples)
def test_folding_the_same_samples_twice_changes_no_load(some):
    once = fold(*some)
    twice = fold(*some, sources=once)
    assert together(twice, SPEC).stable.average(S + 41) == together(once, SPEC).stable.average(S + 41)


def values(sources, name="queue"):
    return sources[name].windows.stable.values


def test_a_second_without_a_tick_counts_as_the_one_before():
    assert values(fold(a_sample(0, 4.0), a_sample(3, 6.0))) == (4.0, 4.0, 4.0, 6.0)


def test_after_a_long_silence_nothing_is_known_of_the_seconds_between():
    assert values(fold(a_sample(0, 4.0), a_sample(30, 6.0))) == (6.0,)


def test_where_silence_means_zero_it_does():
    spec = a_spec(stable_window_s=10, panic_window_s=3, silence_is_zero=True)
    assert values(fold(a_sample(0, 4.0), a_sample(3, 6.0), spec=spec)) == (4.0, 0.0, 0.0, 6.0)


def test_a_late_sample_takes_the_place_of_what_was_assumed():
    assert values(fold(a_sample(0, 4.0), a_sample(2, 6.0), a_sample(1, 9.0))) == (4.0, 9.0, 6.0)


def test_a_sample_of_the_future_is_dropped():
    assert fold(a_sample(102, 4.0)) == {}


def test_a_source_that_is_not_declared_any_more_is_dropped():
    begun = fold(a_sample(0, 4.0))
    assert folded(begun, [a_sample(1, 5.0)], SPEC, ("other",), S + 2) == {}


def test_reporters_of_a_source_add_up_and_leave_when_they_fall_silent():
    begun = fold(a_sample(0, 4.0, "queue|a"), a_sample(0, 5.0, "queue|b"), at=1)
    assert together(begun, SPEC).stable.average(S) == 9.0
    later = fold(*(a_sample(second, 5.0, "queue|b") for second in range(1, 13)), sources=begun, at=12)
    assert set(later) == {"queue|b"}
    assert {source_of(name) for name in later} == {"queue"}


def test_a_failure_is_remembered_until_the_source_can_be_read():
    failed = fold(a_sample(0, 4.0), a_sample(1, None, message="gone"))
    assert missing(failed, ("queue",), S + 2) == ("queue",)
    assert (failed["queue"].message, failed["queue"].since_s) == ("gone", S + 1)
    healed = fold(a_sample(2, 4.0), sources=failed)
    assert missing(healed, ("queue",), S + 2) == ()
    assert healed["queue"].message == "length"


def test_a_source_that_never_spoke_is_missing():
    assert missing({}, ("queue",), S) == ("queue",)


def test_other_windows_are_fitted_to_changed_settings():
    begun = fold(a_sample(0, 4.0))
    longer = folded(begun, [], a_spec(stable_window_s=20, panic_window_s=2), ("queue",), S + 1)
    assert longer["queue"].windows.stable.length == 20
    assert longer["queue"].windows.panic.length == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e10])
def test_what_no_load_can_be_is_refused(value):
    with pytest.raises(LoadRefused):
        believable(value)


@given(samples)
def test_samples_are_read_as_they_were_written(some):
    assert decode_samples(encode_samples(some)) == some
