"""The array version against the scalar one: the same answers and the same state, for any shard and any history."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.autoscaling.golden import TRACES
from tests.unit.autoscaling.strategies import START_S, events, instant, loads, specs, windows_of
from wainwright.autoscaling import replay as replay_module
from wainwright.autoscaling.arrays import decide_shard
from wainwright.autoscaling.buckets import Aggregation, Buckets, round_average
from wainwright.autoscaling.decider import DeciderState, Decision, decide
from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.delay_arrays import DelayArrays
from wainwright.autoscaling.replay import Trace, replay
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.autoscaling.window_arrays import grouped, round_averages
from wainwright.autoscaling.windows import Windows


@given(data=st.data(), shard=st.integers(1, 5))
@settings(max_examples=100)
def test_a_shard_decides_as_its_autoscalers_do(data: st.DataObject, shard: int) -> None:
    """Linear averaging: every field of every decision and every state is the same, to the last bit."""
    now_ms = 0
    spec = [data.draw(specs()) for _ in range(shard)]
    windows = [Windows.new(one) for one in spec]
    state = [DeciderState.start(one, data.draw(st.sampled_from([0, 1, 7])), instant(0)) for one in spec]
    for event in data.draw(events(shard)):
        match event:
            case ("pass", milliseconds):
                now_ms += milliseconds
            case ("sample", place, ago, value):
                windows[place] = windows[place].record(instant(now_ms - ago), value)
            case ("spec", place, changed):
                spec[place] = changed
                windows[place] = windows[place].fitted(changed)
            case ("tick", ready):
                now = instant(now_ms)
                scalar = [
                    decide(one, before, load, count, now)
                    for one, before, load, count in zip(spec, state, windows, ready, strict=True)
                ]
                decisions, states = decide_shard(spec, state, windows, ready, now)
                assert decisions == [decision for decision, _ in scalar]
                assert states == [after for _, after in scalar]
                state = states


@given(windows=st.lists(windows_of(), min_size=1, max_size=4), later=st.integers(-3, 100))
@settings(max_examples=80)
def test_linear_averages_are_equal_to_the_last_bit(windows: list[Buckets], later: int) -> None:
    second = max((one.last_s for one in windows if one.values), default=START_S) + later
    for group in grouped(windows):
        for row, average, empty in zip(
            group.rows.tolist(), group.averages(second).tolist(), group.are_empty(second).tolist(), strict=True
        ):
            assert average == windows[row].average(second)
            assert empty == windows[row].is_empty(second)


@given(
    windows=st.lists(windows_of(Aggregation.WEIGHTED_EXPONENTIAL), min_size=1, max_size=4), later=st.integers(-3, 100)
)
@settings(max_examples=80)
def test_weighted_averages_are_equal_but_for_rounding(windows: list[Buckets], later: int) -> None:
    second = max((one.last_s for one in windows if one.values), default=START_S) + later
    for group in grouped(windows):
        for row, average in zip(group.rows.tolist(), group.averages(second).tolist(), strict=True):
            assert math.isclose(average, windows[row].average(second), rel_tol=1e-12, abs_tol=0)


def test_long_weighted_windows_count_what_only_their_oldest_seconds_hold() -> None:
    """One was busy 900 s ago and idle since, one is busy now, one was both, one never: all end as summed in full."""
    length = 1000
    busy_long_ago = Buckets(length=length, aggregation=Aggregation.WEIGHTED_EXPONENTIAL).record(START_S, 1e6)
    both = busy_long_ago
    for second in range(START_S + 1, START_S + 901):
        busy_long_ago = busy_long_ago.record(second, 0.0)
        both = both.record(second, 0.0 if second < START_S + 895 else 3.5)
    now_only = Buckets(length=length, aggregation=Aggregation.WEIGHTED_EXPONENTIAL).record(START_S + 900, 12.0)
    never = Buckets(length=length, aggregation=Aggregation.WEIGHTED_EXPONENTIAL)
    (group,) = grouped([busy_long_ago, both, now_only, never])
    for later in (0, 1, 40):
        second = START_S + 900 + later
        expected = [one.average(second) for one in (busy_long_ago, both, now_only, never)]
        assert expected[0] > 0
        for average, scalar in zip(group.averages(second).tolist(), expected, strict=True):
            assert math.isclose(average, scalar, rel_tol=1e-12, abs_tol=0)


@given(st.lists(st.one_of(st.floats(allow_nan=False), loads, st.integers(0, 10**9).map(lambda n: n / 2e6))))
def test_rounding_is_equal(values: list[float]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = round_averages(np.array(values, dtype=np.float64)).tolist()
    assert rounded == [round_average(value) for value in values]


@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 5]), min_size=1, max_size=4),
    ticks=st.lists(st.tuples(st.integers(-3, 12), st.lists(st.integers(0, 9), min_size=4, max_size=4)), max_size=25),
)
def test_delays_of_a_shard_hold_the_same_wishes(lengths: list[int], ticks: list[tuple[int, list[int]]]) -> None:
    windows = [DelayWindow(length=length) if length else None for length in lengths]
    arrays = DelayArrays.of(windows)
    second = START_S
    for step, wishes in ticks:
        second += step
        counts = np.array([wish != 9 for wish in wishes[: len(windows)]])
        arrays, largest = arrays.record(second, np.array(wishes[: len(windows)], dtype=np.int64), counts)
        for place, wish in enumerate(wishes[: len(windows)]):
            window = windows[place]
            if window is not None and counts[place]:
                windows[place] = window = window.record(second, wish)
                assert largest[place] == window.maximum()
            else:
                assert largest[place] == wish
        assert arrays.values() == windows


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_golden_traces_decide_the_same_as_a_shard(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = msgspec.json.decode(path.read_bytes(), type=Trace)
    weighted = trace.spec().aggregation is Aggregation.WEIGHTED_EXPONENTIAL

    def both(
        spec: DeciderSpec, state: DeciderState, windows: Windows, ready: int | None, now: datetime
    ) -> tuple[Decision, DeciderState]:
        scalar = decide(spec, state, windows, ready, now)
        (decision,), (after,) = decide_shard([spec], [state], [windows], [ready], now)
        if weighted:
            assert decision.desired == scalar[0].desired
            assert after.panic_since_ms == scalar[1].panic_since_ms
        else:
            assert (decision, after) == scalar
        return decision, after

    monkeypatch.setattr(replay_module, "decide", both)
    decided: list[Any] = list(replay(trace))
    assert decided


def test_an_empty_shard_decides_nothing() -> None:
    assert decide_shard([], [], [], [], instant(0)) == ([], [])
