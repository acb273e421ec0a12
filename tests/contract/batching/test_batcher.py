import threading

import pytest

from tests.contract.batching.conftest import a_batcher, a_lock, closed_batches, items, queued, show, window
from wainwright.batching.batcher import Batcher, flush_batch, read_batch, requeue_batch
from wainwright.batching.dead import set_aside
from wainwright.batching.shards import shard_of
from wainwright.batching.windows import WindowPolicy
from wainwright.errors import FenceLost, PoolNotInUse, ViewIncomplete


def test_pod_is_queued_once_however_often_it_is_added(store):
    batcher = a_batcher(store)
    first = batcher.add(items("a", "b"))
    again = batcher.add(items("b", "a", "a"))
    assert queued(store) == ["a", "b"]
    assert [gate.entry for gate in again] == [first[1].entry, first[0].entry, first[0].entry]


def test_pod_named_twice_in_one_call_is_queued_once(store):
    gates = a_batcher(store).add(items("a", "a"))
    assert queued(store) == ["a"]
    assert gates[0].entry == gates[1].entry


def test_pod_that_waits_in_one_pool_is_not_queued_in_another(store):
    (gate,) = a_batcher(store, "general").add(items("a"))
    (other,) = a_batcher(store, "gpu").add(items("a"))
    assert other.entry == gate.entry
    assert queued(store, "gpu") == []


def test_many_pods_are_added_in_the_order_given(store):
    """1,234 pods are three script calls."""
    names = [f"pod-{n}" for n in range(1234)]
    gates = a_batcher(store).add(items(*names))
    assert queued(store) == names
    assert len({gate.entry for gate in gates}) == 1234
    assert window(store)["items"] == 1234


def test_adding_nothing_opens_no_window(store):
    assert a_batcher(store).add([]) == []
    assert window(store) is None


@pytest.mark.parametrize("place", ["planned", "retry", "dead"])
def test_pod_that_is_cared_for_elsewhere_is_not_queued_and_its_gate_is_open(store, place):
    if place == "planned":
        store.redis.hset(store.keys.planned, "a", "claim/x p1")
    elif place == "retry":
        store.redis.zadd(store.keys.retry, {"a": 1})
    else:
        set_aside(store, "pod", "a", "kills the solver", "default/a")
    cared, fresh = a_batcher(store).add(items("a", "b"))
    assert queued(store) == ["b"]
    assert cared.is_open()
    assert not fresh.is_open()


def test_planned_pod_whose_batch_is_not_over_has_the_gate_of_that_batch(store):
    batcher = a_batcher(store)
    (gate,) = batcher.add(items("a"))
    store.redis.hset(store.keys.planned, "a", "claim/x p1")
    (again,) = batcher.add(items("a"))
    assert again.entry == gate.entry
    assert not again.is_open()


def test_adding_to_a_pool_that_is_not_in_use_is_refused(store):
    with pytest.raises(PoolNotInUse):
        Batcher(store, "general", "uid-general").add(items("a"))
    assert queued(store) == []


def test_adding_to_a_pool_under_another_uid_is_refused(store):
    a_batcher(store, uid="new")
    with pytest.raises(PoolNotInUse):
        Batcher(store, "general", "old").add(items("a"))
    assert queued(store) == []


@pytest.mark.parametrize(("epoch", "complete"), [("e0", True), ("e1", False)])
def test_adding_is_refused_while_the_view_is_incomplete_or_of_another_epoch(store, epoch, complete):
    show(store, "a", complete=complete)
    batcher = a_batcher(store, epoch=epoch)
    with pytest.raises(ViewIncomplete):
        batcher.add(items("a"))
    assert queued(store) == []


def test_adding_in_the_views_epoch_is_accepted(store):
    show(store, "a")
    a_batcher(store, epoch="e1").add(items("a"))
    assert queued(store) == ["a"]


def test_shard_is_hinted_when_its_window_opens_and_not_again(store):
    hints = []
    batcher = a_batcher(store, hint=hints.append)
    batcher.add(items("a"))
    batcher.add(items("b"))
    assert hints == [shard_of("general", 8)]


