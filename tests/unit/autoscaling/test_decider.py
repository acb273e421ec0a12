from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.builders import a_spec, calm, loaded
from tests.unit.autoscaling.strategies import START, histories, instant, loads, plain_loads, ready_counts, specs
from wainwright.autoscaling.decider import (
    SCALE_UNKNOWN,
    DeciderState,
    Limit,
    Verdict,
    decide,
    excess_burst_capacity,
)
from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.instants import from_unix_ms, unix_ms
from wainwright.autoscaling.literals import MAX_INT32
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.autoscaling.windows import Windows


def test_a_steady_load_asks_for_load_over_target_rounded_up() -> None:
    spec = a_spec()
    decision, state = decide(spec, calm(spec), loaded(spec, 41.0), 5, START)
    assert (decision.desired, decision.limits) == (5, ())  # 41 / 10
    assert not decision.panic
    assert state.desired == 5
    assert decision.excess_burst_capacity == 5 * 10 - 211 - 41


def test_panic_begins_at_the_threshold_and_not_below_it() -> None:
    spec = a_spec()
    assert decide(spec, calm(spec), loaded(spec, 40.0), 2, START)[0].panic  # 4 wished over 2 ready = 2.0
    assert not decide(spec, calm(spec), loaded(spec, 30.0), 2, START)[0].panic  # 3 / 2 = 1.5


def test_the_threshold_counts_whole_wished_pods_before_every_limit() -> None:
    """Rate 1.1 allows 3 pods, but 40 wished over 2 ready is panic."""
    spec = a_spec(max_scale_up_rate=1.1)
    decision, _ = decide(spec, calm(spec), loaded(spec, 400.0), 2, START)
    assert decision.panic
    assert decision.desired == 3  # ceil(2.2)
    assert decision.limits == (Limit.SCALE_UP_RATE,)


def test_panic_never_scales_down_and_holds_its_largest_wish() -> None:
    spec = a_spec()
    _, state = decide(spec, calm(spec), loaded(spec, 200.0), 2, START)
    later = START + timedelta(seconds=30)
    decision, state = decide(spec, state, loaded(spec, 10.0, until=30), 20, later)
    assert (decision.desired, decision.limits) == (20, (Limit.PANIC,))
    assert state.panic_since_ms == unix_ms(START)  # not extended: the load is over


def test_panic_ends_when_more_than_a_stable_window_passed_below_the_threshold() -> None:
    spec = a_spec()
    state = calm(spec, panic_since_ms=unix_ms(START), max_panic_pods=20)
    for seconds, panic, desired in ((60, True, 20), (60.001, False, 10)):
        now = START + timedelta(seconds=seconds)
        decision, after = decide(spec, state, loaded(spec, 10.0, until=60), 20, now)
        assert (decision.panic, decision.desired) == (panic, desired)  # calm: 1 wished, but 20 / 2 at least
        assert after.max_panic_pods == (20 if panic else 0)


def test_every_tick_over_the_threshold_extends_panic() -> None:
    spec = a_spec()
    state = calm(spec, panic_since_ms=unix_ms(START - timedelta(seconds=50)), max_panic_pods=4)
    _, state = decide(spec, state, loaded(spec, 40.0), 2, START)
    assert state.panic_since_ms == unix_ms(START)


def test_a_decider_that_finds_pods_running_starts_in_panic() -> None:
    spec = a_spec()
    state = DeciderState.start(spec, 10, START)
    assert (state.panic_since_ms, state.max_panic_pods, state.desired) == (unix_ms(START), 10, SCALE_UNKNOWN)
    decision, _ = decide(spec, state, loaded(spec, 1.0, seconds=2, until=2), 10, START + timedelta(seconds=2))
    assert decision.desired == 10
    for ready in (None, 0, 1):
        assert DeciderState.start(spec, ready, START).panic_since_ms is None


