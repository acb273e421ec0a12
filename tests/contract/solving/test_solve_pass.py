"""A solve pass against Redis: what it records, what it leaves alone, and what happens when it dies."""

from __future__ import annotations

import json

import pytest

from tests.conftest import fake_store
from tests.contract.solving.world import World, a_node_pool, a_pod
from wainwright.batching.claims import ClaimRecords
from wainwright.batching.locks import SOLVE_LEASE_MS, Lock
from wainwright.clock import SystemClock
from wainwright.cloud.errors import NodeClassNotReady
from wainwright.errors import ViewNotReady
from wainwright.provisioning.solving import SolvePass, SolvePolicy, replay
from wainwright.scheduling.solver import solve


@pytest.fixture(params=["fake", "real"])
def store(request):
    if request.param == "fake":
        return fake_store()
    return request.getfixturevalue("make_real_store")()


@pytest.fixture
def world(store):
    return World(store)


def test_a_closed_batch_becomes_a_plan_with_claims_and_hints(world):
    batch = world.closed_batch(a_pod("a"), a_pod("b"))
    report = world.solve()
    assert (report.batches, report.pods, report.claims, report.unplaced) == (1, 2, 1, 0)
    [claim] = world.hints.launched
    record = world.redis.hgetall(world.keys.claim(claim))
    assert record["state"] == "planned"
    assert record["nodepool_uid"] == "uid-general"
    assert json.loads(record["options"])[0]["capacity_type"] == "on-demand"
    pods = world.redis.hgetall(world.keys.claim_pods(claim))
    assert pods["uid-a"] == "bind|default/a|general|batch-1|1000-0"
    assert world.redis.hget(world.keys.planned, "uid-b") == f"claim/{claim} {report.plan}"
    assert world.redis.hget(world.keys.batch(batch), "state") == "planned"
    assert world.redis.smembers(world.keys.batch_effects(batch)) == {claim}
    assert world.redis.hlen(world.keys.seen) == 2, "the gates open when the claim is over, not before"
    assert claim in world.redis.zrange(world.keys.claims_due, 0, -1)


def test_nothing_closed_is_nothing_done(world):
    assert world.solve().batches == 0
    assert world.redis.zcard(world.keys.plans) == 0


def test_pods_that_are_gone_bound_or_planned_are_dropped_and_their_gates_open(world):
    gone, bound, covered = a_pod("gone"), a_pod("bound", node="n1"), a_pod("covered")
    batch = world.closed_batch(gone, bound, covered)
    world.gone(gone)
    world.redis.hset(world.keys.planned, covered.uid, "claim/other plan0")
    report = world.solve()
    assert (report.pods, report.claims) == (0, 0)
    assert world.redis.hlen(world.keys.seen) == 0
    assert world.redis.hget(world.keys.batch(batch), "state") == "done"


def test_a_pod_that_fits_nowhere_waits_to_be_retried_with_its_reasons(world):
    batch = world.closed_batch(a_pod("big", cpu="5000"), a_pod("small"))
    report = world.solve()
    assert (report.claims, report.unplaced) == (1, 1)
    retry = json.loads(world.redis.hget(world.keys.retries, "uid-big"))
    assert retry["attempts"] == 1
    assert retry["reasons"][0]["where"] == "nodepool/general"
    due = world.redis.zscore(world.keys.retry, "uid-big") - retry["last_ms"]
    assert due == 5000
    assert world.redis.hexists(world.keys.seen, "uid-big") == 0, "its gate is open: the batch is over for it"
    assert world.hints.nominated == [batch], "somebody tells the user"


def test_each_further_failure_doubles_the_back_off(world):
    for number, expected in ((1, 5000), (2, 10_000), (3, 20_000)):
        world.closed_batch(a_pod("big", cpu="5000"), name=f"batch-{number}", kind="retry")
        world.solve()
        retry = json.loads(world.redis.hget(world.keys.retries, "uid-big"))
        assert retry["attempts"] == number
        assert world.redis.zscore(world.keys.retry, "uid-big") - retry["last_ms"] == expected


def test_a_plan_counts_until_the_view_shows_it(world):
    world.closed_batch(a_pod("a", cpu="1"))
    first = world.solve()
    world.closed_batch(a_pod("b", cpu="100m", memory="64Mi"), name="batch-2")
    second = world.solve()
    assert first.claims == 1
    assert second.claims == 0, "it rests on the claim that is in flight"
    [claim] = world.hints.launched
    assert world.redis.hget(world.keys.claim_pods(claim), "uid-b").startswith("rest|default/b|")
    assert world.redis.hget(world.keys.planned, "uid-b") == f"claim/{claim} {second.plan}"


