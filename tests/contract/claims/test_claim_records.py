"""Claims' records on the fake and on a real server: leases, verdicts, moves, fates of pods, adoption, the sweep."""

import threading

import msgspec
import pytest

from wainwright.batching.claims import (
    Adoption,
    ClaimPod,
    ClaimRecords,
    Lease,
    LeaseKeeper,
    Role,
    State,
    Verdict,
)
from wainwright.errors import FenceLost, StoreUnavailable
from wainwright.scheduling.instance_types import OfferingKey

LIFETIME_MS = 30_000
DEADLINE_MS = 300_000


def a_pod(uid, role=Role.BIND, batch="batch-1"):
    return ClaimPod(uid=uid, role=role, key=f"default/{uid}", node_pool="general", batch=batch, entry=f"{uid}-0")


class Claims:
    """Writes records as the record script does, and looks into them."""

    def __init__(self, store):
        self.store, self.redis, self.keys = store, store.redis, store.keys
        self.redis.hset(self.keys.nodepools, "general", "pool-1")
        self.redis.hset(self.keys.view_meta, mapping={"epoch": "e1", "fence": "7", "complete": "1"})

    def make(self, name="c1", *pods, state="planned", **fields):
        self.redis.hset(
            self.keys.claim(name),
            mapping={"state": state, "plan": "p1", "nodepool": "general", "created_ms": "1", "next_ms": "1", **fields},
        )
        for pod in pods or (a_pod("u1"),):
            self.redis.hset(self.keys.claim_pods(name), pod.uid, pod.meta)
            self.redis.hset(self.keys.planned, pod.uid, f"claim/{name} p1")
            self.redis.hset(self.keys.view_pending, pod.uid, pod.key)
            self.redis.hset(self.keys.seen, pod.uid, f"general/{pod.entry}")
        self.redis.zadd(self.keys.claims, {name: 1})
        self.redis.zadd(self.keys.claims_due, {name: 1})
        return name

    def batch(self, name, *pods, effects=("c1",)):
        items = msgspec.json.encode([[pod.uid, pod.key, pod.entry] for pod in pods])
        self.redis.hset(
            self.keys.batch(name),
            mapping={"state": "planned", "nodepool": "general", "items": items, "plan": "p1", "planned_ms": "1"},
        )
        self.redis.zadd(self.keys.batches("planned"), {name: 1})
        if effects:
            self.redis.sadd(self.keys.batch_effects(name), *effects)

    def batch_state(self, name):
        return self.redis.hget(self.keys.batch(name), "state")

    def of(self, name, field):
        return self.redis.hget(self.keys.claim(name), field)

    def lapse(self, name):
        """The lease runs out without being released."""
        self.redis.hset(self.keys.claim(name), "lease_until_ms", "1")

    def due(self, name):
        return self.redis.zscore(self.keys.claims_due, name)


@pytest.fixture
def claims(store):
    return Claims(store)


def taken(records, name="c1"):
    lease, _ = records.take(name)
    return lease


def checked(records, lease, uid="n1"):
    return records.check(lease, uid, allowed_for_ms=LIFETIME_MS, deadline_ms=DEADLINE_MS, attempts="[]")


def launched(records, claims, *pods):
    claims.make("c1", *pods)
    lease = taken(records)
    assert checked(records, lease) is Verdict.GO
    records.move(lease, (State.CREATED,), State.LAUNCHED, {"node": "c1"})
    return lease


# Leases --------------------------------------------------------------------------------------------------------------


def test_a_claim_is_held_by_one_at_a_time(records, claims):
    claims.make()
    lease, record = records.take("c1")
    assert (record.state, record.plan, record.pods) == (State.PLANNED, "p1", (a_pod("u1"),))
    assert records.take("c1") is None
    records.release(lease)
    assert records.take("c1") is not None


def test_what_is_unknown_or_over_is_not_taken(records, claims):
    claims.make("done", state="done")
    claims.make("failed", state="failed")
    assert [records.take(name) for name in ("done", "failed", "never")] == [None, None, None]
    assert claims.redis.zcard(claims.keys.claims_due) == 0


def test_a_lease_that_lapsed_unreleased_counts_a_death_and_a_released_one_does_not(records, claims):
    claims.make()
    taken(records)
    claims.lapse("c1")
    lease, record = records.take("c1")
    assert record.deaths == 1
    records.release(lease)
    assert records.take("c1")[1].deaths == 0


def test_what_kills_its_holders_is_left_alone_for_longer_each_time(records, claims):
    claims.make()
    waits = []
    for _ in range(5):
        if taken_again := records.take("c1"):
            assert taken_again[1].deaths < 3
        else:
            waits.append(int(claims.of("c1", "next_ms")) - claims.store.now_ms())
            claims.redis.hset(claims.keys.claim("c1"), mapping={"next_ms": "1", "holder": "dead/1"})
        claims.lapse("c1")
    assert len(waits) == 2
    assert 1000 < waits[0] <= 2000 < waits[1] <= 4000


