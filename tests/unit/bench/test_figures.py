"""How figures are summed up and shown."""

from __future__ import annotations

import math

import pytest

from bench.figures import Figure, Result, fill, percentile, shown, tables_of


def a_result(busy=0.0):
    figures = (
        Figure(name="one pod", values={"p50": 0.25, "n": 3}, unit="s", target="p50 < 0.5"),
        Figure(name="watcher", values={"memory": 88.4}, unit="MB", table="memory"),
    )
    return Result(
        title="Latency",
        command="python -m bench latency",
        quick=False,
        at="2026-01-01T00:00:00+00:00",
        took_seconds=12.3,
        busy_before=busy,
        machine={"cores": "2", "cpu": "some", "python": "3.11.7"},
        figures=figures,
    )


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_the_least_value_that_covers_the_share(share, expected):
    assert percentile(range(1, 101), share) == expected


def test_a_percentile_of_nothing_is_not_a_number():
    assert math.isnan(percentile([], 0.5))


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (12345.6, "12,346"), (12.34, "12.3"), (0.01234, "0.0123"), ("7 / 5", "7 / 5")]
)
def test_values_show_three_digits_that_matter(value, text):
    assert shown(value) == text


def test_each_table_has_its_own_columns():
    (first, header, rows), (second, other, _) = tables_of(a_result().figures)
    assert (first, second) == ("", "memory")
    assert header == ["", "p50", "n", "unit", "target"]
    assert rows == [["one pod", "0.25", "3", "s", "p50 < 0.5"]]
    assert other == ["", "memory", "unit"]


PAGE = "# Page\n\n<!-- figures: latency -->\nold\n<!-- end -->\n\ntext\n\n<!-- figures: scale -->\n<!-- end -->\n"


def test_a_page_is_filled_between_its_marks_and_nowhere_else():
    page = fill(PAGE, {"latency": a_result()})
    assert "| one pod | 0.25 | 3 | s | p50 < 0.5 |" in page
    assert "old" not in page
    assert "\n\ntext\n\n" in page
    assert "Not measured yet: `python -m bench scale`." in page
    assert fill(page, {"latency": a_result()}) == page


def test_figures_of_a_busy_machine_say_so():
    assert "busy machine" in fill(PAGE, {"latency": a_result(busy=0.8)})
    assert "busy machine" not in fill(PAGE, {"latency": a_result(busy=0.02)})
