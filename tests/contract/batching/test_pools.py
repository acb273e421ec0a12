from tests.contract.batching.conftest import a_batcher, a_lock, closed_batches, items, queued, show, window
from wainwright.batching.batcher import flush_batch
from wainwright.batching.pools import delete_pool, pools_in_use, use_pool
from wainwright.batching.shards import close_window


def test_pool_is_taken_into_use_once(store):
    assert use_pool(store, "general", "u1")
    assert not use_pool(store, "general", "u1")
    assert pools_in_use(store) == {"general": "u1"}


def test_deletion_releases_waiters_and_routes_what_was_queued(store):
    batcher = a_batcher(store, "general")
    gates = batcher.add(items("a", "b"))
    use_pool(store, "gpu", "g")
    use_pool(store, "arm", "r")
    deleted = delete_pool(store, "general", "uid-general", ["general", "gpu", "arm"])
    assert deleted.routed_to == "gpu"
    assert deleted.queued == (("a", "default/a"), ("b", "default/b"))
    assert all(gate.is_open() for gate in gates)
    assert queued(store, "gpu") == ["a", "b"]
    assert window(store) is None
    assert window(store, "gpu")["items"] == 2
    assert pools_in_use(store) == {"gpu": "g", "arm": "r"}


def test_without_an_order_the_first_by_name_takes_what_was_queued(store):
    a_batcher(store, "general").add(items("a"))
    use_pool(store, "gpu", "g")
    use_pool(store, "arm", "r")
    assert delete_pool(store, "general", "uid-general").routed_to == "arm"


def test_routed_pods_are_not_queued_twice(store):
    a_batcher(store, "general").add(items("a"))
    gpu = a_batcher(store, "gpu")
    delete_pool(store, "general", "uid-general")
    (gate,) = gpu.add(items("a"))
    assert queued(store, "gpu") == ["a"]
    assert not gate.is_open()


def test_pods_that_do_not_wait_any_more_are_not_routed(store):
    a_batcher(store, "general").add(items("a", "gone"))
    use_pool(store, "gpu", "g")
    show(store, "a")
    delete_pool(store, "general", "uid-general")
    assert queued(store, "gpu") == ["a"]


def test_deleting_the_last_pool_leaves_its_pods_to_a_resync(store):
    """They are in the view and nowhere else, so the next NodePool's resync adds them."""
    (gate,) = a_batcher(store, "general").add(items("a"))
    show(store, "a")
    assert delete_pool(store, "general", "uid-general").routed_to == ""
    assert gate.is_open()
    assert store.redis.hlen(store.keys.seen) == 0
    a_batcher(store, "gpu").add(items("a"))
    assert queued(store, "gpu") == ["a"]


def test_deletion_under_another_uid_changes_nothing(store):
    (gate,) = a_batcher(store, "general").add(items("a"))
    assert delete_pool(store, "general", "old") is None
    assert delete_pool(store, "unknown", "u") is None
    assert not gate.is_open()
    assert queued(store) == ["a"]


def test_deletion_opens_gates_of_batches_but_their_pods_still_count_as_queued(quick):
    """The batch goes on, since the solve sees every NodePool; its pods must not enter another window meanwhile."""
    batcher = a_batcher(quick, "general")
    (gate,) = batcher.add(items("a"))
    batch = batcher.wait(0)
    gpu = a_batcher(quick, "gpu")
    delete_pool(quick, "general", "uid-general")
    assert gate.is_open()
    (later,) = gpu.add(items("a"))
    assert queued(quick, "gpu") == []
    assert not later.is_open()
    assert closed_batches(quick) == [batch.id]
    flush_batch(quick, batch.id, "carried out")
    assert later.is_open()
    gpu.add(items("a"))
    assert queued(quick, "gpu") == ["a"]


def test_pool_created_anew_under_its_name_is_another_one(quick):
    (old,) = a_batcher(quick, "general", uid="u1").add(items("a"))
    assert use_pool(quick, "general", "u2")
    assert old.is_open()
    assert queued(quick) == ["a"]
    batch = close_window(quick, a_lock(quick), "general")
    assert quick.redis.hget(quick.keys.batch(batch.batch), "nodepool_uid") == "u2"


def test_replaced_pools_pods_go_to_the_first_in_order(store):
    a_batcher(store, "general", uid="u1").add(items("a"))
    use_pool(store, "gpu", "g")
    use_pool(store, "general", "u2", ["gpu", "general"])
    assert queued(store, "gpu") == ["a"]
    assert window(store) is None


def test_deletion_does_not_touch_batches_of_an_earlier_pool_of_that_name(quick):
    first = a_batcher(quick, "general", uid="u1")
    first.add(items("a"))
    batch = first.wait(0)
    use_pool(quick, "general", "u2")
    marked = quick.redis.hget(quick.keys.seen, "a")
    assert marked.endswith("!")
    delete_pool(quick, "general", "u2")
    assert quick.redis.hget(quick.keys.seen, "a") == marked
    assert first.flush(batch)


def test_window_of_a_pool_that_left_by_another_way_is_routed_when_it_falls_due(quick):
    """Somebody removed it from `nodepools` by hand."""
    (gate,) = a_batcher(quick, "general").add(items("a"))
    use_pool(quick, "gpu", "g")
    quick.redis.hdel(quick.keys.nodepools, "general")
    assert close_window(quick, a_lock(quick), "general") is None
    assert gate.is_open()
    assert queued(quick, "gpu") == ["a"]