def test_a_released_claim_rests_until_its_time(records, claims):
    claims.make()
    records.release(taken(records), wait_ms=60_000)
    assert records.take("c1") is None
    assert claims.due("c1") > claims.store.now_ms() + 50_000


def test_a_lapsed_holder_can_change_nothing(records, claims):
    claims.make()
    lease = taken(records)
    claims.lapse("c1")
    successor = taken(records)
    before = claims.redis.hgetall(claims.keys.claim("c1"))
    assert checked(records, lease) is Verdict.STOP
    for act in (
        lambda: records.move(lease, (State.PLANNED,), State.CREATED),
        lambda: records.begin_failing(lease, "Because", ""),
        lambda: records.over(lease, ""),
        lambda: records.done(lease, bound=["u1"], settled=[], unbound=[], keep_ms=1),
        lambda: records.answered(lease),
        lambda: records.remark(lease, "hm"),
        lambda: records.read(lease),
    ):
        with pytest.raises(FenceLost):
            act()
    assert not records.is_still_failing(lease)
    records.release(lease)
    assert claims.redis.hgetall(claims.keys.claim("c1")) == before
    assert records.read(successor).state is State.PLANNED


def test_renewing_keeps_what_is_held_and_tells_what_is_lost(records, claims):
    claims.make("c1")
    claims.make("c2")
    kept, lost = taken(records, "c1"), taken(records, "c2")
    claims.lapse("c1")
    claims.lapse("c2")
    taken(records, "c2")
    records.renew([kept, lost])
    assert (kept.is_lost, lost.is_lost) == (False, True)
    assert int(claims.of("c1", "lease_until_ms")) > claims.store.now_ms() + 3000
    with pytest.raises(FenceLost):
        lost.demand()


# The check -----------------------------------------------------------------------------------------------------------


def test_go_moves_the_claim_on_and_notes_until_when_the_request_may_arrive(records, claims):
    claims.make()
    lease = taken(records)
    assert checked(records, lease) is Verdict.GO
    record = records.read(lease)
    assert (record.state, record.uid) == (State.CREATED, "n1")
    now_ms = claims.store.now_ms()
    assert now_ms + 20_000 < record.allowed_until_ms <= now_ms + LIFETIME_MS
    assert record.deadline_ms > now_ms + 200_000


def test_a_request_without_an_answer_may_still_arrive_whoever_made_it(records, claims):
    claims.make()
    checked(records, taken(records))
    claims.lapse("c1")
    successor = taken(records)
    assert checked(records, successor) is Verdict.GO
    assert 20_000 < records.answered(successor) <= LIFETIME_MS
    record = records.read(successor)
    assert record.allowed_until_ms == 0
    assert record.unanswered_until_ms == record.others_until_ms > 0


def test_an_answered_request_cannot_arrive_any_more(records, claims):
    claims.make()
    lease = taken(records)
    checked(records, lease)
    assert records.answered(lease) == 0
    assert records.read(lease).unanswered_until_ms == 0


@pytest.mark.parametrize("state", ["done", "failing"])
def test_stop_where_somebody_else_carries_on(records, claims, state):
    claims.make(state=state, uid="n1")
    assert checked(records, Lease("c1", "me")) is Verdict.STOP


def test_another_node_claim_of_the_name_is_to_be_deleted_and_the_lease_is_given_back(records, claims):
    claims.make(state="created", uid="n0")
    lease = taken(records)
    assert checked(records, lease, "n1") is Verdict.OTHER
    assert taken(records).name == "c1"


def test_unknown_means_wait_before_the_adoption_and_withdraw_after_it(records, claims):
    assert checked(records, Lease("c1", "me")) is Verdict.WAIT
    claims.redis.set(claims.keys.adopted, "e1")
    assert checked(records, Lease("c1", "me")) is Verdict.WITHDRAW
    claims.make(state="failed", uid="n1")
    assert checked(records, Lease("c1", "me")) is Verdict.WITHDRAW


# Fates ---------------------------------------------------------------------------------------------------------------


def test_done_opens_the_gates_once_the_last_effect_is_over(records, claims):
    one, two = a_pod("u1"), a_pod("u2")
    claims.batch("batch-1", one, two, effects=("c1", "c2"))
    lease = launched(records, claims, one)
    assert records.done(lease, bound=["u1"], settled=[], unbound=[], keep_ms=1000) == 0
    assert claims.batch_state("batch-1") == "planned"
    claims.make("c2", two)
    lease = taken(records, "c2")
    checked(records, lease)
    records.move(lease, (State.CREATED,), State.LAUNCHED)
    records.done(lease, bound=["u2"], settled=[], unbound=[], keep_ms=1000)
    assert claims.batch_state("batch-1") == "done"
    assert claims.redis.hgetall(claims.keys.seen) == {}
    assert claims.due("c1") is None
    assert claims.of("c1", "state") == "done"


