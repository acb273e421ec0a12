"""Promise 1, in this process and complete: a launcher dies, pauses or loses an answer before each of its network calls
in turn, Redis is emptied at each of them; every pod gets its node all the same, and none is bought twice.
"""

import os

import msgspec
import pytest

from tests.unit.provisioning.crashing import Actor, Killed, Paused
from tests.unit.provisioning.world import World
from wainwright.cloud.errors import InsufficientCapacity, RequestRefused
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS, PODS
from wainwright.scheduling.instance_types import OfferingKey

MOST_CALLS = 40


@pytest.fixture
def a_world(monkeypatch):
    def make(*pods, **options):
        world = World(monkeypatch, **options)
        world.node_pool()
        world.pods(*(pods or ("a", "b")))
        return world

    return make


def first_claim(world):
    [claim] = world.planned()
    world.hints.claims.clear()
    return claim


def calls_of_one_launch(world):
    actor = Actor(world)
    assert actor.launch(first_claim(world)) == "done"
    assert len(actor.calls) < MOST_CALLS
    return actor.calls


def bought_once(world):
    world.settle()
    assert len(world.launches()) == 1, world.launches()


ONE_LAUNCH = [
    "redis claim_take",
    "redis claim_look",
    "redis offerings_read",
    "kube create nodeclaims",
    "redis claim_check",
    "cloud create",
    "redis claim_move",
    "kube merge_patch nodeclaims",
    "kube merge_patch nodeclaims",
    "kube create nodes",
    "redis claim_look",
    "kube bind",
    "kube bind",
    "redis claim_done",
]
"""The calls that a launch for two pods makes, in order: what the indices below count."""


def test_one_launch_makes_these_calls(a_world):
    assert calls_of_one_launch(a_world()) == ONE_LAUNCH


every_call = pytest.mark.parametrize("index", range(len(ONE_LAUNCH)), ids=lambda i: f"{i}-{ONE_LAUNCH[i]}")


@every_call
def test_a_launcher_killed_before_each_call_in_turn_loses_and_doubles_nothing(a_world, index):
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world)

    def kill(number):
        if number == index:
            raise Killed

    actor.before = kill
    assert actor.launch(claim) is None
    bought_once(world)


@every_call
def test_the_next_launcher_too_is_killed_at_each_call(a_world, index):
    """Two deaths in a row: the first before its binds, the second wherever it gets to from there."""
    for first in (6, 9):
        world = a_world()
        claim = first_claim(world)
        for worker, limit in (("one", first), ("two", index)):
            actor = Actor(world, worker)

            def kill(number, limit=limit):
                if number == limit:
                    raise Killed

            actor.before = kill
            actor.launch(claim)
            world.clock.advance(5)
        bought_once(world)


@every_call
def test_an_answer_lost_at_each_call_in_turn_changes_nothing(a_world, index):
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world)
    actor.after = lambda number: "lost" if number == index else None
    actor.launch(claim)
    bought_once(world)


@every_call
@pytest.mark.parametrize("rebuilt", [False, True])
def test_redis_emptied_at_each_call_in_turn_loses_and_doubles_nothing(a_world, index, rebuilt):
    """rebuilt: the watcher has begun a new epoch and adopted the claims before the launcher goes on."""
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world)

    def empty(number):
        if number == index:
            world.flush_all()
            if rebuilt:
                world.sync()

    actor.before = empty
    actor.launch(claim)
    world.settle()
    assert not world.cloud.doubles
    assert sum(launch.ended_at is None for launch in world.launches()) == 1


@every_call
@pytest.mark.parametrize("seconds", [5, 40])
def test_a_launcher_that_slept_at_each_call_does_no_harm_when_it_wakes(a_world, index, seconds):
    """It sleeps through its lease while another carries the claim out; after 40 s its request has expired too."""
    world = a_world()
    claim = first_claim(world)
    sleeper = Paused(Actor(world, "sleeper"), lambda: None)
    sleeper.finish()
    actor = Actor(world, "sleeper")
    paused = Paused(actor, lambda: actor.launch(claim))
    paused.step(index)
    for _ in range(seconds):
        world.tick()
    paused.finish()
    bought_once(world)


@every_call
@pytest.mark.parametrize("seconds", [3, 40])
def test_a_launcher_that_slept_through_the_loss_of_redis_does_no_harm(a_world, index, seconds):
    """Redis is emptied while it sleeps, everything is rebuilt, others work for some seconds, then it wakes."""
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world, "sleeper")
    paused = Paused(actor, lambda: actor.launch(claim))
    paused.step(index)
    world.flush_all()
    for _ in range(seconds):
        world.tick()
    paused.finish()
    world.settle()
    assert not world.cloud.doubles
    assert sum(launch.ended_at is None for launch in world.launches()) == 1