def test_a_pod_whose_claim_fails_while_it_is_solved_is_queued_anew(world):
    world.closed_batch(a_pod("a", cpu="1"))
    world.solve()
    [claim] = world.hints.launched
    world.closed_batch(a_pod("b", cpu="100m", memory="64Mi"), name="batch-2")
    run = world.store.run

    def fails_meanwhile(script, *arguments):
        if script == "record":
            world.redis.hset(world.keys.claim(claim), "state", "failing")
        return run(script, *arguments)

    world.store.run = fails_meanwhile
    world.solve()
    assert world.redis.hget(world.keys.planned, "uid-b") is None
    assert world.redis.xlen(world.keys.pending("general")) == 1
    assert world.redis.hget(world.keys.seen, "uid-b").startswith("general/")


def test_limits_hold_across_batches(store):
    world = World(store, [a_node_pool(limits={"cpu": "4"})])
    world.closed_batch(a_pod("a", cpu="1500m"), name="batch-1")
    world.closed_batch(a_pod("b", cpu="3"), name="batch-2")
    first = world.solve()
    world.closed_batch(a_pod("c", cpu="3"), name="batch-3")
    second = world.solve()
    charged = sum(
        json.loads(world.redis.hget(world.keys.claim(claim), "capacity"))["cpu"] for claim in world.hints.launched
    )
    assert charged <= 4000
    assert first.unplaced + second.unplaced >= 1


def test_a_solver_that_lost_its_lock_records_nothing(world):
    batch = world.closed_batch(a_pod("a"))
    lock = world.lock()
    world.redis.delete(world.keys.lock("solve"))
    other = Lock(world.store, "solve", SOLVE_LEASE_MS)
    assert other.acquire()
    with lock.renewing() as renewal:
        report = world.solver.run(lock, renewal)
    assert not report.plan
    assert world.redis.hget(world.keys.batch(batch), "state") == "closed"
    assert world.hints.launched == []


def test_a_plan_from_an_older_epoch_is_refused(world):
    world.closed_batch(a_pod("a"))
    run = world.store.run

    def new_epoch(script, *arguments):
        if script == "record":
            world.redis.hset(world.keys.view_meta, "epoch", "epoch-2")
        return run(script, *arguments)

    world.store.run = new_epoch
    assert world.solve().refused == "the view began a new epoch"
    assert world.redis.zcard(world.keys.claims) == 0


@pytest.mark.parametrize("field", ["epoch", "complete"])
def test_no_solve_before_the_view_is_complete(world, field):
    batch = world.closed_batch(a_pod("a"))
    world.redis.hdel(world.keys.view_meta, field)
    with pytest.raises(ViewNotReady):
        world.solve()
    assert world.redis.hget(world.keys.batch(batch), "state") == "closed"


def test_no_solve_on_a_stale_view(world):
    world.closed_batch(a_pod("a"))
    world.redis.hset(world.keys.view_meta, "progress:pods", world.store.now_ms() - 31_000)
    with pytest.raises(ViewNotReady, match="watch of pods has shown no sign of life for 31 s"):
        world.solve()


def test_waiting_for_the_view_is_no_death_of_the_solver(world):
    """Regression: every put-off pass counted as a death, so that after five seconds without a complete view (a new
    epoch, a watcher's takeover) the pods of a closed batch were set aside for good as killers of solvers.
    """
    batch = world.closed_batch(a_pod("a"), a_pod("b"))
    world.redis.hdel(world.keys.view_meta, "complete")
    for _ in range(10):
        with pytest.raises(ViewNotReady):
            world.solve()
    assert world.redis.hget(world.keys.batch(batch), "deaths") == "0"
    world.redis.hset(world.keys.view_meta, "complete", "1")
    assert world.solve().pods == 2
    assert world.redis.hlen(world.keys.dead) == 0


def test_a_batch_that_kills_its_solver_is_solved_alone_split_and_parked(world, monkeypatch):
    """Solvers die with two batches in hand until the bad one is taken alone, halved, down to the pod that kills."""
    world.closed_batch(a_pod("poison"), a_pod("good-1"), a_pod("good-2"), name="bad")
    world.closed_batch(a_pod("fine"), name="innocent")

    class Killed(BaseException):
        pass

    def deadly(snapshot, pods, now, budget):
        if any(pod.metadata.name == "poison" for pod in pods):
            raise Killed
        return solve(snapshot, pods, now, budget)

    monkeypatch.setattr("wainwright.provisioning.solving.solve", deadly)
    deaths = 0
    for _ in range(30):
        if world.redis.zcard(world.keys.batches("closed")) == 0:
            break
        try:
            world.solve()
        except Killed:
            deaths += 1
    assert deaths <= 6
    assert json.loads(world.redis.hget(world.keys.dead, "pod/uid-poison"))["what"] == "default/poison"
    assert set(world.redis.hgetall(world.keys.planned)) == {"uid-good-1", "uid-good-2", "uid-fine"}
    assert world.redis.hexists(world.keys.seen, "uid-poison") == 0


