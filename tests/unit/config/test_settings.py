"""Settings: what the environment may say, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.celery import QUEUES, ROUTES, beat_schedule, celery_config
from config.settings import Group, Settings, SettingsError, documentation, environment, load_settings, variables
from workers.documents import redis_document

ROOT = Path(__file__).parents[3]


def test_a_misspelt_variable_is_told_with_the_likely_right_name():
    with pytest.raises(SettingsError, match=r"IDEL_SECONDS=2: there is no such setting; did you mean .*IDLE_SECONDS"):
        load_settings({"WAINWRIGHT_BATCHING_IDEL_SECONDS": "2"})


def test_a_misspelt_group_is_told_too():
    with pytest.raises(SettingsError, match="did you mean WAINWRIGHT_BATCHING_MAX_ITEMS"):
        load_settings({"WAINWRIGHT_BACHING_MAX_ITEMS": "2"})


def test_every_fault_is_told_at_once_with_variable_and_value():
    with pytest.raises(SettingsError) as caught:
        load_settings({"WAINWRIGHT_REDIS_URL": "http://x", "WAINWRIGHT_BATCHING_SHARDS": "0", "WAINWRIGHT_NOPE": "1"})
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "WAINWRIGHT_NOPE=1",
        "WAINWRIGHT_REDIS_URL=http",
        "WAINWRIGHT_BATCHING_SHARDS=0",
    ]


def test_a_fault_between_two_fields_names_both():
    given = {"WAINWRIGHT_BATCHING_IDLE_SECONDS": "20", "WAINWRIGHT_BATCHING_MAX_SECONDS": "5"}
    with pytest.raises(SettingsError, match=r"IDLE_SECONDS=20, .*MAX_SECONDS=5: idle_seconds 20 must not exceed"):
        load_settings(given)


def test_variables_of_others_are_left_alone():
    assert load_settings({"PATH": "/bin", "CELERY_BROKER_URL": "x"}) == Settings()


def test_another_process_loads_the_same_settings():
    settings = load_settings({"WAINWRIGHT_BATCHING_IDLE_SECONDS": "0.5", "WAINWRIGHT_CLOUD_CLUSTER": "east"})
    assert load_settings(environment(settings)) == settings


def test_defaults_are_karpenters():
    batching = Settings().batching
    assert (batching.idle_seconds, batching.max_seconds, batching.max_items) == (1.0, 10.0, 2000)
    assert Settings().launch.deadline_seconds == 300
    assert Settings().launch.unavailable_seconds == 180
    assert Settings().launch.binding == "direct"


def test_every_field_is_documented():
    for description in Settings.model_fields.values():
        kind = description.annotation
        assert issubclass(kind, Group)
        for field, info in kind.model_fields.items():
            assert info.description, f"{kind.__name__}.{field} has no docstring under it"


@pytest.mark.parametrize(("name", "made"), [("settings.md", documentation), ("redis.md", redis_document)])
def test_documents_are_up_to_date(name, made):
    assert (ROOT / "docs" / name).read_text() == made(), f"run `make docs` to write docs/{name} anew"


def test_a_message_is_only_a_hint():
    conf = celery_config(Settings())
    assert conf["task_acks_late"] is False
    assert conf["result_backend"] is None
    assert conf["task_ignore_result"] is True
    assert conf["worker_disable_prefetch"] is True
    assert conf["broker_connection_max_retries"] is None
    assert conf["broker_transport_options"]["visibility_timeout"] == 3600


def test_every_period_is_a_setting_and_every_task_has_a_queue():
    settings = load_settings({name: "7" for name, (group, _) in variables().items() if group == "beat"})
    schedule = beat_schedule(settings)
    assert {entry["schedule"] for entry in schedule.values()} == {7.0}
    assert {entry["task"] for entry in schedule.values()} <= set(ROUTES)
    assert set(ROUTES.values()) == set(QUEUES)