@every_call
def test_two_launchers_interleaved_buy_once(a_world, index):
    """The first sleeps through its lease before call `index`, the second before another call, then the first goes on to
    its end, then the second. Every call of either comes up; with WAINWRIGHT_TEST_PAIRS=all, every pair of calls does.
    """
    every = os.environ.get("WAINWRIGHT_TEST_PAIRS") == "all"
    for other in range(0 if every else index % 4, len(ONE_LAUNCH), 1 if every else 4):
        world = a_world()
        claim = first_claim(world)
        one, two = Actor(world, "one"), Actor(world, "two")
        first = Paused(one, lambda one=one, claim=claim: one.launch(claim))
        first.step(index)
        world.clock.advance(5)
        second = Paused(two, lambda two=two, claim=claim: two.launch(claim))
        second.step(other)
        world.clock.advance(5)
        first.finish()
        second.finish()
        try:
            bought_once(world)
        except AssertionError as error:
            raise AssertionError(f"second before call {other}: {error}\n{one.calls}\n{two.calls}") from error


@every_call
@pytest.mark.parametrize("seconds", [5, 34])
def test_a_launcher_that_slept_through_a_shortage_does_not_buy_beside_the_others(a_world, index, seconds):
    """While it sleeps, another is told that there is no capacity at all; there is some again before it wakes. What it
    was allowed to ask for may still arrive, so nobody may buy elsewhere for its pods until that has expired.
    """
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world, "sleeper")
    paused = Paused(actor, lambda: actor.launch(claim))
    paused.step(index)
    world.cloud.sold_out = (OfferingKey("*", "*", "*"),)
    for _ in range(seconds):
        world.tick()
    world.cloud.sold_out = ()
    world.redis.delete("wainwright:unavailable")
    for _ in range(2):
        world.tick()
    paused.finish()
    world.settle()
    assert not world.cloud.doubles
    assert sum(launch.ended_at is None for launch in world.launches()) == 1


@pytest.mark.parametrize("seconds", [5, 34])
def test_a_new_attempt_waits_until_requests_of_the_last_one_have_expired(a_world, seconds):
    """One sleeps right before its call; the next holder learns that the cheapest type is sold out, and could go on with
    the others: if it did, and room came back, both requests would be carried out.
    """
    world = a_world()
    claim = first_claim(world)
    options = msgspec.json.decode(world.redis.hget(f"wainwright:claim:{claim}", "options"))
    actor = Actor(world, "sleeper")
    paused = Paused(actor, lambda: actor.launch(claim))
    while not actor.calls or actor.calls[-1] != "cloud create":
        paused.step()
    cheapest = OfferingKey("*", options[0]["instance_type"], "*")
    world.clock.advance(5)
    world.cloud.next_errors = [InsufficientCapacity((cheapest,))]
    for _ in range(seconds):
        world.tick()
    paused.finish()
    world.settle()
    assert not world.cloud.doubles
    assert len(world.launches()) == 1


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("seconds", [6, 45])
def test_a_claim_that_fails_waits_for_the_request_of_one_who_sleeps(a_world, seconds, emptied):
    """One sleeps right before its call; the next holder is refused for good. Were the pods planned anew at once, the
    sleeper's request and the new claim's would both be carried out. An emptied Redis has forgotten what was allowed,
    and so takes it that something was.
    """
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world, "sleeper")
    paused = Paused(actor, lambda: actor.launch(claim))
    while not actor.calls or actor.calls[-1] != "cloud create":
        paused.step()
    if emptied:
        world.flush_all()
    world.clock.advance(5)
    world.cloud.next_errors = [RequestRefused("Odd", "no")]
    for _ in range(seconds):
        world.tick()
    paused.finish()
    world.settle()
    assert not world.cloud.doubles
    assert sum(launch.ended_at is None for launch in world.launches()) == 1


def user_deletes_the_claim(world, claim):
    world.deployment("a", "b")
    if claim in world.kube.of(NODE_CLAIMS):
        world.kube.delete(NODE_CLAIMS, claim)


def user_deletes_a_pod(world, claim):
    if not world.kube.of(PODS)["a"]["spec"].get("nodeName"):
        world.kube.remove(PODS, "a", "default")


def somebody_binds_a_pod_elsewhere(world, claim):
    pod = world.kube.of(PODS)["a"]
    if not pod["spec"].get("nodeName"):
        world.kube.bind("default", "a", pod["metadata"]["uid"], "elsewhere")
        world.kube.remove(PODS, "a", "default")


def the_node_pool_is_made_anew(world, claim):
    world.kube.remove(NODE_POOLS, "general")
    world.node_pool()


def the_comparison_runs(world, claim):
    world.clock.advance(3)
    world.parts.garbage.collect()


def another_watcher_takes_over(world, claim):
    world.writer = None


def upkeep_runs(world, claim):
    world.sync()
    world.parts.upkeep.lifecycle()


DISTURBANCES = (
    user_deletes_the_claim,
    user_deletes_a_pod,
    somebody_binds_a_pod_elsewhere,
    the_node_pool_is_made_anew,
    the_comparison_runs,
    another_watcher_takes_over,
    upkeep_runs,
)


@every_call
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda d: d.__name__)
def test_what_happens_before_any_call_loses_and_doubles_nothing(a_world, index, disturb):
    """Before half of the calls, the watcher has noticed it when the launcher goes on."""
    noticed = (index + DISTURBANCES.index(disturb)) % 2 == 0
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world)

    def before(number):
        if number == index:
            disturb(world, claim)
            if noticed:
                world.sync()

    actor.before = before
    actor.launch(claim)
    world.settle()
    assert not world.cloud.doubles
    assert sum(launch.ended_at is None for launch in world.launches()) == 1
