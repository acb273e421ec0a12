"""Promise 1, in this process and complete: a launcher dies, pauses or loses an answer before each of its network calls
in turn, Redis is emptied at each of them; every pod gets its node all the same, and none is bought twice.
"""

import pytest

from tests.unit.provisioning.crashing import Actor, Killed, Paused
from tests.unit.provisioning.world import World

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


def test_one_launch_makes_few_calls(a_world):
    """Also the reading guide for the indices below."""
    assert calls_of_one_launch(a_world()) == [
        "redis claim_take",
        "redis claim_look",
        "redis claims_unavailable",
    ]


@pytest.mark.parametrize("index", range(20))
def test_a_launcher_killed_before_each_call_in_turn_loses_and_doubles_nothing(a_world, index):
    world = a_world()
    claim = first_claim(world)
    actor = Actor(world)

    def kill(number):
        if number == index:
            raise Killed

    actor.before = kill
    outcome = actor.launch(claim)
    assert outcome is None or len(actor.calls) <= index
    bought_once(world)
