"""What the Batcher promises when Redis is emptied, restarted or away: needs a real server of its own."""

import threading

import pytest

from tests.contract.batching.conftest import AT_ONCE, a_batcher, items, queued
from wainwright.batching.batcher import flush_batch
from wainwright.batching.locks import Lock
from wainwright.batching.store import Store
from wainwright.errors import StoreUnavailable


class Waiter(threading.Thread):
    """Waits at a gate; `answer` is None until it answered."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate
        self.answer = None
        self.start()

    def run(self):
        self.answer = self.gate.wait(60)


@pytest.fixture
def connect(own_redis_server):
    stores = []

    def make(policy=None):
        stores.append(Store.connect(own_redis_server.url, policy=policy))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def wait_for_blocked_clients(store, count):
    while int(store.redis.info("clients")["blocked_clients"]) < count:
        pass


def test_emptied_redis_opens_gates_at_once_for_a_look_and_soon_for_waiters(connect):
    """Nothing is written after the FLUSHALL: the waiter finds out because it looks again every few seconds."""
    store = connect()
    batcher = a_batcher(store)
    looked, waited = batcher.add(items("a", "b"))
    waiter = Waiter(waited)
    wait_for_blocked_clients(store, 1)
    store.redis.flushall()
    assert looked.is_open()
    waiter.join(30)
    assert waiter.answer is True


def test_killed_and_restarted_redis_keeps_windows_and_waiters_wait_on(own_redis_server, connect):
    store = connect(AT_ONCE)
    batcher = a_batcher(store)
    (gate,) = batcher.add(items("a"))
    waiter = Waiter(gate)
    wait_for_blocked_clients(store, 1)
    own_redis_server.kill()
    with pytest.raises(StoreUnavailable):
        gate.is_open()
    own_redis_server.start()
    assert queued(store) == ["a"]
    batch = batcher.wait(0)
    assert waiter.answer is None
    flush_batch(store, batch.id, "carried out")
    waiter.join(30)
    assert waiter.answer is True


def test_waiting_ends_with_the_time_while_redis_is_away(own_redis_server, connect):
    (gate,) = a_batcher(connect()).add(items("a"))
    own_redis_server.kill()
    assert gate.wait(0.2) is False


def test_lock_of_an_unreachable_redis_is_given_back_without_an_error(own_redis_server, connect):
    lock = Lock(connect(), "solve", 60_000)
    lock.acquire()
    own_redis_server.kill()
    with pytest.raises(StoreUnavailable):
        lock.renew()
    lock.release()
    assert lock.fence is None


def test_fences_go_on_growing_after_redis_was_emptied(connect):
    store = connect()
    before = Lock(store, "solve", 60_000)
    fence = before.acquire()
    while store.now_ms() <= fence:
        pass
    store.redis.flushall()
    after = Lock(store, "solve", 60_000)
    assert after.acquire() > fence
    assert not before.renew()


def test_full_redis_is_unavailable_and_nothing_is_half_done(connect):
    store = connect()
    batcher = a_batcher(store)
    store.redis.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable):
        batcher.add(items("a"))
    store.redis.config_set("maxmemory", 0)
    assert queued(store) == []
    assert store.redis.hlen(store.keys.seen) == 0
    batcher.add(items("a"))
    assert queued(store) == ["a"]


def test_scripts_unknown_to_a_restarted_server_are_sent_again(connect):
    store = connect()
    batcher = a_batcher(store)
    store.redis.script_flush()
    batcher.add(items("a"))
    assert queued(store) == ["a"]
