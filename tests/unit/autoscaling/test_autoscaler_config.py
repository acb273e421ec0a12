from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.autoscaling.config import (
    CONFIG_KEYS,
    AutoscalerConfig,
    DynamicConfig,
    parse_config,
    unread_keys,
)
from wainwright.autoscaling.faults import InvalidSettings

FLOAT_KEYS = (
    "container-concurrency-target-percentage",
    "container-concurrency-target-default",
    "requests-per-second-target-default",
    "target-burst-capacity",
    "activator-capacity",
    "panic-window-percentage",
    "panic-threshold-percentage",
    "max-scale-up-rate",
    "max-scale-down-rate",
)


def faults_of(data: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        parse_config(data)
    return [fault.key for fault in caught.value.faults]


def test_an_empty_map_gives_the_defaults() -> None:
    assert parse_config({}) == AutoscalerConfig()


def test_every_fault_is_reported_at_once() -> None:
    data = {
        "stable-window": "5s",
        "max-scale-up-rate": "1",
        "enable-scale-to-zero": "maybe",
        "min-scale": "-1",
        "target-burst-capacity": "-0.5",
    }
    assert sorted(faults_of(data)) == sorted(data)


@pytest.mark.parametrize("key", FLOAT_KEYS)
@pytest.mark.parametrize("value", ["NaN", "Inf", "-Inf", "1e999"])
def test_nan_and_infinities_are_refused_for_every_number(key: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{key} = '{value}': must be a finite number"):
        parse_config({key: value})


@pytest.mark.parametrize("value", ["0", "-200", "-0.0"])
def test_a_panic_threshold_that_would_always_panic_is_refused(value: str) -> None:
    assert faults_of({"panic-threshold-percentage": value}) == ["panic-threshold-percentage"]


@pytest.mark.parametrize("key", [key for key in CONFIG_KEYS if key != "pod-autoscaler-class"])
def test_every_key_is_read(key: str) -> None:
    assert key in faults_of({key: "garbage"})


def test_one_is_a_hundred_percent_and_a_little_more_is_a_percentage() -> None:
    key = "container-concurrency-target-percentage"
    assert parse_config({key: "1"}).container_concurrency_target_fraction == 1.0
    assert parse_config({key: "1.1"}).container_concurrency_target_fraction == pytest.approx(0.011)
    assert parse_config({key: "70"}) == parse_config({key: "0.7"})


def test_a_target_that_is_too_small_names_a_key_that_the_user_wrote() -> None:
    assert faults_of({"container-concurrency-target-percentage": "0.00001"}) == [
        "container-concurrency-target-percentage"
    ]
    assert faults_of({"container-concurrency-target-default": "0.01"}) == ["container-concurrency-target-default"]


def test_bounds_between_keys() -> None:
    assert faults_of({"max-scale": "4", "min-scale": "5"}) == ["min-scale"]
    assert faults_of({"max-scale-limit": "5"}) == ["max-scale"]
    assert parse_config({"max-scale": "0", "min-scale": "5"}).min_scale == 5


def test_a_key_at_fault_is_not_reported_a_second_time_for_its_neighbour() -> None:
    assert faults_of({"max-scale": "x", "min-scale": "5", "max-scale-limit": "3"}) == ["max-scale"]


@given(st.dictionaries(st.sampled_from([*CONFIG_KEYS, "_example", "tick-interval"]), st.text(max_size=12)))
def test_any_map_is_parsed_or_refused_with_its_faults(data: dict[str, str]) -> None:
    faulty: set[str] = set()
    try:
        parse_config(data)
    except InvalidSettings as error:
        faulty = {fault.key for fault in error.faults}
    assert faulty <= set(data) | {"max-scale"}


def test_keys_that_nothing_reads_are_named_with_what_was_probably_meant() -> None:
    data = {"_example": "x", "stable-windows": "60s", "tick-interval": "2s", "min-scale": "1"}
    assert unread_keys(data) == {"stable-windows": "stable-window", "tick-interval": None}


def test_an_invalid_change_is_refused_whole_and_the_last_good_one_stays() -> None:
    config = DynamicConfig({"stable-window": "30s"})
    faults = config.update({"stable-window": "90s", "max-scale-up-rate": "1"})
    assert [fault.key for fault in faults] == ["max-scale-up-rate"]
    assert config.current().stable_window == timedelta(seconds=30)
    assert config.update({"stable-window": "90s"}) == ()
    assert config.current().stable_window == timedelta(seconds=90)


def test_the_first_configuration_must_be_valid() -> None:
    with pytest.raises(InvalidSettings):
        DynamicConfig({"stable-window": "1s"})
    assert DynamicConfig().current() == AutoscalerConfig()


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text()
    for key in CONFIG_KEYS:
        assert f"`{key}`" in page
