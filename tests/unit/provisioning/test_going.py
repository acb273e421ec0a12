"""How claims and nodes go: deleted by users, never ready, vanished; and how failing ones survive the same crashes."""

import pytest

from tests.unit.provisioning.crashing import Actor, Killed, Paused
from tests.unit.provisioning.world import World
from wainwright.api import names
from wainwright.cloud.errors import RequestRefused
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from wainwright.provisioning.steps import Outcome
from wainwright.scheduling.instance_types import OfferingKey

EVERYTHING = OfferingKey("*", "*", "*")


@pytest.fixture
def running(world):
    """Two pods on one node."""
    world.pods("a", "b")
    world.settle()
    return world


def the_claim(world):
    [claim] = world.kube.of(NODE_CLAIMS)
    return claim


def test_a_deleted_node_claim_is_drained_terminated_and_its_pods_get_a_new_node(running):
    running.deployment("a", "b")
    old = the_claim(running)
    running.kube.delete(NODE_CLAIMS, old)
    running.tick()
    running.settle()
    assert the_claim(running) != old
    first, second = running.launches()
    assert first.ended_at is not None
    assert second.ended_at is None
    assert ("evict", "pods", "a") in running.kube.calls


def test_a_deleted_node_takes_its_claim_along(running):
    running.deployment("a", "b")
    old = the_claim(running)
    running.kube.delete(NODES, old)
    running.tick()
    running.settle()
    assert the_claim(running) != old
    assert list(running.kube.of(NODES)) == [the_claim(running)]


def test_a_node_that_goes_is_cordoned_and_waits_for_pods_that_a_budget_holds(running):
    running.kube.protected.add("default/a")
    claim = the_claim(running)
    running.kube.delete(NODE_CLAIMS, claim)
    for _ in range(10):
        running.tick()
    [node] = running.kube.of(NODES).values()
    assert names.DISRUPTED_TAINT.key in {taint["key"] for taint in node["spec"]["taints"]}
    assert sorted(running.kube.of(PODS)) == ["a"]
    assert running.launches()[0].ended_at is None
    assert running.events.of("FailedDraining")[0][1] == claim
    running.kube.protected.clear()
    running.settle()
    assert running.kube.of(NODES) == running.kube.of(NODE_CLAIMS) == {}


def test_daemons_and_those_that_tolerate_it_are_not_waited_for(running):
    running.kube.change(
        PODS, "a", "default", metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d"}]}
    )
    running.kube.change(PODS, "b", "default", spec={"tolerations": [{"operator": "Exists"}]})
    running.kube.delete(NODE_CLAIMS, the_claim(running))
    for _ in range(5):
        running.tick()
    assert running.kube.of(NODES) == running.kube.of(NODE_CLAIMS) == {}
    assert ("evict", "pods", "a") not in running.kube.calls
    assert ("evict", "pods", "b") not in running.kube.calls
    assert running.kube.of(PODS) == {}, "what ran on a machine that is gone is removed"


def test_a_termination_grace_period_ends_the_waiting(world):
    world.kube.remove(NODE_POOLS, "general")
    world.node_pool("impatient", terminationGracePeriod="30s")
    world.pods("a")
    world.settle()
    world.kube.protected.add("default/a")
    world.kube.delete(NODE_CLAIMS, the_claim(world))
    for _ in range(28):
        world.tick()
    assert world.kube.of(NODES)
    for _ in range(6):
        world.tick()
    assert world.kube.of(NODES) == world.kube.of(NODE_CLAIMS) == {}


def test_a_pod_that_never_goes_is_given_up_a_minute_after_its_grace(running):
    running.keeps_pods = True
    running.kube.delete(NODE_CLAIMS, the_claim(running))
    for _ in range(55):
        running.tick()
    assert running.kube.of(NODES)
    for _ in range(10):
        running.tick()
    assert running.kube.of(NODES) == running.kube.of(NODE_CLAIMS) == {}


def test_an_instance_that_vanished_takes_node_and_claim_along_and_its_pods_come_back(running):
    running.deployment("a", "b")
    old = the_claim(running)
    [instance] = running.cloud.list("test")
    running.cloud.interrupt(instance.provider_id)
    running.parts.garbage.collect()
    running.settle()
    assert the_claim(running) != old
    assert ("evict", "pods", "a") not in running.kube.calls, "nobody is there to be asked"


def test_a_node_that_is_never_ready_goes_after_fifteen_minutes(world):
    world.pods("a")
    world.kubelets = lambda: None
    world.planned()
    world.launch_hinted()
    old = the_claim(world)
    for _ in range(5):
        world.tick(60)
    assert the_claim(world) == old
    for _ in range(11):
        world.tick(60)
    del world.kubelets
    world.deployment("a")
    world.settle()
    assert the_claim(world) != old
    assert [ended is not None for ended in (x.ended_at for x in world.launches())] == [True, False]


def test_a_node_object_that_somebody_removed_takes_its_claim_along(running):
    running.deployment("a", "b")
    old = the_claim(running)
    running.kube.remove(NODES, old)
    for name in ("a", "b"):
        running.kube.remove(PODS, name, "default")
    running.settle()
    assert the_claim(running) != old


def test_a_node_claim_that_somebody_forced_away_leaves_nothing_behind(running):
    running.deployment("a", "b")
    running.kube.remove(NODE_CLAIMS, the_claim(running))
    running.settle()
    assert sum(launch.ended_at is None for launch in running.launches()) == 1


