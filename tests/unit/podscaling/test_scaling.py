"""Whole passes: load in, Scale and status out, under one clock."""

import pytest

from tests.unit.podscaling.world import PUSH, QUEUE, WIDGETS, World
from wainwright.autoscaling.decider import Verdict
from wainwright.errors import Conflict, KubeError, KubeUnavailable, ViewNotReady
from wainwright.kube.resources import DEPLOYMENTS, POD_AUTOSCALERS, PODS

PODS_ONLY = {"type": "pods"}


@pytest.fixture
def web(world):
    """A Deployment with one pod that works off ten at a time, calm for a minute."""
    world.deployment()
    world.autoscaler()
    world.run(70, 5)
    assert world.wish() == 1
    return world


def test_load_scales_up_and_is_told(web):
    web.run(60, 75)
    assert web.replicas() == 8
    assert web.status()["desiredScale"] == web.status()["actualScale"] == 8
    assert web.condition("Ready") == ("True", "Ready")
    assert web.condition("Active") == ("True", "Active")
    (first, *_) = web.events.of("ScaledUp")
    assert "Scaled Deployment web from 1 to" in first[2]
    assert "target 10 a pod" in first[2]


def test_a_burst_is_answered_in_panic(web):
    web.run(6, 200)
    assert web.record().state.panic_since_ms is not None
    assert web.replicas() > 10
    web.run(50, 5)
    assert web.replicas() > 10, "no fewer pods before a stable window has passed"
    web.run(70, 5)
    assert web.record().state.panic_since_ms is None
    assert web.replicas() == 1


def test_no_load_leads_to_zero_in_steps(web):
    web.run(60, 0)
    assert web.replicas() == 1
    web.run(10, 0)
    assert web.condition("Active") == ("False", "NoTraffic")
    assert web.replicas() == 1, "the grace period"
    web.run(32, 0)
    assert web.replicas() == 0
    assert web.status()["desiredScale"] == 0
    assert web.condition("Ready") == ("False", "NoTraffic")


def test_load_on_something_at_zero_wakes_it_at_once(web):
    web.run(110, 0)
    assert web.replicas() == 0
    web.clock.advance(1)
    awake = web.says(3)
    assert awake == ["default/web"]
    web.scaling.poke(awake)
    assert web.replicas() == 1
    web.run(4, 3)
    assert web.condition("Active") == ("True", "Active")


def test_samples_without_load_wake_nobody(web):
    web.run(110, 0)
    web.clock.advance(1)
    assert web.says(0) == []


def test_pods_alone_cannot_see_load_at_zero_so_one_stays(world):
    world.deployment()
    world.autoscaler(metrics=(PODS_ONLY,))
    world.run(180, each=lambda: world.says(0, source="pods"))
    assert world.replicas() == 1
    assert world.condition("Active") == ("True", "NoSourceAtZero")
    assert "cannot see load" in world.message("Active")


def test_what_the_target_has_already_is_not_written(web):
    before = list(web.scaled())
    web.run(30, 5)
    assert web.scaled() == before
    patches = [call for call in web.kube.calls if call[0] == "patch"]
    web.run(30, 5)
    assert [call for call in web.kube.calls if call[0] == "patch"] == patches, "nor is a status that says nothing new"


def test_a_manual_change_is_the_new_current(web):
    web.kube.change(DEPLOYMENTS, "web", "default", spec={"replicas": 6})
    web.run(2, 5)
    assert web.scaled()[-1] == ("web", 3), "from the six that are there, at most halved"


def test_a_change_between_view_and_write_is_left_to_the_next_tick(web):
    """The Scale says 30 already; the view still said 1 when the wish was carried out."""
    web.run(58, 75)
    web.kube.refuse = Conflict("changed", status=409)
    web.run(2, 300)
    held = web.replicas()
    web.kube.refuse = None
    web.run(2, 300)
    assert web.replicas() > held


