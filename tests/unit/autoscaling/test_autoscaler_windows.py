from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from tests.unit.autoscaling.builders import a_spec, loaded
from tests.unit.autoscaling.strategies import START, START_S
from wainwright.autoscaling.annotations import Metric
from wainwright.autoscaling.buckets import Aggregation
from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.instants import from_unix_ms, unix_ms, unix_second
from wainwright.autoscaling.windows import Averages, Windows


def test_a_sample_goes_into_both_windows() -> None:
    windows = Windows.new(a_spec()).record(START, 5.0).record(START + timedelta(seconds=7), 1.0)
    assert windows.averages(START + timedelta(seconds=7)) == Averages(stable=0.75, panic=1.0)  # 6 / 8; anew


def test_windows_without_data_have_no_averages() -> None:
    windows = Windows.new(a_spec())
    assert windows.averages(START) is None
    windows = windows.put(START, 5.0)
    assert windows.averages(START + timedelta(seconds=60)) == Averages(0.0, 0.0)
    assert windows.averages(START + timedelta(seconds=61)) is None


def test_fitting_resizes_and_keeps_the_newest_seconds() -> None:
    spec = a_spec()
    windows = loaded(spec, 4.0)
    assert windows.fitted(spec) is windows
    fitted = windows.fitted(a_spec(stable_window_s=20, panic_window_s=2))
    assert (len(fitted.stable.values), len(fitted.panic.values)) == (20, 2)


def test_another_metric_starts_empty_windows() -> None:
    assert loaded(a_spec(), 4.0).fitted(a_spec(metric=Metric.RPS)) == Windows.new(a_spec(metric=Metric.RPS))


def test_the_way_of_averaging_stays_until_it_is_changed_on_purpose() -> None:
    weighted = a_spec(aggregation=Aggregation.WEIGHTED_EXPONENTIAL)
    windows = loaded(a_spec(), 4.0)
    assert windows.fitted(weighted).stable.aggregation is Aggregation.LINEAR
    changed = windows.with_aggregation(Aggregation.WEIGHTED_EXPONENTIAL)
    assert changed.panic.values == windows.panic.values
    assert changed == loaded(weighted, 4.0)


def test_instants_are_rounded_down() -> None:
    almost = datetime(2030, 3, 17, 17, 46, 40, 999_999, tzinfo=START.tzinfo)
    assert unix_second(almost) == START_S
    assert unix_ms(almost) == 1000 * START_S + 999
    assert from_unix_ms(1000 * START_S) == START
    assert unix_second(datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=START.tzinfo)) == -1
    assert unix_second(START.astimezone(ZoneInfo("UTC"))) == START_S


def test_a_delay_is_rounded_up_to_two_seconds() -> None:
    assert DelayWindow.of(7) == DelayWindow(length=4)
    assert DelayWindow.of(0) is None


def test_a_wish_expires_with_its_bucket() -> None:
    window = DelayWindow(length=2).record(100, 9).record(102, 3)
    assert window.maximum() == 9
    assert window.record(104, 1).maximum() == 3


def test_two_wishes_in_one_bucket_keep_the_larger() -> None:
    assert DelayWindow(length=2).record(100, 9).record(101, 3).wishes == ((50, 9),)
    assert DelayWindow(length=2).record(100, 3).record(101, 9).wishes == ((50, 9),)


def test_a_clock_that_went_back_does_not_bring_wishes_back() -> None:
    window = DelayWindow(length=2).record(100, 3).record(50, 9)
    assert window.wishes == ((50, 9),)
    assert DelayWindow(length=1).maximum() == 0