def test_unbound_pods_are_queued_anew_and_bound_ones_count_until_the_view_shows_them(records, claims):
    claims.batch("batch-1", a_pod("u1"), a_pod("u2"))
    lease = launched(records, claims, a_pod("u1"), a_pod("u2"))
    assert records.done(lease, bound=["u1"], settled=[], unbound=["u2"], keep_ms=1000, why_unbound="no") == 1
    assert claims.redis.hgetall(claims.keys.planned) == {"u1": "claim/c1 p1"}
    seen = claims.redis.hgetall(claims.keys.seen)
    assert list(seen) == ["u2"]
    assert seen["u2"] != "general/u2-0", "a new entry: the old gate is open"


def test_nominated_and_resting_pods_keep_their_room_for_a_time(records, claims):
    lease = launched(records, claims, a_pod("u1"), a_pod("u2", Role.REST, batch="batch-2"))
    records.done(lease, bound=[], settled=[], nominated=["u1"], unbound=[], keep_ms=900_000)
    now_ms = claims.store.now_ms()
    until = dict(claims.redis.zrange(claims.keys.nominated, 0, -1, withscores=True))
    assert set(until) == {"u1", "u2"}
    assert min(until.values()) > now_ms + 800_000
    assert records.begin_nominations("c1", "c1", keep_ms=20_000) == 2
    assert (
        max(score for _, score in claims.redis.zrange(claims.keys.nominated, 0, -1, withscores=True)) < now_ms + 21_000
    )
    assert records.expire_nominations() == ()
    claims.redis.zadd(claims.keys.nominated, {"u1": 1})
    assert records.expire_nominations() == ("u1",)
    assert list(claims.redis.hgetall(claims.keys.planned)) == ["u2"]


def test_failing_holds_its_pods_and_over_queues_them_anew_once(records, claims):
    claims.batch("batch-1", a_pod("u1"))
    claims.make("c1", a_pod("u1"), a_pod("u9", Role.REST, batch="batch-9"))
    lease = taken(records)
    records.begin_failing(lease, "Because", "of that")
    assert records.is_still_failing(lease)
    assert claims.redis.hlen(claims.keys.planned) == 2
    assert records.over(lease, "Because: of that") == 2
    assert claims.redis.hlen(claims.keys.planned) == 0
    assert claims.batch_state("batch-1") == "done"
    assert (claims.of("c1", "state"), claims.of("c1", "reason")) == ("failed", "Because")
    assert claims.redis.zscore(claims.keys.claims, "c1") is None
    with pytest.raises(FenceLost):
        records.over(lease, "again")


def test_a_launched_claim_is_not_over(records, claims):
    lease = launched(records, claims)
    with pytest.raises(FenceLost):
        records.over(lease, "")


def test_a_claim_that_was_done_is_upset_only_under_its_own_uid_and_while_nobody_holds_it(records, claims):
    claims.make(state="done", uid="n1")
    assert not records.upset("c1", "n2", "Deleted", "")
    assert records.upset("c1", "n1", "Deleted", "by you")
    assert not records.upset("c1", "n1", "Deleted", "")
    assert records.take("c1")[1].reason == "Deleted"


# Adoption ------------------------------------------------------------------------------------------------------------


def an_adoption(name, *pods, state=State.CREATED, settled=False, rivals=()):
    return Adoption(
        name=name,
        state=state,
        settled=settled,
        disputed=bool(rivals),
        fields={
            "uid": f"n-{name}",
            "plan": "p1",
            "nodepool": "general",
            "rivals": msgspec.json.encode(rivals).decode(),
        },
        pods=pods or (a_pod(f"u-{name}", batch=""),),
    )


def adopt(records, *adoptions, epoch="e1", fence="7"):
    return records.adopt(adoptions, epoch=epoch, fence=fence, request_ms=LIFETIME_MS)


def test_the_first_adoption_takes_claims_as_they_are_listed(records, claims):
    assert adopt(records, an_adoption("c1"), an_adoption("c2", state=State.LAUNCHED)) == 2
    assert (claims.of("c1", "state"), claims.of("c2", "state")) == ("created", "launched")
    assert claims.redis.hget(claims.keys.planned, "u-c1") == "claim/c1 p1"
    record = records.take("c1")[1]
    assert record.unanswered_until_ms > claims.store.now_ms() + 20_000, "what was allowed before is not known any more"


