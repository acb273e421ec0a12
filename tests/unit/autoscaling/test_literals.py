from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.autoscaling.literals import (
    LiteralError,
    duration,
    parse_bool,
    parse_duration_ns,
    parse_float,
    parse_int32,
)

MS = 1_000_000
SECOND = 1000 * MS


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("90s", 90 * SECOND),
        ("1m30s", 90 * SECOND),
        ("1h0m0.5s", 3600 * SECOND + 500 * MS),
        ("1.5h", 5400 * SECOND),
        (".5s", 500 * MS),
        ("1.s", SECOND),
        ("-2ms", -2 * MS),
        ("+3us", 3000),
        ("1µs1μs1ns", 2001),
        ("30s1m", 90 * SECOND),  # any order
        ("0.3333333333s", 333_333_333),  # cut, not rounded
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "60", "1d", " 60s", "60s ", "s", ".s", "1h-1m", "--1s", "1 s", "-", "٣s", "9999999999h", "1s" * 300]
)
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_duration_ns(text)


def test_a_positive_duration_stays_positive_as_timedelta() -> None:
    assert duration(1) == timedelta(microseconds=1)
    assert duration(1500 * MS) == timedelta(milliseconds=1500)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("t", True), ("0", False), ("False", False)])
def test_truth_values(text: str, *, value: bool) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["yes", "on", " true", "", "tRUE"])
def test_texts_that_are_no_truth_values(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_bool(text)


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("+7", 7), ("-1", -1), ("007", 7), ("2147483647", 2147483647)])
def test_whole_numbers(text: str, value: int) -> None:
    assert parse_int32(text) == value


@pytest.mark.parametrize("text", ["", " 1", "1.0", "1e3", "1_000", "2147483648", "٣", "9" * 5000])
def test_texts_that_are_no_whole_numbers_in_32_bits(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_int32(text)


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000.0), (".5", 0.5), ("5.", 5.0), ("+1", 1.0), ("-0.5", -0.5)])
def test_numbers(text: str, value: float) -> None:
    assert parse_float(text) == value


@pytest.mark.parametrize("text", ["NaN", "nan", "inf", "-Inf", "+Infinity", "1e999", "-1e999"])
def test_nan_and_infinities_are_refused_as_such(text: str) -> None:
    with pytest.raises(LiteralError, match="finite"):
        parse_float(text)


@pytest.mark.parametrize("text", ["", "x", " 1", "1_0", "0x1p4", "1e", ".", "٣"])
def test_texts_that_are_no_numbers(text: str) -> None:
    with pytest.raises(LiteralError):
        parse_float(text)


@pytest.mark.parametrize("parse", [parse_bool, parse_int32, parse_float, parse_duration_ns])
@given(text=st.text())
def test_any_text_is_parsed_or_refused(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(LiteralError):
        parse(text)
