import json

import pytest

from tests.contract.batching.conftest import a_batcher, a_lock, closed_batches, items, queued, show, window
from wainwright.batching.batcher import read_batch
from wainwright.batching.dead import is_set_aside, set_aside
from wainwright.batching.pools import use_pool
from wainwright.batching.retries import forget_retries, take_due, wake_retries
from wainwright.batching.shards import close_window
from wainwright.batching.windows import WindowPolicy


def put_aside(store, *pods, pool="general", due_in_ms=0, tried_ago_ms=5000):
    """As the script that records a plan does."""
    now_ms = store.now_ms()
    for pod in pods:
        store.redis.zadd(store.keys.retry, {pod: now_ms + due_in_ms})
        record = {"pod": f"default/{pod}", "pool": pool, "attempts": 1, "last_ms": now_ms - tried_ago_ms}
        store.redis.hset(store.keys.retries, pod, json.dumps(record))


def waiting(store):
    return store.redis.zrange(store.keys.retry, 0, -1)


@pytest.fixture
def pool(store):
    show(store, *"abcdef")
    return a_batcher(store)


def test_due_retry_makes_a_batch_of_its_own_behind_fresh_ones(store, pool, quick):
    put_aside(store, "a", "b")
    taken = take_due(store)
    assert taken.pods == 2
    (batch,) = taken.batches
    assert read_batch(store, batch).kind == "retry"
    assert sorted(item.uid for item in read_batch(store, batch).items) == ["a", "b"]
    assert window(store) is None
    assert waiting(store) == []
    a_batcher(quick).add(items("fresh"))
    fresh = close_window(quick, a_lock(quick), "general")
    assert closed_batches(store) == [fresh.batch, batch]


def test_due_retry_joins_an_open_window_without_extending_it(store, pool):
    pool.add(items("fresh"))
    before = window(store)
    put_aside(store, "a")
    taken = take_due(store)
    assert taken.batches == ()
    assert queued(store) == ["fresh", "a"]
    assert window(store) == {**before, "items": 2}


def test_retry_that_is_not_due_stays(store, pool):
    put_aside(store, "a", due_in_ms=60_000)
    assert take_due(store).pods == 0
    assert waiting(store) == ["a"]


def test_retry_in_a_batch_is_queued_once_and_keeps_its_attempts(store, pool):
    put_aside(store, "a")
    take_due(store)
    pool.add(items("a"))
    assert queued(store) == []
    assert json.loads(store.redis.hget(store.keys.retries, "a"))["attempts"] == 1


def test_retry_that_does_not_wait_any_more_drops_out(store, pool):
    put_aside(store, "gone", "a")
    taken = take_due(store)
    assert [item.uid for item in read_batch(store, taken.batches[0]).items] == ["a"]
    assert waiting(store) == []
    assert store.redis.hkeys(store.keys.retries) == ["a"]


@pytest.mark.parametrize("place", ["seen", "planned"])
def test_retry_that_is_cared_for_elsewhere_drops_out(store, pool, place):
    put_aside(store, "a")
    store.redis.hset(store.keys.seen if place == "seen" else store.keys.planned, "a", "general/1-1")
    assert take_due(store).batches == ()
    assert waiting(store) == []


def test_retry_whose_pool_is_gone_goes_to_another(store, pool):
    put_aside(store, "a", pool="deleted")
    (batch,) = take_due(store).batches
    assert read_batch(store, batch).node_pool == "general"


def test_retry_with_no_pool_in_use_waits(store):
    show(store, "a")
    put_aside(store, "a")
    assert take_due(store).batches == ()
    assert waiting(store) == ["a"]


def test_nothing_moves_while_the_view_is_incomplete(store, pool):
    show(store, complete=False)
    put_aside(store, "a")
    assert take_due(store).pods == 0
    assert waiting(store) == ["a"]


def test_retries_of_several_pools_make_a_batch_each(store, pool):
    use_pool(store, "gpu", "g")
    put_aside(store, "a")
    put_aside(store, "b", pool="gpu")
    assert sorted(read_batch(store, batch).node_pool for batch in take_due(store).batches) == ["general", "gpu"]


def test_more_retries_than_a_batch_holds_make_several(make_store, store):
    small = make_store(WindowPolicy(max_items=2))
    show(small, *"abcde")
    a_batcher(small)
    put_aside(small, *"abcde")
    sizes = [len(read_batch(small, batch).items) for batch in take_due(small).batches]
    assert sizes == [2, 2, 1]
    assert window(small) is None


def test_a_thousand_and_more_retries_are_taken_in_steps(store):
    pods = [f"pod-{n}" for n in range(1100)]
    show(store, *pods)
    a_batcher(store)
    put_aside(store, *pods)
    taken = take_due(store)
    assert taken.pods == 1100
    assert sum(len(read_batch(store, batch).items) for batch in taken.batches) == 1100


def test_change_makes_retries_due_at_once(store, pool):
    put_aside(store, "a", due_in_ms=60_000)
    wake_retries(store, "NodePool gpu created")
    assert len(take_due(store).batches) == 1
    assert store.redis.hget(store.keys.retry_woken, "reason") == "NodePool gpu created"


def test_retry_is_not_woken_within_a_second_of_its_last_try(store, pool):
    put_aside(store, "a", due_in_ms=60_000, tried_ago_ms=0)
    last_ms = json.loads(store.redis.hget(store.keys.retries, "a"))["last_ms"]
    while store.now_ms() == last_ms:
        pass
    wake_retries(store, "node joined")
    assert take_due(store).pods == 0
    assert store.redis.zscore(store.keys.retry, "a") == last_ms + 1000


def test_change_before_the_last_try_wakes_nothing(store, pool):
    wake_retries(store, "node joined")
    put_aside(store, "a", due_in_ms=60_000, tried_ago_ms=-1000)
    assert take_due(store).pods == 0
    assert store.redis.zscore(store.keys.retry, "a") > store.now_ms() + 50_000


def test_change_is_acted_on_once(store, pool):
    wake_retries(store, "node joined")
    take_due(store)
    put_aside(store, "a", due_in_ms=60_000)
    assert take_due(store).pods == 0


def test_traces_of_placed_and_gone_pods_are_removed(store, pool):
    put_aside(store, "a")
    take_due(store)
    store.redis.hset(store.keys.retries, "gone", "{}")
    take_due(store)
    assert store.redis.hkeys(store.keys.retries) == ["a"]


def test_changed_pod_leaves_retry_set_and_dead(store, pool):
    put_aside(store, "a", due_in_ms=60_000)
    set_aside(store, "pod", "b", "kills the solver", "default/b")
    assert forget_retries(store, ["a", "b", "c"]) == 2
    assert waiting(store) == []
    assert not is_set_aside(store, "pod", "b")
    pool.add(items("a", "b"))
    assert queued(store) == ["a", "b"]
