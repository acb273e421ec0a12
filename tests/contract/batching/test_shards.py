import random
import threading

import pytest

from tests.contract.batching.conftest import AT_ONCE, a_batcher, a_lock, closed_batches, items, lose, queued, window
from wainwright.batching.batcher import read_batch
from wainwright.batching.dead import all_set_aside
from wainwright.batching.shards import (
    close_window,
    open_windows,
    overdue,
    serve_shard,
    shard_of,
)
from wainwright.batching.windows import WindowPolicy
from wainwright.errors import FenceLost


def serve(store, shard, shards=8, *, stop=None, idle_seconds=0.0):
    """One visit that leaves as soon as nothing is open; what it answered and what it told."""
    told = []
    served = serve_shard(
        store, shard, shards, stop=stop or threading.Event(), on_closed=told.extend, idle_seconds=idle_seconds
    )
    return served, told


def test_visit_closes_every_due_window_of_its_shard_and_tells(quick):
    for pool in ("general", "gpu", "arm"):
        a_batcher(quick, pool).add(items(pool))
    served, told = serve(quick, 0, shards=1)
    assert served.held
    assert served.closed == 3
    assert not served.again
    assert sorted(closed.batch for closed in told) == sorted(closed_batches(quick))
    assert {closed.size for closed in told} == {1}
    assert open_windows(quick).due_ms == {}


def test_windows_of_other_shards_are_left_alone(quick):
    pools = [f"pool-{n}" for n in range(16)]
    for pool in pools:
        a_batcher(quick, pool).add(items(pool))
    _, told = serve(quick, 3, shards=4)
    mine = {pool for pool in pools if shard_of(pool, 4) == 3}
    assert 0 < len(mine) < 16
    assert {read_batch(quick, closed.batch).node_pool for closed in told} == mine
    assert set(open_windows(quick).due_ms) == set(pools) - mine