def test_bounds_hold_on_what_is_written(world):
    world.deployment(replicas=3)
    world.autoscaler(min_scale="2", max_scale="5")
    world.run(70, 500)
    assert world.replicas() == 5
    world.run(200, 0)
    assert world.replicas() == 2


def test_a_knob_changes_without_a_new_object(web):
    web.annotate(target="1")
    web.run(4, 5)
    assert web.replicas() == 5
    web.annotate(max_scale="2")
    web.run(2, 5)
    assert web.replicas() == 2


def test_a_changed_scale_down_delay_counts_at_once(web):
    web.annotate(scale_down_delay="2m", target="1")
    web.run(60, 5)
    assert web.replicas() == 5
    web.run(100, 1)
    assert web.replicas() == 5
    web.annotate(scale_down_delay="0s")
    web.run(4, 1)
    assert web.replicas() < 5


def test_a_target_that_begins_at_zero_stays_there_without_load(world):
    world.deployment(replicas=0)
    world.autoscaler()
    world.run(30, 0)
    assert world.replicas() == 0
    assert world.condition("Active") == ("False", "NoTraffic")
    world.run(6, 5)
    assert world.replicas() == 1


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_a_source_that_vanishes_is_never_zero(web):
    web.run(60, 75)
    held = web.replicas()
    web.run(200, each=lambda: web.says(None, message="Redis: no answer"))
    assert web.replicas() == held
    assert web.condition("MetricsAvailable") == ("False", "CollectionFailed")
    assert "redisList: Redis: no answer" in web.message("MetricsAvailable")
    assert web.events.of("CollectionFailed")
    (told,) = web.status()["metrics"]
    assert (told["status"], told["message"]) == ("False", "Redis: no answer")


def test_a_source_that_comes_back_goes_on_where_it_was(web):
    """Seconds without an answer must not count as zeros afterwards either."""
    web.run(60, 75)
    web.run(30, each=lambda: web.says(None, message="gone"))
    before = web.replicas()
    web.run(20, 75)
    assert web.replicas() == before
    assert web.condition("MetricsAvailable") == ("True", "MetricsAvailable")


def test_one_lost_answer_is_not_told(web):
    web.run(2, each=lambda: web.says(None, message="gone"))
    web.run(4, 5)
    assert not web.events.of("CollectionFailed")


def test_of_two_sources_one_alone_may_raise_the_wish_but_not_lower_it(world):
    world.deployment(replicas=1)
    world.autoscaler(metrics=(QUEUE, {**QUEUE, "name": "other"}))

    def both(a, b):
        world.says(a)
        world.says(b, source="other")

    world.run(70, each=lambda: both(30, 40))
    assert world.replicas() == 7
    world.run(120, each=lambda: both(30, None))
    assert world.replicas() == 7
    world.run(60, each=lambda: both(120, None))
    assert world.replicas() == 12
    world.run(140, each=lambda: both(5, 5))
    assert world.replicas() == 1


def test_a_missing_collect_tick_leaves_no_hole(web):
    """Beat's jitter drops a second now and then: it counts as the one before, not as zero."""
    second = iter(range(1000))
    web.run(120, each=lambda: web.says(20) if next(second) % 3 else None)
    assert web.wish() == 2
    assert web.record().last.stable_value == 20


def test_a_target_that_does_not_exist_is_named(world):
    world.autoscaler(target="nowhere")
    world.run(10, 5)
    assert world.condition("ScaleTargetFound") == ("False", "TargetNotFound")
    assert "Deployment nowhere does not exist" in world.message("ScaleTargetFound")
    assert world.condition("Ready")[0] == "False"
    assert world.events.of("TargetNotFound")
    world.deployment("nowhere")
    world.run(10, 25)
    assert world.kube.of(DEPLOYMENTS)["nowhere"]["spec"]["replicas"] == 3


def test_a_kind_without_scale_is_named(world):
    world.autoscaler(kind="Gadget", api="example.com/v1")
    world.run(10, 5)
    assert world.condition("ScaleTargetFound") == ("False", "TargetNotFound")
    assert "serves no Gadget" in world.message("ScaleTargetFound")


