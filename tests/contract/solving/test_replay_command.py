"""`wainwright replay` and `wainwright decisions` over what a solve pass recorded."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from tests.contract.solving.world import World, a_pod
from workers.cli import cli
from workers.decisions import follow_decisions, read_decisions
from workers.replay import read_replay


@pytest.fixture
def world(make_real_store):
    return World(make_real_store())


@pytest.fixture
def call(world, redis_server):
    def called(*arguments):
        settings = {"WAINWRIGHT_REDIS_URL": redis_server.url, "WAINWRIGHT_REDIS_PREFIX": world.keys.prefix}
        return CliRunner().invoke(cli, list(arguments), env=settings | {"COLUMNS": "80"})

    return called


def recorded(world):
    world.closed_batch(a_pod("a"), a_pod("b"), a_pod("big", cpu="5000"))
    return world.solve().plan


def tampered(world, plan):
    """The record as if a solver had come to something else: a dearer plan, that has a place for one pod less."""
    key = world.keys.plan(plan)
    found = json.loads(world.redis.hget(key, "plan"))
    [claim] = found["claims"]
    lost = claim["pods"].pop()
    found["unplaced"].append({"pod": lost, "reasons": []})
    found["price"] = 99.5
    world.redis.hset(key, "plan", json.dumps(found))


def test_a_recorded_plan_comes_out_the_same_again(world, call):
    plan = recorded(world)
    result = call("replay", plan)
    assert result.exit_code == 0, result.output
    assert f"plan {plan}: the same input gives the same plan" in result.stdout
    report = json.loads(call("replay", plan, "--output", "json").stdout)
    assert (report["plan"], report["same"], report["differences"]) == (plan, True, [])
    assert report["recorded"] == report["again"]
    assert (report["again"]["claims"], report["again"]["unplaced"]) == (1, 1)


def test_a_plan_that_differs_is_status_1_and_says_in_what(world, call):
    plan = recorded(world)
    tampered(world, plan)
    result = call("replay", plan)
    assert result.exit_code == 1
    assert "gives a different plan" in result.stdout
    report = read_replay(world.store, plan)
    assert report.differences[0].startswith("price 99.5 $/h, now 0.")
    assert any(text.startswith("recorded only: 1 x ") and "for 1 pods" in text for text in report.differences)
    assert any(text.startswith("now only: 1 x ") and "for 2 pods" in text for text in report.differences)
    assert "1 pods that were not placed have a place now" in report.differences
    assert json.loads(call("replay", plan, "-o", "json").stdout)["same"] is False


def test_a_plan_that_is_not_kept_is_status_2(world, call):
    result = call("replay", "nothere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothere: no such plan" in result.stderr
    plan = recorded(world)
    world.redis.delete(world.keys.plan_input(plan))
    assert call("replay", plan).exit_code == 2


def test_decisions_are_shown_newest_last_in_80_columns(world, call):
    first = recorded(world)
    world.closed_batch(a_pod("c"), name="batch-2")
    second = world.solve().plan
    result = call("decisions")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stdout.index(first) < result.stdout.index(second)
    told = json.loads(call("decisions", "-n", "1", "-o", "json").stdout)
    assert [(each["what"], each["about"]) for each in told] == [("plan recorded", second)]
    assert told[0]["at_ms"] == int(told[0]["id"].split("-")[0])
    assert json.loads(call("decisions", "-n", "0", "-o", "json").stdout) == []


def test_following_goes_on_from_the_last_one_shown(world):
    first = recorded(world)
    [shown] = read_decisions(world.store, 10)
    assert shown.about == first
    world.closed_batch(a_pod("c"), name="batch-2")
    second = world.solve().plan
    follower = follow_decisions(world.store, shown.id)
    assert next(follower).about == second
    everything = follow_decisions(world.store, "")
    assert [next(everything).about, next(everything).about] == [first, second]
    assert msgspec.json.encode(shown)


def test_without_redis_both_end_with_status_1_and_name_the_setting():
    settings = {"WAINWRIGHT_REDIS_URL": "redis://127.0.0.1:1/0"}
    for arguments in (["replay", "x"], ["decisions"]):
        result = CliRunner().invoke(cli, arguments, env=settings)
        assert result.exit_code == 1
        assert "WAINWRIGHT_REDIS_URL" in result.stderr
