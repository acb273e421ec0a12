"""A whole collection: from the view's pods and the sources' answers into the inbox, and on into a decision."""

import pytest

from tests.unit.podscaling.world import World
from wainwright.api.meta import LabelSelector, LabelSelectorRequirement
from wainwright.clock import SystemClock
from wainwright.podscaling.collector import Collector
from wainwright.podscaling.connections import Connections
from wainwright.podscaling.pod_index import selects


@pytest.fixture
def world(monkeypatch, collector):
    world = World(monkeypatch)
    world.collector = collector
    world.start_process()
    return world


def a_pods_source(pages):
    return {"type": "pods", "pods": {"port": pages.server_port, "metric": "busy"}}


def collect(world):
    world.view()
    world.scaling.follow_config()
    awake = []
    outcome = world.scaling.collect(0, awake.extend)
    return outcome, awake


def test_ready_pods_of_the_target_are_scraped_and_no_others(world, pages):
    pages.pages["/metrics"] = b"busy 15\n"
    world.deployment()
    world.autoscaler(metrics=(a_pods_source(pages),))
    for name in ("web-a", "web-b"):
        world.pod(name, ip="127.0.0.1")
    world.pod("other", app="other", ip="127.0.0.1")
    world.pod("late", ip="127.0.0.1")
    late = world.kube.objects["pods", "default/late"]
    late["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert collect(world) == ("1 sources read", [])
    assert len(pages.asked) == 2
    world.scaling.decide(0)
    assert world.record().last.stable_value == 30
    assert world.wish() == 3


def test_pods_are_read_from_the_view_only_when_they_changed(world, pages):
    pages.pages["/metrics"] = b"busy 1\n"
    world.deployment()
    world.autoscaler(metrics=(a_pods_source(pages),))
    world.pod("web-a", ip="127.0.0.1")
    collect(world)
    world.pod("web-b", ip="127.0.0.1")
    collect(world)
    assert len(pages.asked) == 2, "the view still says that nothing changed"
    world.store.redis.hset(world.keys.view_meta, "rv:pods", "2")
    collect(world)
    assert len(pages.asked) == 4


def test_what_cannot_be_read_is_told_of(world, pages):
    world.deployment()
    world.autoscaler(metrics=(a_pods_source(pages),))
    world.pod("web-a", ip="127.0.0.1")
    assert collect(world) == ("0 sources read, 1 could not be", [])
    world.scaling.decide(0)
    assert "answered 404" in world.record().sources["pods"].message


def test_load_on_something_at_zero_wakes_it(world, client, name):
    world.deployment(replicas=0)
    world.autoscaler(metrics=({"type": "redisList", "redisList": {"list": name}},))
    collect(world)
    world.scaling.decide(0)
    client.rpush(name, "a")
    world.clock.advance(1)
    assert collect(world) == ("1 sources read", ["default/web"])


def test_a_shard_without_sources_to_read_asks_nothing(world):
    world.deployment()
    world.autoscaler(metrics=({"type": "push"},))
    assert collect(world) == ("", [])


def test_loads_of_pods_come_from_their_own_endpoints_and_from_reporters(world, pages):
    pages.pages["/metrics"] = b"busy 4\n"
    world.deployment(replicas=2)
    world.autoscaler(metrics=(a_pods_source(pages), {"type": "push"}))
    for number in (1, 2):
        world.pod(f"web-{number}", ip="127.0.0.1")
    world.pushes(3.0, reporter="web-1")
    world.tick()
    roster, _ = world.scaling.decider.roster()
    one = roster.by_key["default/web"]
    from wainwright.api.pods import Pod
    from wainwright.kube.resources import PODS

    pods = world.kube.typed(PODS, Pod)
    assert world.scaling.pod_loads(one, pods) == {"web-1": 7.0, "web-2": 4.0}


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ("a", "b"), True),
        ("In", ("b",), False),
        ("NotIn", ("b",), True),
        ("NotIn", ("a",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
    ],
)
def test_selectors(operator, values, fits):
    requirement = LabelSelectorRequirement(key="tier", operator=operator, values=values)
    selector = LabelSelector(match_labels={"app": "web"}, match_expressions=(requirement,))
    assert selects(selector, {"app": "web", "tier": "a"}) is fits
    assert not selects(selector, {"app": "other", "tier": "a"})


def test_a_collector_that_was_never_used_closes():
    Collector(Connections("redis://127.0.0.1:1/0", None), SystemClock()).close()
