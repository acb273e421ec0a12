import pytest

from wainwright.api.syntax import (
    cron_fault,
    is_budget_duration,
    is_budget_nodes,
    is_duration,
    label_key_fault,
    label_value_fault,
)


@pytest.mark.parametrize("key", ["a", "A-b_c.d", "example.com/a", "a.b-c.io/X", "x" * 63, f"{'d' * 253}/a", "1/2"])
def test_a_label_key_is_a_name_with_or_without_a_domain(key):
    assert label_key_fault(key) == ""


@pytest.mark.parametrize(
    "key",
    ["", "/", "a/", "/a", "a/b/c", "a b", "-a", "a-", "x" * 64, f"{'d' * 254}/a", "A.b/c", "a..b/c", "é", "a\n"],
)
def test_anything_else_is_none(key):
    assert label_key_fault(key)


@pytest.mark.parametrize(
    ("value", "sound"), [("", True), ("a.B_c-1", True), ("x" * 64, False), ("-", False), ("a\n", False)]
)
def test_a_label_value_is_empty_or_a_name(value, sound):
    assert (label_value_fault(value) == "") is sound


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("0s", True),
        ("720h", True),
        ("1h30m5s", True),
        ("", False),
        ("1d", False),
        ("1.5h", False),
        ("-1h", False),
        ("h", False),
    ],
)
def test_a_duration_is_whole_hours_minutes_and_seconds(text, sound):
    assert is_duration(text) is sound


@pytest.mark.parametrize(
    ("text", "sound"), [("8h", True), ("1h30m", True), ("10m", True), ("10m0s", True), ("30s", False), ("5m1h", False)]
)
def test_a_budgets_duration_has_no_seconds(text, sound):
    assert is_budget_duration(text) is sound


@pytest.mark.parametrize(
    ("text", "sound"),
    [("0", True), ("5", True), ("0%", True), ("100%", True), ("101%", False), ("-1", False), ("", False)],
)
def test_a_budget_is_a_number_or_a_share(text, sound):
    assert is_budget_nodes(text) is sound


@pytest.mark.parametrize(
    "schedule",
    ["* * * * *", "0 9 * * mon-fri", "*/15 0-6,22-23 1,15 jan-jun/2 0", "0 0 ? * 7", "@daily", "0  9  *  *  *"],
)
def test_a_schedule_is_cron(schedule):
    assert cron_fault(schedule) == ""


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "*/x * * * *",
        "a * * * *",
        "@noon",
        "1,, * * * *",
        "* * * * * *",
    ],
)
def test_what_is_not_cron_is_told(schedule):
    assert cron_fault(schedule)