def test_fresh_batches_are_taken_before_retries(world):
    world.closed_batch(a_pod("old"), name="retry-1", kind="retry")
    world.closed_batch(a_pod("new"), name="fresh-1")
    lock = world.lock()
    assert list(world.solver._take(lock)) == ["fresh-1", "retry-1"]


def test_a_node_pool_whose_node_class_is_missing_is_named_in_the_reasons(world):
    def not_ready(node_pool):
        raise NodeClassNotReady(f"SimulatedNodeClass {node_pool.name} does not exist")

    world.cloud.instance_types = not_ready
    world.closed_batch(a_pod("a"))
    assert world.solve().unplaced == 1
    reasons = json.loads(world.redis.hget(world.keys.retries, "uid-a"))["reasons"]
    assert any("SimulatedNodeClass general does not exist" in reason["message"] for reason in reasons)


def test_a_node_pool_whose_launches_the_cloud_refuses_is_left_out_for_a_while(world):
    """Regression: its pods were planned for it again at once, and refused again, twenty claims in ten seconds."""
    world.use(a_node_pool("second"))
    records = ClaimRecords(world.store)
    records.remember_refused("uid-general", "UnauthorizedOperation", "you may not", for_ms=60_000)
    world.closed_batch(a_pod("a"), name="batch-1")
    world.solve()
    [claim] = world.hints.launched
    assert world.redis.hget(world.keys.claim(claim), "nodepool") == "second"
    records.remember_refused("uid-second", "UnauthorizedOperation", "nor here", for_ms=60_000)
    world.closed_batch(a_pod("b", cpu="30"), name="batch-2")
    assert world.solve().unplaced == 1
    reasons = {r["where"]: r["message"] for r in json.loads(world.redis.hget(world.keys.retries, "uid-b"))["reasons"]}
    assert "refused its last launch for good (UnauthorizedOperation: nor here)" in reasons["nodepool/second"]
    records.remember_refused("uid-general", "UnauthorizedOperation", "you may not", for_ms=0)
    world.closed_batch(a_pod("c", cpu="30"), name="batch-3")
    assert world.solve().claims == 1


def test_a_broken_pod_never_stops_the_others(world):
    world.closed_batch(a_pod("broken", cpu="many"), a_pod("whole"))
    report = world.solve()
    assert (report.claims, report.unplaced) == (1, 1)
    [reason] = json.loads(world.redis.hget(world.keys.retries, "uid-broken"))["reasons"]
    assert reason["code"] == "invalid"
    assert "many" in reason["message"]


def test_a_recorded_plan_solved_again_is_the_same(world):
    world.closed_batch(*(a_pod(f"p{n}", cpu=f"{200 + 37 * n}m") for n in range(20)), a_pod("big", cpu="999"))
    report = world.solve()
    again = replay(world.store, report.plan)
    assert again is not None
    assert again.is_same
    assert replay(world.store, "no-such-plan") is None


def test_inputs_of_older_plans_go_when_they_need_too_much_room(world):
    policy = SolvePolicy(keep_bytes=1)
    world.solver = SolvePass(world.store, world.cloud, world.hints, policy, SystemClock())
    plans = []
    for number in range(2):
        world.closed_batch(a_pod(f"p{number}"), name=f"batch-{number}")
        plans.append(world.solve().plan)
    assert [world.redis.exists(world.keys.plan(plan)) for plan in plans] == [1, 1]
    assert [world.redis.exists(world.keys.plan_input(plan)) for plan in plans] == [0, 1]
    assert replay(world.store, plans[0]) is None


def test_a_plan_is_solved_again_with_the_budget_that_it_was_made_with(world):
    policy = SolvePolicy(work_units=10_000_000, improvement_units=0)
    world.solver = SolvePass(world.store, world.cloud, world.hints, policy, SystemClock())
    world.closed_batch(*(a_pod(f"p{number}", cpu=f"{number}00m") for number in range(1, 20)))
    plan = world.solve().plan
    given = json.loads(world.redis.get(world.keys.plan_input(plan)))
    assert (given["work_units"], given["improvement_units"]) == (10_000_000, 0)
    assert replay(world.store, plan).is_same


def test_a_pass_tells_what_each_phase_took(world):
    world.closed_batch(a_pod("a"))
    report = world.solve()
    phases = ["take", "read", "decode", "prepare", "solve", "encode", "record"]
    assert list(report.spent_ms) == phases
    assert all(f"{phase}_ms" in world.plan(report) for phase in phases[:5])
