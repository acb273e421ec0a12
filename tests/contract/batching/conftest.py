"""One body of tests over fakeredis and a real server: `make_store` builds clients that share their data."""

import fakeredis
import pytest

from tests.conftest import fake_store
from wainwright.batching.batcher import Batcher, Item
from wainwright.batching.locks import Lock
from wainwright.batching.pools import use_pool
from wainwright.batching.shards import lock_name, shard_of
from wainwright.batching.windows import WindowPolicy

AT_ONCE = WindowPolicy(idle_ms=0, max_ms=0)
"""A window that is due as soon as it is open: tests need not wait."""


@pytest.fixture(params=["fakeredis", "server"])
def make_store(request):
    if request.param == "fakeredis":
        server = fakeredis.FakeServer()
        return lambda policy=None: fake_store(policy, server)
    make_real_store = request.getfixturevalue("make_real_store")
    first = make_real_store()
    return lambda policy=None: make_real_store(policy, first.keys.prefix)


@pytest.fixture
def store(make_store):
    """With the default policy: windows stay open."""
    return make_store()


@pytest.fixture
def quick(make_store):
    """Windows are due at once; shares its data with `store`."""
    return make_store(AT_ONCE)


def items(*names):
    return [Item(name, f"default/{name}") for name in names]


def a_batcher(store, node_pool="general", uid=None, **options):
    """A Batcher whose NodePool is in use."""
    uid = uid or f"uid-{node_pool}"
    use_pool(store, node_pool, uid)
    return Batcher(store, node_pool, uid, **options)


def a_lock(store, node_pool="general", shards=8):
    """The lock of the NodePool's shard, acquired; the lease is long, tests end it by `lose`."""
    lock = Lock(store, lock_name(shard_of(node_pool, shards)), 60_000)
    assert lock.acquire()
    return lock


def lose(store, lock):
    """What happens when the lease runs out."""
    store.redis.delete(store.keys.lock(lock.name))


def show(store, *pods, complete=True):
    """A view with an epoch in which exactly these pods are pending."""
    store.redis.hset(store.keys.view_meta, mapping={"epoch": "e1", "complete": "1" if complete else "0"})
    store.redis.delete(store.keys.view_pending)
    for pod in pods:
        store.redis.hset(store.keys.view_pending, pod, f"default/{pod}")


def queued(store, node_pool="general"):
    return [fields.get("uid") for _, fields in store.redis.xrange(store.keys.pending(node_pool))]


def window(store, node_pool="general"):
    """The open window's numbers, or None."""
    held = store.redis.hgetall(store.keys.window(node_pool))
    return {name: int(held[name]) for name in ("opened_ms", "due_ms", "limit_ms", "items")} if held else None


def closed_batches(store):
    return store.redis.zrange(store.keys.batches("closed"), 0, -1)