def test_what_turns_up_after_the_adoption_fails_unless_its_node_has_joined(records, claims):
    adopt(records)
    assert adopt(records, an_adoption("c1"), an_adoption("c2", state=State.LAUNCHED, settled=True)) == 2
    assert (claims.of("c1", "state"), claims.of("c2", "state")) == ("failing", "launched")
    assert records.adopt_late(an_adoption("c3"), request_ms=LIFETIME_MS)
    assert not records.adopt_late(an_adoption("c3"), request_ms=LIFETIME_MS)
    assert claims.of("c3", "state") == "failing"


def test_nothing_is_adopted_late_before_the_adoption_nor_under_an_old_epoch_or_fence(records, claims):
    assert not records.adopt_late(an_adoption("c1"), request_ms=LIFETIME_MS)
    for epoch, fence in (("e0", "7"), ("e1", "6")):
        with pytest.raises(FenceLost):
            adopt(records, an_adoption("c1"), epoch=epoch, fence=fence)
    assert claims.of("c1", "state") is None
    assert not claims.redis.exists(claims.keys.adopted)


def test_a_record_that_is_there_is_not_adopted_over(records, claims):
    claims.make(state="done", uid="n1")
    assert adopt(records, an_adoption("c1")) == 0
    assert claims.of("c1", "state") == "done"


def test_of_claims_that_share_a_pod_both_fail_and_the_pod_goes_to_the_one_that_is_left(records, claims):
    shared = a_pod("u", batch="")
    claims.redis.hset(claims.keys.view_pending, "u", "default/u")
    adopt(records, an_adoption("c1", shared, rivals=("c2",)), an_adoption("c2", shared, rivals=("c1",)))
    assert (claims.of("c1", "state"), claims.of("c2", "state")) == ("failing", "failing")
    first = taken(records, "c1")
    assert records.over(first, "disputed") == 0
    assert claims.redis.hget(claims.keys.planned, "u") == "claim/c2 p1"
    assert records.over(taken(records, "c2"), "disputed") == 1


# The sweep -----------------------------------------------------------------------------------------------------------


def test_the_sweep_finds_what_is_due_and_unheld_and_does_not_repeat_itself_at_once(records, claims):
    claims.make("due")
    claims.make("held")
    taken(records, "held")
    assert records.overdue().claims == ("due",)
    assert records.overdue().claims == ()
    claims.redis.zadd(claims.keys.claims_due, {"due": 1})
    claims.lapse("held")
    claims.redis.zadd(claims.keys.claims_due, {"held": 1})
    assert set(records.overdue().claims) == {"due", "held"}


def test_the_sweep_ends_effects_that_nobody_will_end(records, claims):
    claims.batch("batch-1", a_pod("u1"), effects=("gone", "nominate"))
    found = records.overdue()
    assert found.nominations == ("batch-1",)
    assert claims.batch_state("batch-1") == "planned"
    records.nominate("batch-1", keep_ms=1000, keep_unready_ms=1000)
    assert claims.batch_state("batch-1") == "done"


def test_offerings_without_capacity_are_known_for_a_time(records):
    one, two = OfferingKey("spot", "m.large", "a"), OfferingKey("*", "m.large", "b")
    records.remember_unavailable([one, two], for_ms=60_000)
    records.remember_unavailable([one], for_ms=-1)
    assert records.unavailable() == {two}


# The keeper ----------------------------------------------------------------------------------------------------------


class StillClock:
    """Sleeps until told."""

    def __init__(self):
        self.seconds = 0.0
        self.asleep, self.wake = threading.Event(), threading.Event()

    def monotonic_seconds(self):
        return self.seconds

    def sleep(self, seconds):
        self.asleep.set()
        self.wake.wait(10)


def test_the_keeper_renews_what_is_held_and_forgets_what_is_dropped(records, claims):
    claims.make()
    lease = taken(records)
    keeper = LeaseKeeper(records, StillClock())
    keeper.hold(lease)
    claims.redis.hset(claims.keys.claim("c1"), "lease_until_ms", str(claims.store.now_ms() + 100))
    keeper.renew_once()
    assert int(claims.of("c1", "lease_until_ms")) > claims.store.now_ms() + 3000
    keeper.drop(lease)
    claims.lapse("c1")
    keeper.renew_once()
    assert not lease.is_lost


def test_a_lease_that_could_not_be_renewed_for_its_whole_length_is_lost(store):
    class Unreachable(ClaimRecords):
        def renew(self, leases):
            raise StoreUnavailable("gone")

    clock = StillClock()
    keeper = LeaseKeeper(Unreachable(store), clock)
    lease = Lease("c1", "me")
    keeper.hold(lease)
    clock.seconds = 3.9
    keeper.renew_once()
    assert not lease.is_lost
    clock.seconds = 4.1
    keeper.renew_once()
    assert lease.is_lost