def test_shard_that_is_served_is_not_hinted_but_woken(store):
    hints = []
    batcher = a_batcher(store, hint=hints.append)
    a_lock(store)
    batcher.add(items("a"))
    assert hints == []
    assert [fields["nodepool"] for _, fields in store.redis.xrange(store.keys.opened)] == ["general"]


def test_shard_is_hinted_when_its_window_fills_up(make_store):
    store, hints = make_store(WindowPolicy(max_items=3)), []
    batcher = a_batcher(store, hint=hints.append)
    batcher.add(items("a", "b"))
    batcher.add(items("c"))
    batcher.add(items("d"))
    assert len(hints) == 2


def test_same_pod_seen_again_does_not_extend_the_window(store):
    batcher = a_batcher(store)
    batcher.add(items("a"))
    before = window(store)
    batcher.add(items("a"))
    assert window(store) == before


def test_new_pod_extends_the_window_by_the_idle_duration_and_never_past_its_limit(make_store):
    store = make_store(WindowPolicy(idle_ms=60_000, max_ms=60_010))
    batcher = a_batcher(store)
    batcher.add(items("a"))
    first = window(store)
    assert first["due_ms"] == first["opened_ms"] + 60_000
    assert first["limit_ms"] == first["opened_ms"] + 60_010
    while store.now_ms() < first["opened_ms"] + 11:
        pass
    batcher.add(items("b"))
    assert window(store) == {**first, "items": 2, "due_ms": first["limit_ms"]}


def test_window_that_is_overdue_is_not_extended(quick, store):
    """A pod that comes after the deadline joins the window, whose worker is late already."""
    a_batcher(quick).add(items("a"))
    before = window(store)
    while store.now_ms() <= before["due_ms"]:
        pass
    a_batcher(store).add(items("b"))
    assert window(store) == {**before, "items": 2}


