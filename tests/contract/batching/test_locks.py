from tests.contract.batching.conftest import lose
from wainwright.batching.locks import Lock


def test_one_of_two_gets_the_lock(store):
    first, second = Lock(store, "solve", 60_000), Lock(store, "solve", 60_000)
    assert first.acquire()
    assert second.acquire() is None
    assert second.fence is None


def test_fence_grows_with_every_holder_even_when_the_clock_goes_back(store):
    first = Lock(store, "solve", 60_000)
    fence = first.acquire()
    assert fence >= store.now_ms() - 60_000
    first.release()
    store.redis.set(store.keys.fence("solve"), fence + 10**9)  # given out by a server whose clock was ahead
    assert Lock(store, "solve", 60_000).acquire() == fence + 10**9 + 1


def test_lock_given_back_is_free(store):
    first = Lock(store, "solve", 60_000)
    first.acquire()
    first.release()
    assert first.fence is None
    assert Lock(store, "solve", 60_000).acquire()


def test_renewing_starts_the_lease_anew(store):
    lock = Lock(store, "solve", 60_000)
    lock.acquire()
    store.redis.pexpire(store.keys.lock("solve"), 5000)
    assert lock.renew()
    assert store.redis.pttl(store.keys.lock("solve")) > 5000


def test_lock_that_another_holds_now_is_neither_renewed_nor_given_back(store):
    old, new = Lock(store, "solve", 60_000), Lock(store, "solve", 60_000)
    old.acquire()
    lose(store, old)
    new.acquire()
    assert not old.renew()
    assert old.fence is None
    old.release()
    assert new.renew()


def test_lock_that_expired_is_not_renewed(store):
    """Somebody else may have had it in between."""
    lock = Lock(store, "solve", 60_000)
    lock.acquire()
    lose(store, lock)
    assert not lock.renew()
    assert not lock.keep()
    assert not store.redis.exists(store.keys.lock("solve"))


def test_lock_never_acquired_claims_a_fence_that_nobody_has(store):
    lock = Lock(store, "solve", 60_000)
    assert lock.claim == ("solve", lock.holder, 0)
    assert not lock.renew()


def test_locks_of_different_names_do_not_touch(store):
    assert Lock(store, "window:1", 60_000).acquire()
    assert Lock(store, "window:2", 60_000).acquire()


def test_lock_of_a_dead_holder_is_free_after_its_lease(store):
    dead, successor = Lock(store, "solve", 30), Lock(store, "solve", 60_000)
    fence = dead.acquire()
    while successor.acquire() is None:
        pass
    assert successor.fence > fence
    assert not dead.renew()