def test_second_worker_is_turned_away(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    a_lock(quick)
    served, told = serve(quick, batcher.shard)
    assert not served.held
    assert told == []
    assert closed_batches(quick) == []


def test_shard_is_free_again_after_a_visit(quick):
    batcher = a_batcher(quick)
    serve(quick, batcher.shard)
    assert a_lock(quick).fence


def test_visit_that_leaves_an_open_window_behind_asks_to_be_hinted_again(store):
    batcher = a_batcher(store)
    batcher.add(items("a"))
    stop = threading.Event()
    stop.set()
    served, _ = serve(store, batcher.shard, stop=stop)
    assert served.again


def test_visit_of_an_idle_shard_ends(store):
    batcher = a_batcher(store)
    served, told = serve(store, batcher.shard)
    assert (served.held, served.closed, served.again, served.lost) == (True, 0, False, False)
    assert told == []


def test_sleeping_holder_is_woken_by_a_window_that_fills_up(make_store):
    """The window would close in a minute; the pod that fills it closes it now."""
    store = make_store(WindowPolicy(idle_ms=60_000, max_ms=60_000, max_items=2))
    batcher = a_batcher(store)
    batcher.add(items("a"))
    told, stop, heard = [], threading.Event(), threading.Event()

    def on_closed(closed):
        told.extend(closed)
        heard.set()

    worker = threading.Thread(target=serve_shard, args=(store, 0, 1), kwargs={"stop": stop, "on_closed": on_closed})
    worker.start()
    while not store.redis.exists(store.keys.lock("window:0")):
        pass
    batcher.add(items("b"))
    assert heard.wait(20)
    stop.set()
    worker.join(20)
    assert [closed.size for closed in told] == [2]


def test_window_that_is_not_due_is_not_closed(store):
    a_batcher(store).add(items("a"))
    before = window(store)
    assert close_window(store, a_lock(store), "general") is None
    assert window(store) == before
    assert queued(store) == ["a"]


def test_closing_where_no_window_is_open_does_nothing(store):
    assert close_window(store, a_lock(store), "general") is None


def test_holder_that_lost_its_lock_changes_nothing(quick):
    a_batcher(quick).add(items("a"))
    old = a_lock(quick)
    lose(quick, old)
    with pytest.raises(FenceLost):
        close_window(quick, old, "general")
    new = a_lock(quick)
    with pytest.raises(FenceLost):
        close_window(quick, old, "general")
    assert queued(quick) == ["a"]
    assert closed_batches(quick) == []
    assert close_window(quick, new, "general").size == 1


def test_successor_closes_what_a_dead_holder_left(quick):
    """Nothing is pending in a dead reader's name: the window is simply still there, with all its pods."""
    batcher = a_batcher(quick)
    gates = batcher.add(items("a", "b"))
    lose(quick, a_lock(quick))
    served, told = serve(quick, batcher.shard)
    assert served.closed == 1
    assert told[0].size == 2
    assert not any(gate.is_open() for gate in gates)


def test_visit_that_loses_its_lock_stops_and_says_so(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    stop, told = threading.Event(), []

    def on_closed(closed):
        told.extend(closed)
        quick.redis.delete(quick.keys.lock(f"window:{batcher.shard}"))
        a_lock(quick)
        batcher.add(items("b"))

    served = serve_shard(quick, batcher.shard, 8, stop=stop, on_closed=on_closed)
    assert served.lost
    assert queued(quick) == ["b"]
    assert quick.redis.exists(quick.keys.lock(f"window:{batcher.shard}"))


def test_entries_that_cannot_be_read_are_set_aside_and_the_others_go_on(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))
    stream = quick.keys.pending("general")
    bad = [
        quick.redis.xadd(stream, {"v": "2", "uid": "b", "pod": "default/b"}),
        quick.redis.xadd(stream, {"v": "1", "pod": "default/c"}),
        quick.redis.xadd(stream, {"v": "1", "uid": "d", "pod": "no slash"}),
        quick.raw.xadd(stream, {b"v": b"1", b"uid": b"\xff|\xfe", b"pod": b"default/e"}).decode(),
        quick.redis.xadd(stream, {"nothing": "known"}),
    ]
    batcher.add(items("f"))
    closed = close_window(quick, a_lock(quick), "general")
    assert [item.uid for item in read_batch(quick, closed.batch).items] == ["a", "f"]
    aside = all_set_aside(quick)
    assert set(aside) == {f"entry/general/{entry}" for entry in bad}
    assert aside[f"entry/general/{bad[0]}"].reason == "unknown version of a stream entry: 2"
    assert aside[f"entry/general/{bad[1]}"].reason == "stream entry without a usable uid"
    assert aside[f"entry/general/{bad[2]}"].reason == "stream entry without namespace/name in pod"
    assert "default/e" in aside[f"entry/general/{bad[3]}"].what
    assert aside[f"entry/general/{bad[4]}"].reason == "unknown version of a stream entry: none"
    assert queued(quick) == []


def test_pod_whose_entry_cannot_be_read_can_be_queued_anew(quick):
    """Its hold in `seen` is let go: the gate opens, a resync adds the pod in the known version."""
    batcher = a_batcher(quick)
    (gate,) = batcher.add(items("a"))
    stream = quick.keys.pending("general")
    quick.redis.delete(stream)
    quick.redis.xadd(stream, {"v": "9", "uid": "a", "pod": "default/a"}, id=gate.entry.split("/")[1])
    assert close_window(quick, a_lock(quick), "general") is None
    assert gate.is_open()
    assert closed_batches(quick) == []
    batcher.add(items("a"))
    assert queued(quick) == ["a"]


def test_batch_record_tells_how_the_window_went(quick):
    a_batcher(quick).add(items("a", "b"))
    opened = window(quick)
    closed = close_window(quick, a_lock(quick), "general")
    record = quick.redis.hgetall(quick.keys.batch(closed.batch))
    assert closed.batch.startswith("general-")
    assert {name: record[name] for name in ("state", "nodepool", "nodepool_uid", "kind", "size")} == {
        "state": "closed",
        "nodepool": "general",
        "nodepool_uid": "uid-general",
        "kind": "fresh",
        "size": "2",
    }
    assert int(record["opened_ms"]) == opened["opened_ms"]
    assert int(record["due_ms"]) == opened["due_ms"]
    assert int(record["window_ms"]) == int(record["closed_ms"]) - int(record["opened_ms"])
    _, decision = quick.redis.xrevrange(quick.keys.decisions, count=1)[0]
    assert (decision["what"], decision["about"]) == ("batch closed", closed.batch)


def test_shards_with_open_windows_and_no_holder_are_overdue(store):
    pools = [f"pool-{n}" for n in range(6)]
    for pool in pools:
        a_batcher(store, pool).add(items(pool))
    held = shard_of(pools[0], 8)
    a_lock(store, pools[0])
    assert overdue(store, 8) == sorted({shard_of(pool, 8) for pool in pools} - {held})


def test_nothing_is_overdue_where_no_window_is_open(store):
    assert overdue(store, 8) == []


def test_shard_of_a_pool_never_changes():
    """It is in the names of locks, and every process must find the same: CRC-32 of general is 0xce29364a, mod 8 2."""
    assert [shard_of(pool, 8) for pool in ("general", "gpu", "arm")] == [2, 2, 4]
    assert all(shard_of(f"pool-{n}", 1) == 0 for n in range(5))


def test_full_windows_are_closed_one_after_the_other_in_one_visit(make_store):
    store = make_store(WindowPolicy(idle_ms=AT_ONCE.idle_ms, max_ms=AT_ONCE.max_ms, max_items=4))
    batcher = a_batcher(store)
    batcher.add(items(*(f"pod-{n}" for n in range(10))))
    served, told = serve(store, batcher.shard)
    assert [closed.size for closed in told] == [4, 4, 2]
    assert served.closed == 3


def test_visit_ends_after_its_time_with_windows_open(store):
    batcher = a_batcher(store)
    batcher.add(items("a"))
    served = serve_shard(store, batcher.shard, 8, stop=threading.Event(), on_closed=lambda _: None, for_seconds=0)
    assert (served.held, served.again) == (True, True)


def test_errors_of_who_is_told_end_the_visit_and_free_the_shard(quick):
    batcher = a_batcher(quick)
    batcher.add(items("a"))

    def on_closed(closed):
        raise LookupError("the broker is gone")

    with pytest.raises(LookupError):
        serve_shard(quick, batcher.shard, 8, stop=threading.Event(), on_closed=on_closed)
    assert len(closed_batches(quick)) == 1
    assert a_lock(quick).fence


def test_every_pod_is_in_exactly_one_batch_however_many_add_and_serve_at_once(make_store):
    """Four adders add the same 300 pods to two NodePools, in another order each; two workers fight for the shard."""
    policy = WindowPolicy(idle_ms=3, max_ms=10, max_items=40)
    stores = [make_store(policy) for _ in range(6)]
    pools = ("general", "gpu")
    for pool in pools:
        a_batcher(stores[0], pool)
    names, stop = [f"pod-{n}" for n in range(300)], threading.Event()

    def add(number):
        mine = random.Random(number).sample(names, len(names))
        batchers = [a_batcher(stores[number], pool, shards=1) for pool in pools]
        for first in range(0, len(mine), 7):
            batchers[(number + first) % 2].add(items(*mine[first : first + 7]))

    def work(store):
        while not stop.is_set():
            serve(store, 0, shards=1, stop=stop)

    adders = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    workers = [threading.Thread(target=work, args=(store,)) for store in stores[4:]]
    for thread in (*adders, *workers):
        thread.start()
    for thread in adders:
        thread.join(60)
    while open_windows(stores[0]).due_ms:
        pass
    stop.set()
    for thread in workers:
        thread.join(60)
    batched = [item.uid for batch in closed_batches(stores[0]) for item in read_batch(stores[0], batch).items]
    assert sorted(batched) == sorted(names)
    assert max(len(read_batch(stores[0], batch).items) for batch in closed_batches(stores[0])) <= 40