def test_a_refused_write_is_named_and_tried_again(web):
    web.kube.refuse = KubeError("deployments.apps web is forbidden", status=403, reason="Forbidden")
    web.run(60, 75)
    assert web.replicas() == 1
    assert web.condition("ScaleTargetFound") == ("False", "ScaleRefused")
    assert "forbidden" in web.message("ScaleTargetFound")
    assert web.events.of("ScaleRefused")
    web.kube.refuse = None
    web.run(4, 75)
    assert web.replicas() == 8
    assert web.condition("Ready") == ("True", "Ready")


def test_an_unreachable_api_server_is_waited_for(web):
    web.kube.refuse = KubeUnavailable("time-out")
    web.run(60, 75)
    web.kube.refuse = None
    web.run(2, 75)
    assert web.replicas() == 8


def test_any_kind_with_a_scale_can_be_a_target(world):
    world.deployment("w", resource=WIDGETS)
    world.pod("w-1", app="w")
    world.autoscaler("w", kind="Widget", api="example.com/v1")
    world.run(20, 45, name="w")
    assert world.kube.of(WIDGETS)["w"]["spec"]["replicas"] == 5


def test_an_annotation_that_does_not_parse_is_named_and_the_rest_holds(web):
    web.annotate(window="soon", target="1")
    web.run(6, 5)
    assert web.condition("SettingsValid") == ("False", "InvalidSettings")
    assert "window = 'soon'" in web.message("SettingsValid")
    assert web.events.of("InvalidSettings")
    assert web.replicas() == 5


def test_of_two_on_one_target_the_older_has_it(world):
    world.deployment(replicas=1)
    world.autoscaler("first", target="web")
    world.clock.advance(1)
    world.autoscaler("second", target="web")

    def both():
        world.says(45, "first")
        world.says(500, "second")

    world.run(80, each=both)
    assert world.replicas() == 5
    assert world.condition("ScaleTargetFound", "second") == ("False", "TargetShared")
    assert "default/first is older" in world.message("ScaleTargetFound", "second")
    assert world.events.of("TargetShared")
    world.kube.remove(POD_AUTOSCALERS, "first", "default")
    world.run(80, each=lambda: world.says(500, "second"))
    assert world.replicas() == 50
    assert world.condition("Ready", "second") == ("True", "Ready")


def test_a_spec_that_contradicts_itself_is_named(world):
    world.deployment()
    world.autoscaler(metrics=(QUEUE, QUEUE))
    world.run(6)
    assert world.condition("SettingsValid") == ("False", "InvalidSettings")
    assert "name of another source" in world.message("SettingsValid")
    assert world.record() is None, "nothing is decided for it"


def test_another_class_is_left_alone(world):
    world.deployment()
    world.autoscaler(**{"class": "hpa.autoscaling.knative.dev"})
    world.run(10, 500)
    assert (world.replicas(), world.status()) == (1, {})


# State ----------------------------------------------------------------------------------------------------------------


def test_a_restarted_process_goes_on_in_the_middle_of_a_panic(web):
    web.run(6, 200)
    panic = web.record().state.panic_since_ms
    web.start_process()
    web.run(2, 5)
    assert web.record().state.panic_since_ms >= panic
    assert len(web.record().sources["redisList"].windows.stable.values) == 60


def test_after_redis_was_emptied_nothing_known_is_overwritten(web):
    web.run(60, 75)
    web.store.redis.flushall()
    web.view()
    for _ in range(3):
        web.clock.advance(2)
        web.tick()
        assert web.replicas() == 8
        assert web.status()["desiredScale"] == 8
        assert web.condition("Active")[0] == "True"
    assert web.record().state.panic_since_ms is not None, "as Knative begins with many ready pods: in panic"
    web.run(56, 10)
    assert web.replicas() == 8
    web.run(60, 10)
    assert web.replicas() == 1


