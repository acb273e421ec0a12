from __future__ import annotations

import pytest

from wainwright.autoscaling.faults import InvalidSettings
from wainwright.autoscaling.replay import Initial, Settings, SettingsUpdate, Trace, replay

T0 = 1_900_000_000


def a_trace(*events: list[object], **fields: object) -> Trace:
    return Trace(t0_unix=T0, annotations={"target": "10"}, events=list(events), **fields)  # type: ignore[arg-type]


def test_decisions_are_named_as_the_events_of_a_trace() -> None:
    (replayed,) = replay(a_trace(["s", 0, 14], ["d", 0.25, 1]))
    assert replayed.event() == {
        "t": 0.25,
        "ready_pods": 1,
        "desired": 2,  # 14 / 7
        "excess_burst_capacity": -215,  # 10 - 211 - 14
        "valid": True,
        "panic": True,
        "max_panic_pods": 2,
        "stable_value": 14.0,
        "panic_value": 14.0,
        "panic_since": 0.25,
    }


def test_ready_pods_that_are_not_there_are_zero_and_uncountable_ones_are_unknown() -> None:
    missing, unknown = replay(a_trace(["s", 0, 14], ["d", 0, "error:notfound"], ["d", 0, "error:other"]))
    assert missing.decision.ready_pods == 0
    assert unknown.decision.ready_pods is None
    assert not unknown.decision.valid


def test_an_update_counts_from_its_place_on() -> None:
    events = (["s", 0, 14], ["d", 0, 1], ["u", 0, {"annotations": {"target": "<unset>"}}], ["d", 0, 1])
    before, after = replay(a_trace(*events))
    assert (before.spec.total, after.spec.total) == (10.0, 100.0)


def test_updates_of_every_kind() -> None:
    settings = Settings(config={"min-scale": "1", "max-scale": "5"}).updated(
        SettingsUpdate(config={"min-scale": "<unset>"}, container_concurrency=3)
    )
    assert settings == Settings(config={"max-scale": "5"}, container_concurrency=3)


def test_a_trace_may_say_how_its_decider_began() -> None:
    (calm,) = replay(a_trace(["s", 0, 1], ["d", 0, 9], initial=Initial(ready_pods=9, panic=False, max_panic_pods=9)))
    (panicking,) = replay(a_trace(["s", 0, 1], ["d", 0, 9], initial=Initial(ready_pods=9)))
    (early,) = replay(a_trace(["s", 0, 1], ["d", 0, 9], initial=Initial(ready_pods=0, panic=True)))
    assert (calm.decision.panic, panicking.decision.panic, early.decision.panic) == (False, True, True)


def test_faults_in_annotations_are_named_and_count_as_absent() -> None:
    settings = Settings(annotations={"target": "0", "window": "90s"})
    assert [fault.value for fault in settings.faults()] == ["0"]
    assert (settings.spec().total, settings.spec().stable_window_s) == (100.0, 90)


def test_bad_config_and_bad_events_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="stable-window"):
        list(replay(Trace(config={"stable-window": "1s"})))
    with pytest.raises(ValueError, match="not an event"):
        list(replay(a_trace(["q", 1])))