def test_batch_holds_the_windows_items_in_order(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a", "b", "c"))
    batch = batcher.wait(0)
    assert [item.uid for item in batch.items] == ["a", "b", "c"]
    assert batch.items[0].pod == "default/a"
    assert (batch.node_pool, batch.kind) == ("general", "fresh")
    assert batch.window.total_seconds() >= 0
    assert queued(quick) == []
    assert window(quick) is None


def test_waiting_with_nothing_queued_or_a_window_not_due_answers_none(store):
    batcher = a_batcher(store)
    assert batcher.wait(0) is None
    batcher.add(items("a"))
    assert batcher.wait(0) is None


def test_batch_is_handed_out_once_and_after_a_crash_again(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    batch = batcher.wait(0)
    assert batcher.wait(0) is None
    successor = Batcher(quick, "general", "uid-general")
    assert successor.wait(0) == batch


def test_consumer_gets_only_batches_of_its_own_pool(quick):
    """`general` is a prefix of `general-gpu`: ids are not enough to tell."""
    general, gpu = a_batcher(quick, "general"), a_batcher(quick, "general-gpu")
    gpu.add(items("g"))
    assert gpu.wait(0).items[0].uid == "g"
    assert general.wait(0) is None


def test_next_window_opens_while_a_batch_is_worked_on(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    first = batcher.wait(0)
    batcher.add(items("b"))
    second = batcher.wait(0)
    assert [item.uid for item in second.items] == ["b"]
    assert first.id != second.id


def test_gates_open_exactly_with_their_own_batch_and_out_of_order(quick):
    batcher = a_batcher(quick)
    (a,) = batcher.add(items("a"))
    first = batcher.wait(0)
    (b,) = batcher.add(items("b"))
    second = batcher.wait(0)
    assert not a.is_open()
    assert not b.is_open()
    assert batcher.flush(second)
    assert not a.is_open()
    assert b.is_open()
    assert batcher.flush(first)
    assert a.is_open()


def test_gate_taken_late_is_open_at_once(quick):
    """The original's race: an adder that hangs between enqueueing and taking the gate waits for the next window."""
    batcher = a_batcher(quick)
    (gate,) = batcher.add(items("a"))
    batcher.flush(batcher.wait(0))
    batcher.add(items("b"))
    assert gate.wait(0)


def test_old_gate_stays_open_when_the_pod_is_queued_again(quick):
    batcher = a_batcher(quick)
    (old,) = batcher.add(items("a"))
    batcher.flush(batcher.wait(0))
    (new,) = batcher.add(items("a"))
    assert old.is_open()
    assert not new.is_open()


def test_waiting_at_a_gate_that_stays_shut_ends_with_the_time(store):
    (gate,) = a_batcher(store).add(items("a"))
    assert not gate.wait(0.05)


def test_flush_wakes_every_waiter(quick):
    batcher = a_batcher(quick)
    gates = batcher.add(items(*"abcde"))
    batch, answers, looking = batcher.wait(0), [], threading.Barrier(len(gates) + 1)

    def wait(gate):
        looking.wait()
        answers.append(gate.wait(20))

    waiters = [threading.Thread(target=wait, args=(gate,)) for gate in gates]
    for waiter in waiters:
        waiter.start()
    looking.wait()
    batcher.flush(batch)
    for waiter in waiters:
        waiter.join(20)
    assert answers == [True] * 5


def test_second_flush_changes_nothing(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    batch = batcher.wait(0)
    assert batcher.flush(batch)
    batcher.add(items("a"))
    assert not batcher.flush(batch)
    assert queued(quick) == ["a"]
    assert not flush_batch(quick, "unknown", "x")


def test_flushed_batch_stays_on_record_for_a_day(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    batch = batcher.wait(0)
    batcher.flush(batch, "capacity found")
    key = quick.keys.batch(batch.id)
    assert quick.redis.hmget(key, "state", "outcome") == ["done", "capacity found"]
    assert 0 < quick.redis.pttl(key) <= 86_400_000
    assert closed_batches(quick) == []
    assert quick.redis.zrange(quick.keys.batches("done"), 0, -1) == [batch.id]


def test_surplus_beyond_the_cap_stays_for_the_next_window(make_store):
    store = make_store(WindowPolicy(idle_ms=60_000, max_ms=60_000, max_items=3))
    batcher = a_batcher(store)
    batcher.add(items(*"abcdefgh"))
    first, second = batcher.wait(0), batcher.wait(0)
    assert ["".join(item.uid for item in batch.items) for batch in (first, second)] == ["abc", "def"]
    assert batcher.wait(0) is None  # two are left: fewer than the cap, so their window is a usual one
    assert queued(store) == ["g", "h"]
    rest = window(store)
    assert rest["items"] == 2
    assert rest["due_ms"] == rest["opened_ms"] + 60_000


def test_requeued_batch_opens_its_gates_and_its_pods_wait_anew(quick):
    batcher = a_batcher(quick)
    (old,) = batcher.add(items("a"))
    batch = batcher.wait(0)
    assert batcher.requeue(batch, "the solver died") == 1
    assert old.is_open()
    assert queued(quick) == ["a"]
    assert batcher.wait(0).id != batch.id
    assert not batcher.flush(batch)


def test_requeue_leaves_out_pods_that_do_not_wait_any_more(quick):
    batcher = a_batcher(quick)
    batcher.add(items("bound", "planned", "pending"))
    batch = batcher.wait(0)
    show(quick, "planned", "pending")
    quick.redis.hset(quick.keys.planned, "planned", "claim/x p1")
    assert batcher.requeue(batch, "x") == 1
    assert queued(quick) == ["pending"]


def test_planned_batch_is_not_requeued(quick):
    """Its pods belong to claims, each of which queues its own anew."""
    batcher = a_batcher(quick)
    (gate,) = batcher.add(items("a"))
    batch = batcher.wait(0)
    quick.redis.hset(quick.keys.batch(batch.id), "state", "planned")
    assert requeue_batch(quick, batch.id, "x") == 0
    assert not gate.is_open()


def test_flush_and_requeue_with_a_lost_lock_change_nothing(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    batch, lock = batcher.wait(0), a_lock(quick)
    lock.release()
    with pytest.raises(FenceLost):
        flush_batch(quick, batch.id, "x", lock=lock)
    with pytest.raises(FenceLost):
        requeue_batch(quick, batch.id, "x", lock=lock)
    assert closed_batches(quick) == [batch.id]


def test_reading_an_unknown_batch_answers_none(store):
    assert read_batch(store, "nothing") is None
