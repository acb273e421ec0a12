import pytest

from tests.conftest import fake_store
from tests.unit.kube.support import HandClock, a_pod
from tests.unit.provisioning.test_controller import CATALOG, Events, a_pool
from wainwright.batching.pools import delete_pool, use_pool
from wainwright.errors import PoolNotInUse, StoreUnavailable
from wainwright.kube.view import KINDS_BY_NAME, Change, ViewWriter
from wainwright.provisioning.chores import Chores
from wainwright.provisioning.intake import Intake
from wainwright.provisioning.provisioner import Provisioner


class World:
    """A complete view in epoch `e1`, a NodePool in use, and an intake whose chores run when told."""

    def __init__(self):
        self.clock = HandClock()
        self.store = fake_store()
        self.writer = ViewWriter(self.store, epoch="e1", fence=1, holder="me")
        self.writer.begin()
        self.writer.apply([Change.listed(kind, "1", [], []) for kind in KINDS_BY_NAME])
        self.store.redis.set(self.store.keys.adopted, "e1")
        self.writer.complete()
        self.name, self.is_live = "e1", True
        self.hinted = []
        self.chores = Chores(clock=self.clock)
        self.events = Events()
        self.provisioner = Provisioner(self.store, shards=4, hint=self.hinted.append, clock=self.clock)
        self.intake = Intake(self.store, self.provisioner, self.chores, self.events, resync_seconds=30)

    def missing(self):
        return self.writer.missing()

    def use(self, *pools):
        for pool in pools:
            use_pool(self.store, pool.name, pool.metadata.uid)
        self.provisioner.use(pools, {pool.name: CATALOG for pool in pools})

    def show(self, *pods):
        """The view shows these pods; those that wait are told to the intake."""
        told = self.writer.apply([Change.put("pods", pod) for pod in pods])
        self.intake.waiting(self, told)

    def pass_seconds(self, seconds):
        self.clock.seconds += seconds
        self.chores.run_due()

    @property
    def seen(self):
        return {uid: place.split("/")[0] for uid, place in self.store.redis.hgetall(self.store.keys.seen).items()}


@pytest.fixture
def world():
    return World()


def test_pod_goes_into_the_window_of_the_first_node_pool_that_could_take_it(world):
    world.use(a_pool("spot", values=("spot",), weight=10), a_pool("general"))
    world.show(a_pod("any"), a_pod("on-demand", node_selector={"karpenter.sh/capacity-type": "on-demand"}))
    assert world.seen == {"uid-any": "spot", "uid-on-demand": "general"}
    assert world.hinted, "nobody serves those windows yet"


def test_pod_that_none_could_take_waits_in_the_first_one(world):
    """So that its reasons are recorded."""
    world.use(a_pool("heavy", weight=10), a_pool("general"))
    world.show(a_pod("odd", node_selector={"example.com/unknown": "x"}))
    assert world.seen == {"uid-odd": "heavy"}


def test_resync_finds_what_no_event_brought(world):
    world.use(a_pool())
    world.intake.begun(world)
    world.chores.run_due()
    world.writer.apply([Change.put("pods", a_pod(f"p{n}")) for n in range(1200)])
    world.pass_seconds(29)
    assert world.seen == {}
    world.pass_seconds(1)
    assert len(world.seen) == 1200
    world.store.redis.delete(world.store.keys.seen)
    world.writer.apply([Change.put("pods", a_pod("p7", rv=9, node="n1"))])
    world.pass_seconds(30)
    assert len(world.seen) == 1199


def test_store_that_was_away_is_caught_up_by_a_resync(world):
    world.use(a_pool())
    world.intake.begun(world)
    world.chores.run_due()
    run, world.store.run = world.store.run, lambda *_: (_ for _ in ()).throw(StoreUnavailable("down"))
    world.intake.waiting(world, [a_pod()])
    world.store.run = run
    world.writer.apply([Change.put("pods", a_pod())])
    world.pass_seconds(0.5)
    assert world.seen == {"uid-web-0": "general"}


def test_node_pool_that_went_out_of_use_meanwhile_leaves_its_pods_to_a_resync(world):
    world.use(a_pool())
    world.intake.begun(world)
    world.chores.run_due()
    delete_pool(world.store, "general", "uid-general")
    world.show(a_pod())
    assert world.seen == {}
    world.use(a_pool("other"))
    world.intake.pools_changed("NodePool other applied")
    world.chores.run_due()
    assert world.seen == {"uid-web-0": "other"}


def test_pod_without_any_node_pool_is_told_why(world):
    world.provisioner.use((), {})
    world.show(a_pod())
    world.intake.begun(world)
    world.chores.run_due()
    ((name, reason, type_, message),) = world.events.recorded
    assert (name, reason, type_) == ("web-0", "FailedScheduling", "Warning")
    assert "No NodePool" in message


def test_nobody_is_told_before_the_node_pools_are_known(world):
    world.show(a_pod())
    world.intake.begun(world)
    world.chores.run_due()
    assert world.events.recorded == []


def test_ended_session_queues_nothing(world):
    world.use(a_pool())
    world.intake.begun(world)
    world.is_live = False
    world.show(a_pod())
    world.chores.run_due()
    assert world.seen == {}
    assert not world.intake.is_active


def test_emptied_redis_ends_a_resync_without_a_fuss(world):
    world.use(a_pool())
    world.intake.begun(world)
    world.store.redis.flushall()
    world.chores.run_due()
    world.intake.waiting(world, [a_pod()])
    assert world.store.redis.exists(world.store.keys.seen) == 0


def test_changes_that_help_retries_are_gathered(world):
    world.intake.begun(world)
    woken = world.store.keys.prefix + "retry:woken"
    for number in range(50):
        world.intake.material(world, f"node n{number} appeared")
    assert world.store.redis.exists(woken) == 0
    world.pass_seconds(0.2)
    assert world.store.redis.hget(woken, "reason") == "node n49 appeared"


def test_add_answers_a_gate(world):
    world.use(a_pool())
    gate = world.provisioner.add(a_pod())
    assert not gate.is_open()
    assert world.provisioner.add(a_pod()).wait(0) is False
    world.store.redis.delete(world.store.keys.seen)
    assert gate.is_open()


def test_add_without_a_node_pool_is_refused(world):
    with pytest.raises(PoolNotInUse):
        world.provisioner.add(a_pod())


def test_pod_that_cannot_be_routed_waits_in_the_first_window_and_others_go_on(world, caplog):
    world.use(a_pool("general"), a_pool("heavy", weight=10))
    route = world.provisioner._router.route

    def faulty(pod):
        if pod.metadata.name == "odd":
            raise ZeroDivisionError
        return route(pod)

    world.provisioner._router.route = faulty
    world.show(a_pod("odd"), a_pod("even"))
    assert world.seen == {"uid-odd": "heavy", "uid-even": "heavy"}
    assert "action=route_failed" in caplog.text