def test_a_claim_without_a_record_is_withdrawn_unless_its_node_has_joined(world):
    """Rule 4, for a NodeClaim that a launcher created while Redis was lost: it turns up after the adoption."""
    world.pods("a")
    [claim] = world.planned()
    actor = Actor(world)
    paused = Paused(actor, lambda: actor.launch(claim))
    while actor.calls[-1:] != ["kube create nodeclaims"]:
        paused.step()
    world.flush_all()
    world.sync()
    paused.step()
    assert claim in world.kube.of(NODE_CLAIMS)
    world.settle()
    assert claim not in world.kube.of(NODE_CLAIMS)
    paused.finish()
    world.settle()
    assert len(world.launches()) == 1


# Garbage -------------------------------------------------------------------------------------------------------------


def test_an_instance_without_a_claim_is_terminated_but_not_while_it_is_young(running):
    [request] = running.cloud.requests
    from msgspec.structs import replace

    stray = running.cloud.create(
        replace(request, token="uid-none-1", node_claim="none", node_name="none", issued_at=running.clock.now())
    )
    running.parts.garbage.collect()
    assert running.cloud.get(stray.provider_id)
    running.clock.advance(31)
    running.parts.garbage.collect()
    running.clock.advance(1)
    assert [i.node_claim for i in running.cloud.list("test")] == [the_claim(running)]


def test_a_second_instance_of_a_claim_is_terminated(running):
    [request] = running.cloud.requests
    from msgspec.structs import replace

    running.cloud.create(replace(request, token=request.token[:-1] + "2", issued_at=running.clock.now()))
    running.cloud.doubles.clear()
    running.clock.advance(31)
    running.parts.garbage.collect()
    running.cloud.doubles.clear()
    running.clock.advance(1)
    running.settle()
    assert sum(launch.ended_at is None for launch in running.launches()) == 1


# Crashes on the way out ----------------------------------------------------------------------------------------------


def failing_world(monkeypatch, *, with_instance):
    """A claim that fails at its first visit; with_instance: the cloud has one for it, unheard, and nobody wants it."""
    world = World(monkeypatch)
    world.node_pool()
    world.pods("a", "b")
    [claim] = world.planned()
    world.hints.claims.clear()
    if with_instance:
        world.cloud.lost_answers = 1
        world.parts.launcher.launch(claim)
        world.clock.advance(40)
        for name in ("a", "b"):
            world.kube.remove(PODS, name, "default")
        world.sync()
    else:
        world.cloud.next_errors = [RequestRefused("Odd", "no")]
    return world, claim


def calls_of(world, claim):
    actor = Actor(world)
    assert actor.launch(claim) is Outcome.FAILED
    return actor.calls


@pytest.mark.parametrize("with_instance", [False, True])
@pytest.mark.parametrize("how", ["killed", "lost", "emptied and rebuilt", "slept emptied"])
def test_failing_survives_everything_at_every_call(monkeypatch, with_instance, how):
    calls = calls_of(*failing_world(monkeypatch, with_instance=with_instance))
    assert "redis claim_over" in calls
    for index in range(len(calls)):
        world, claim = failing_world(monkeypatch, with_instance=with_instance)
        actor = Actor(world)

        def strike(number, index=index, world=world):
            if number != index:
                return
            if how == "killed":
                raise Killed
            if how.startswith("emptied"):
                world.flush_all()
            if how.endswith("rebuilt"):
                world.sync()

        if how.startswith("slept"):
            paused = Paused(actor, lambda actor=actor, claim=claim: actor.launch(claim))
            paused.step(index)
            if how.endswith("emptied"):
                world.flush_all()
            for _ in range(6):
                world.tick()
            paused.finish()
        else:
            actor.before = strike
            if how == "lost":
                actor.after = lambda number, index=index: "lost" if number == index else None
            actor.launch(claim)
        try:
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"{how} at {index} ({calls[index]}): {error}") from error
        live = [launch for launch in world.launches() if launch.ended_at is None]
        assert len(live) == (0 if with_instance else 1), (index, calls[index])


@pytest.mark.parametrize("how", ["killed", "lost"])
def test_draining_survives_everything_at_every_call(monkeypatch, how):
    def deleted():
        world = World(monkeypatch)
        world.node_pool()
        world.pods("a", "b")
        world.settle()
        [claim] = world.kube.of(NODE_CLAIMS)
        world.kube.delete(NODE_CLAIMS, claim)
        world.sync()
        world.parts.upkeep.lifecycle()
        world.hints.claims.clear()
        return world, claim

    def visits(world, claim, limit=None):
        actor = Actor(world)

        def strike(number):
            if number == limit and how == "killed":
                raise Killed

        actor.before = strike
        if how == "lost":
            actor.after = lambda number: "lost" if number == limit else None
        for _ in range(6):
            world.clock.advance(1)
            world.kubelets()
            if actor.launch(claim) is None:
                break
        return actor.calls

    calls = visits(*deleted())
    assert "kube evict" in calls
    assert "redis claim_over" in calls
    for index in range(len(calls)):
        world, claim = deleted()
        visits(world, claim, index)
        world.settle()
        assert world.kube.of(NODE_CLAIMS) == world.kube.of(NODES) == {}, (index, calls[index])
        assert [launch.ended_at is None for launch in world.launches()] == [False]