def test_rates_and_reachability_on_the_way_down() -> None:
    spec = a_spec(max_scale_down_rate=2.0)
    windows = loaded(spec, 0.0)
    assert decide(spec, calm(spec), windows, 9, START)[0].desired == 4  # floor(9 / 2)
    assert decide(spec, calm(spec), windows, 1, START)[0].desired == 0  # floor(1 / 2): one pod may go at once
    assert decide(a_spec(reachable=False), calm(spec), windows, 9, START)[0].desired == 0


def test_activation_scale_raises_any_load_but_not_none() -> None:
    spec = a_spec(activation_scale=5)
    decision, _ = decide(spec, calm(spec), loaded(spec, 1.0), 0, START)
    assert (decision.desired, decision.limits) == (5, (Limit.ACTIVATION_SCALE,))
    assert decide(spec, calm(spec), loaded(spec, 0.0), 0, START)[0].desired == 0
    slow = a_spec(activation_scale=5, max_scale_up_rate=1.1)
    assert decide(slow, calm(slow), loaded(slow, 100.0), 1, START)[0].desired == 5  # not held back by the rate


def test_the_scale_down_delay_holds_the_largest_wish_of_its_span() -> None:
    spec = a_spec(scale_down_delay_s=30)
    state = calm(spec)
    _, state = decide(spec, state, loaded(spec, 80.0), 8, START)
    for seconds, desired in ((28, 8), (30, 4)):
        now = START + timedelta(seconds=seconds)
        decision, _ = decide(spec, state, loaded(spec, 10.0, until=seconds), 8, now)
        assert decision.desired == desired  # 1 wished, 4 by rate
        assert (Limit.SCALE_DOWN_DELAY in decision.limits) == (desired == 8)