def test_after_redis_was_emptied_what_is_at_zero_stays_there(web):
    web.run(110, 0)
    web.store.redis.flushall()
    web.view()
    web.run(4)
    assert (web.replicas(), web.status()["desiredScale"]) == (0, 0)
    assert web.condition("Active") == ("False", "NoTraffic")


def test_a_doubled_tick_changes_nothing(web):
    web.run(6, 200)
    web.tick()
    before = web.record()
    web.tick()
    assert web.record() == before


def test_a_late_decision_does_not_replace_a_newer_one(web):
    """A tick reads, sleeps, and writes after a poke has decided."""
    decider = web.scaling.decider
    roster, config = decider.roster()
    read = decider._read(roster.shard(0).working)
    web.run(2, 200)
    newer = web.record()
    decider._read = lambda chosen: read
    passed = decider._decide(roster.shard(0), config)
    assert [one.written for one in passed.decided] == [False]
    assert web.record() == newer


def test_a_clock_that_goes_back_a_little_is_waited_for(web):
    web.clock.advance(-5)
    web.tick()
    assert web.condition("MetricsAvailable") == ("Unknown", "ClockWentBack")
    assert web.events.of("ClockWentBack")
    before = web.record()
    web.run(4, 5)
    assert web.record() == before
    web.run(10, 5)
    assert web.condition("MetricsAvailable") == ("True", "MetricsAvailable")


def test_a_clock_that_goes_back_far_begins_anew_without_forgetting_the_wish(web):
    web.run(60, 75)
    web.clock.advance(-3600)
    web.kube.change(POD_AUTOSCALERS, "web", "default", metadata={"creationTimestamp": "2026-03-01T10:00:00Z"})
    web.run(2, 10)
    assert web.wish() == 8
    assert web.events.of("ClockWentBack")
    web.run(10, 10)
    assert web.replicas() == 8
    assert web.condition("MetricsAvailable") == ("True", "MetricsAvailable")


def test_nothing_is_decided_on_a_stale_view(web):
    web.clock.advance(60)
    with pytest.raises(ViewNotReady):
        web.scaling.decide(0)


def test_ready_pods_that_cannot_be_counted_change_nothing(world):
    world.deployment("w", resource=WIDGETS)
    world.kube.objects["widgets", "default/w"]["spec"].pop("selector")
    world.autoscaler("w", kind="Widget", api="example.com/v1")
    world.run(20, 45, name="w")
    assert world.record("w").last.verdict is Verdict.READY_PODS_UNKNOWN
    assert world.condition("ScaleTargetFound", "w") == ("Unknown", "TargetUnknown")
    assert world.kube.of(WIDGETS)["w"]["spec"]["replicas"] == 1


def test_an_object_made_anew_under_its_name_begins_anew(web):
    web.run(60, 75)
    web.kube.remove(POD_AUTOSCALERS, "web", "default")
    web.autoscaler()
    web.run(2)
    assert web.record().sources == {}
    assert web.replicas() == 8


def test_what_is_kept_of_a_deleted_one_is_forgotten(web):
    web.kube.remove(POD_AUTOSCALERS, "web", "default")
    web.clock.advance(61)
    web.tick()
    assert web.store.redis.keys("wainwright:kpa:state:*") == []
    assert web.store.redis.hgetall(web.keys.kpa_specs) == {}


# The ConfigMap --------------------------------------------------------------------------------------------------------


def test_the_configuration_is_followed_live(web):
    web.config(**{"max-scale": "3", "max-scale-limit": "10"})
    web.run(10, 75)
    assert web.replicas() == 3
    web.config()
    web.run(4, 75)
    assert web.replicas() > 3


def test_an_invalid_configuration_is_refused_whole(web):
    web.config(**{"max-scale": "3"})
    web.run(10, 75)
    web.config(**{"max-scale": "5", "stable-window": "never", "max-scale-up-rate": "NaN"})
    web.run(4, 75)
    assert web.replicas() == 3, "the last good one stays"
    (event,) = web.events.of("ConfigRefused")
    assert "stable-window = 'never'" in event[2]
    assert "max-scale-up-rate = 'NaN'" in event[2]


