"""What makes a key reconcile between two ticks."""

import pytest

from tests.conftest import fake_store
from wainwright.api.meta import ObjectMeta
from wainwright.api.podautoscalers import PodAutoscaler, PodAutoscalerSpec, ScaleTargetRef
from wainwright.api.workloads import Workload, WorkloadSpec, WorkloadStatus
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.podscaling.controller import BATCH, new_controller


class Metrics:
    def watch(self, fn):
        self.tell = fn
        return self

    def stop(self):
        self.tell = None


class Watcher:
    def __init__(self):
        self.listeners = {}

    def subscribe(self, kind, listener):
        self.listeners[kind] = listener

    def tell(self, kind, event, thing):
        self.listeners[kind](event, thing)


class Chores:
    """Works that wait until told."""

    def __init__(self):
        self.waiting = {}
        self.regular = {}

    def soon(self, key, work, **_):
        self.waiting[key] = work

    def every(self, seconds, key, work):
        self.regular[key] = work

    def run(self):
        while self.waiting:
            _, work = self.waiting.popitem()
            work()


class World:
    def __init__(self):
        self.store, self.watcher, self.metrics, self.chores = fake_store(), Watcher(), Metrics(), Chores()
        self.batches = []
        self.controller = new_controller(
            self.store, self.watcher, self.metrics, self.chores, lambda keys: self.batches.append(list(keys))
        )
        self.chores.run()

    def pa(self, name="web", target="web", event="put"):
        meta = ObjectMeta(name=name, namespace="default")
        spec = PodAutoscalerSpec(scale_target_ref=ScaleTargetRef(name=target))
        self.watcher.tell("podautoscalers", event, PodAutoscaler(metadata=meta, spec=spec))

    def deployment(self, replicas, ready, name="web", event="put"):
        meta = ObjectMeta(name=name, namespace="default")
        status = WorkloadStatus(ready_replicas=ready)
        thing = Workload(metadata=meta, spec=WorkloadSpec(replicas=replicas), status=status)
        self.watcher.tell("deployments", event, thing)

    def handed_on(self):
        self.chores.run()
        keys, self.batches = [key for batch in self.batches for key in batch], []
        return keys


@pytest.fixture
def world():
    return World()


def test_a_changed_autoscaler(world):
    world.pa()
    assert world.handed_on() == ["default/web"]
    world.pa(event="gone")
    assert world.handed_on() == ["default/web"]


def test_an_autoscaler_that_cannot_be_decoded(world):
    bad = Undecodable(POD_AUTOSCALERS, "default/web", "u", "1", "why", b"{}")
    world.watcher.tell("podautoscalers", "undecodable", bad)
    assert world.handed_on() == ["default/web"]


def test_changed_replicas_or_ready_pods_of_a_target_and_nothing_else_of_it(world):
    world.pa("one", "web")
    world.pa("two", "web")
    world.handed_on()
    world.deployment(3, 1)
    assert world.handed_on() == ["default/one", "default/two"]
    world.deployment(3, 1)
    assert world.handed_on() == []
    world.deployment(3, 2)
    assert world.handed_on() == ["default/one", "default/two"]
    world.deployment(3, 2, name="other")
    assert world.handed_on() == []
    world.deployment(0, 0, event="gone")
    assert world.handed_on() == ["default/one", "default/two"]


def test_a_target_that_is_aimed_at_no_more(world):
    world.pa(target="web")
    world.pa(target="other")
    world.handed_on()
    world.deployment(3, 1)
    assert world.handed_on() == []
    world.deployment(3, 1, name="other")
    assert world.handed_on() == ["default/web"]


def test_a_changed_wish_of_an_autoscaler_that_is_known(world):
    world.pa()
    world.handed_on()
    world.metrics.tell("default/web")
    world.metrics.tell("default/unknown")
    assert world.handed_on() == ["default/web"]


def test_a_changed_configuration_concerns_all(world):
    world.pa("one")
    world.pa("two")
    world.handed_on()
    look = world.chores.regular["autoscaler config"]
    world.store.redis.set(world.store.keys.kpa_config, "1")
    look()
    assert world.handed_on() == [], "the first look knows of no change"
    look()
    assert world.handed_on() == []
    world.store.redis.set(world.store.keys.kpa_config, "2")
    look()
    assert world.handed_on() == ["default/one", "default/two"]


def test_many_keys_are_handed_on_in_batches(world):
    for number in range(BATCH + 1):
        world.pa(f"web-{number:04d}")
    world.chores.run()
    assert [len(batch) for batch in world.batches] == [BATCH, 1]


def test_it_stops_to_watch(world):
    world.controller.stop()
    assert world.metrics.tell is None