def test_a_changed_delay_counts_for_a_live_decider_only_when_told() -> None:
    without = a_spec()
    spec = a_spec(scale_down_delay_s=30)
    state = calm(without)
    assert decide(spec, state, loaded(spec, 80.0), 8, START)[1].delay is None
    state = state.with_delay(spec)
    state = decide(spec, state, loaded(spec, 80.0), 8, START)[1]
    assert state.delay == DelayWindow(length=15, wishes=((unix_ms(START) // 2000, 8),))
    assert state.with_delay(a_spec(scale_down_delay_s=10)).delay == DelayWindow(length=5, wishes=state.delay.wishes)
    assert state.with_delay(without).delay is None


def test_no_data_changes_nothing() -> None:
    spec = a_spec(scale_down_delay_s=30)
    state = calm(spec, desired=7, excess_burst_capacity=-3, panic_since_ms=5, max_panic_pods=7)
    decision, after = decide(spec, state, loaded(spec, 50.0, until=-61), 3, START)
    assert (decision.valid, decision.verdict) == (False, Verdict.NO_DATA)
    assert (decision.desired, decision.excess_burst_capacity, decision.stable_value) == (None, None, None)
    assert after == msgspec.structs.replace(state, decided_ms=unix_ms(START))


def test_exactly_one_window_after_the_last_sample_zero_is_a_valid_answer() -> None:
    spec = a_spec()
    decision, _ = decide(spec, calm(spec), loaded(spec, 50.0, until=-60), 3, START)
    assert (decision.valid, decision.stable_value, decision.desired) == (True, 0.0, 1)  # floor(3 / 2)


def test_silence_is_zero_only_where_load_reports_itself() -> None:
    spec = a_spec(silence_is_zero=True, target_burst_capacity=-1.0)
    decision, _ = decide(spec, calm(spec), Windows.new(spec), 0, START)
    assert (decision.valid, decision.desired, decision.excess_burst_capacity) == (True, 0, -1)


def test_pods_that_cannot_be_counted_change_nothing() -> None:
    spec = a_spec()
    decision, after = decide(spec, calm(spec, desired=7), loaded(spec, 50.0), None, START)
    assert (decision.verdict, decision.desired, decision.stable_value) == (Verdict.READY_PODS_UNKNOWN, None, 50.0)
    assert after.desired == 7


def test_a_decision_older_than_the_state_changes_nothing() -> None:
    """A slow tick ends after a newer one, or the clock went back: the newer state stays."""
    spec = a_spec()
    _, state = decide(spec, calm(spec), loaded(spec, 50.0), 5, START)
    decision, after = decide(spec, state, loaded(spec, 500.0), 5, START - timedelta(milliseconds=1))
    assert (decision.valid, decision.verdict) == (False, Verdict.OLDER_THAN_STATE)
    assert after is state


@pytest.mark.parametrize(
    ("burst", "ready", "panic_value", "spare"),
    [
        (0.0, 5, 1000.0, 0),  # none wanted
        (-1.0, 5, 0.0, -1),  # endless
        (20.0, 5, 20.0, 10),  # 5 x 10 - 20 - 20
        (20.0, 0, 0.5, -21),  # -20.5 rounded down
    ],
)
def test_excess_burst_capacity(burst: float, ready: int, panic_value: float, spare: int) -> None:
    assert excess_burst_capacity(a_spec(target_burst_capacity=burst), ready, panic_value) == spare


@pytest.mark.parametrize("value", [1e15, 1e300])
def test_an_absurd_load_asks_for_the_most_that_the_rate_allows(value: float) -> None:
    spec = a_spec()
    decision, _ = decide(spec, calm(spec), loaded(spec, value, seconds=5), 4, START)
    assert decision.desired == 4000
    endless = a_spec(max_scale_up_rate=1e308)
    assert decide(endless, calm(endless), loaded(endless, value, seconds=5), 4, START)[0].desired == MAX_INT32
    assert decision.excess_burst_capacity == -(2**31)


@given(specs(), histories(plain_loads), ready_counts, st.integers(0, 70), st.integers(1, 5))
def test_more_load_never_lowers_the_wish(
    spec: DeciderSpec, samples: list[tuple[int, float]], ready: int, later: int, factor: int
) -> None:
    less, more = Windows.new(spec), Windows.new(spec)
    for second, value in samples:
        less = less.record(from_unix_ms(1000 * second), value)
        more = more.record(from_unix_ms(1000 * second), value * factor + (1 if factor > 1 else 0))
    now = from_unix_ms(1000 * max((second for second, _ in samples), default=0) + 1000 * later)
    state = DeciderState.start(spec, ready % 3, from_unix_ms(0))
    a, b = decide(spec, state, less, ready, now)[0], decide(spec, state, more, ready, now)[0]
    assert a.valid == b.valid
    if a.desired is not None and b.desired is not None:
        assert a.desired <= b.desired


@given(specs(), histories(loads), ready_counts, st.integers(0, 4))
def test_a_doubled_tick_changes_nothing(
    spec: DeciderSpec, samples: list[tuple[int, float]], ready: int, began_with: int
) -> None:
    state = DeciderState.start(spec, began_with, instant(0))
    windows = Windows.new(spec)
    now = instant(0)
    for second, value in samples:
        now = max(now, from_unix_ms(1000 * second))
        windows = windows.record(now, value)
        decision, state = decide(spec, state, windows, ready, now)
        again, same = decide(spec, state, windows, ready, now)
        assert same == state
        assert (again.desired, again.panic_since_ms) == (decision.desired, decision.panic_since_ms)


@given(specs(), histories(loads), ready_counts)
def test_a_wish_is_a_count_of_pods(spec: DeciderSpec, samples: list[tuple[int, float]], ready: int) -> None:
    state = DeciderState.start(spec, ready, instant(0))
    windows = Windows.new(spec)
    for second, value in samples:
        now = max(instant(0), from_unix_ms(1000 * second))
        windows = windows.record(now, value)
        decision, state = decide(spec, state, windows, ready, now)
        if decision.desired is not None:
            assert 0 <= decision.desired <= MAX_INT32
            assert -(2**31) <= state.excess_burst_capacity <= MAX_INT32
            assert not decision.panic or decision.max_panic_pods <= decision.desired