def test_keys_that_nothing_reads_are_warned_of(web):
    web.config(**{"stable-windwo": "30s"})
    web.run(2, 5)
    (event,) = web.events.of("ConfigUnread")
    assert "stable-windwo (did you mean stable-window?)" in event[2]


def test_without_any_valid_configuration_nothing_is_scaled(world):
    world.config(**{"max-scale": "many"})
    world.deployment()
    world.autoscaler()
    world.view()
    world.scaling.follow_config()
    with pytest.raises(ViewNotReady, match="max-scale = 'many'"):
        world.scaling.decide(0)


# Pushes ---------------------------------------------------------------------------------------------------------------


def test_pushed_load_of_several_reporters_adds_up_and_repeats_replace(world):
    world.deployment()
    world.autoscaler(metrics=(PUSH,))

    def report():
        for _ in range(3):
            world.pushes(20.0, reporter="a")
        world.pushes(15.0, reporter="b")

    world.run(80, each=report)
    assert world.record().last.stable_value == 35
    assert world.replicas() == 4


def test_a_reporter_that_is_gone_stops_counting(world):
    world.deployment()
    world.autoscaler(metrics=(PUSH,))
    world.run(70, each=lambda: (world.pushes(20.0, reporter="a"), world.pushes(20.0, reporter="b")))
    assert world.replicas() == 4
    world.run(130, each=lambda: world.pushes(20.0, reporter="b"))
    assert world.replicas() == 2
    assert set(world.record().sources) == {"push|b"}


def test_silence_of_pushes_is_no_zero_unless_they_promise_to_report(world):
    world.deployment(replicas=3)
    world.autoscaler(metrics=(PUSH,))
    world.run(70, each=lambda: world.pushes(30.0))
    world.run(120)
    assert world.replicas() == 3
    assert world.condition("MetricsAvailable") == ("False", "DidNotReceiveStat")
    world.annotate(target_burst_capacity="-1")
    world.run(120)
    assert world.replicas() == 0


def test_refused_pushes_are_named_and_hold_up_none(world):
    world.deployment()
    world.autoscaler(metrics=(PUSH,))
    world.view()
    world.scaling.follow_config()
    for fields in ({"pa": "default/other", "value": "1"}, {"pa": "default/web", "value": "nan"}, {"value": "x"}):
        world.store.redis.xadd(world.keys.kpa_push, fields)
    world.store.redis.xadd(world.keys.kpa_push, {"pa": "default/web", "value": "7"})
    outcome = world.scaling.pushes(lambda keys: None)
    assert outcome.startswith("1 pushed samples")
    assert "no such PodAutoscaler (default/other" in outcome
    assert "nan is not a finite number" in outcome


# Idle pods first ------------------------------------------------------------------------------------------------------


def test_before_a_scale_down_pods_are_marked_with_their_load(world):
    world.deployment(replicas=3)
    for name in ("web-a", "web-b", "web-c"):
        world.pod(name)
    world.autoscaler()
    world.run(70, 25)
    world.collector.loads = {"web-a": 0.0, "web-b": 2.5}
    world.run(80, 5)
    pods = world.kube.of(PODS)
    costs = {
        name: pod["metadata"].get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost")
        for name, pod in pods.items()
    }
    assert costs == {"web-a": None, "web-b": "2500", "web-c": "2500"}, "of unknown load: as busy as the busiest"


def test_shards_together_decide_for_all(monkeypatch):
    world = World(monkeypatch, shards=4)
    names = [f"web-{number}" for number in range(12)]
    for name in names:
        world.deployment(name)
        world.autoscaler(name)
    world.run(70, each=lambda: [world.says(25, name) for name in names])
    assert {world.replicas(name) for name in names} == {3}
