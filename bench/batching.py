"""The Batcher by itself: adding, closing windows on time, waking waiters, takeover of a shard.

A server and workers of its own; no cluster, no Celery.
"""

import multiprocessing
import random
import signal
import threading
import time
from contextlib import contextmanager

from bench.figures import Figure, spread
from bench.parts import redis_server
from wainwright.batching.batcher import Batcher, Item, flush_batch
from wainwright.batching.pools import use_pool
from wainwright.batching.shards import overdue, serve_shard, shard_of
from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy

SHARDS = 8


def pods(first, count):
    return [Item(f"{n:08d}-0000-4000-8000-000000000000", f"default/web-{n:08d}") for n in range(first, first + count)]


def a_batcher(store, pool, **options):
    use_pool(store, pool, f"uid-{pool}")
    return Batcher(store, pool, f"uid-{pool}", shards=SHARDS, **options)


def add_rate(url, count, per_call):
    store = Store.connect(url, prefix=f"add{per_call}:")
    batcher, todo = a_batcher(store, "general"), pods(0, count)
    started = time.perf_counter()
    for first in range(0, count, per_call):
        batcher.add(todo[first : first + per_call])
    rate = count / (time.perf_counter() - started)
    store.close()
    return rate


def worker(url, prefix, policy, shards):
    """A window worker: a thread for each shard of `shards`, serving it again and again."""
    store, stop = Store.connect(url, prefix=prefix, policy=policy), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def serve(shard):
        while not stop.is_set():
            if not serve_shard(store, shard, SHARDS, stop=stop, on_closed=lambda _: None).held:
                stop.wait(1)

    threads = [threading.Thread(target=serve, args=(shard,)) for shard in shards]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stop.wait(0.2)
    for thread in threads:
        thread.join()


@contextmanager
def a_worker(url, prefix, policy=None, shards=range(SHARDS)):
    process = multiprocessing.get_context("spawn").Process(target=worker, args=(url, prefix, policy, list(shards)))
    process.start()
    store = Store.connect(url, prefix=prefix)
    while not all(store.redis.exists(store.keys.lock(f"window:{shard}")) for shard in shards):
        time.sleep(0.01)
    store.close()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


def records(store):
    names = store.redis.zrange(store.keys.batches("closed"), 0, -1)
    return [store.redis.hgetall(store.keys.batch(name)) for name in names]


def pods_in(held):
    return sum(int(record["size"]) for record in held)


def throughput(url, count):
    """Pods per second from the first add to the last full window closed."""
    store = Store.connect(url, prefix="through:")
    with a_worker(url, "through:"):
        batcher = a_batcher(store, "general")
        started = time.perf_counter()
        batcher.add(pods(0, count))
        while pods_in(records(store)) < count:
            time.sleep(0.005)
        rate = count / (time.perf_counter() - started)
    store.close()
    return rate


def lateness(url, pools, seconds):
    """Closes of `pools` windows on one worker, ms after their deadline; pods trickle in at random all the time."""
    store, rng = Store.connect(url, prefix="late:"), random.Random(1)
    with a_worker(url, "late:"):
        batchers = [a_batcher(store, f"pool-{n}") for n in range(pools)]
        number, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            rng.choice(batchers).add(pods(number, 1))
            number += 1
            time.sleep(rng.expovariate(1.5 * pools))
        while pods_in(held := records(store)) < number:
            time.sleep(0.05)
    store.close()
    late = [int(record["closed_ms"]) - int(record["due_ms"]) for record in held]
    return late, [int(record["window_ms"]) for record in held]


def wake_up(url, waiters):
    """Milliseconds from flush to each of `waiters` threads, each at a gate of its own."""
    store = Store.connect(url, prefix="gate:", policy=WindowPolicy(idle_ms=0, max_ms=0))
    batcher = a_batcher(store, "general")
    gates = batcher.add(pods(0, waiters))
    batch, woken = batcher.wait(0), []

    def wait(gate):
        if gate.wait(30):
            woken.append(time.perf_counter())

    threads = [threading.Thread(target=wait, args=(gate,)) for gate in gates]
    for thread in threads:
        thread.start()
    time.sleep(1)
    flushed = time.perf_counter()
    flush_batch(store, batch.id, "bench")
    for thread in threads:
        thread.join()
    store.close()
    return [(at - flushed) * 1000 for at in woken]


def takeover(url, number):
    """Seconds from kill -9 of a shard's holder to its window closed by a successor, which a sweep per second hints."""
    store = Store.connect(url, prefix=f"take{number}:")
    pool = "general"
    shard = shard_of(pool, SHARDS)
    with a_worker(url, f"take{number}:", shards=[shard]) as holder:
        a_batcher(store, pool).add(pods(0, 10))
        holder.kill()
        killed, stop = time.perf_counter(), threading.Event()
        while not records(store):
            if shard in overdue(store, SHARDS):
                serve_shard(store, shard, SHARDS, stop=stop, on_closed=lambda _: stop.set())
            else:
                time.sleep(1)
        took = time.perf_counter() - killed
    store.close()
    return took


def measure(run):
    few = run.quick
    with redis_server(run.folder) as url:
        rates = {"1 a call": add_rate(url, 1000 if few else 10_000, 1)}
        rates["500 a call"] = add_rate(url, 10_000 if few else 100_000, 500)
        yield Figure(name="pods added by one process", values=rates, unit="1/s", table="throughput")
        rate = throughput(url, 6000 if few else 40_000)
        yield Figure(name="pods through full windows", values={"": rate}, unit="1/s", table="throughput")
        pools = 20 if few else 100
        late, lengths = lateness(url, pools, 4 if few else 20)
        name = f"{pools} windows open: closed after the deadline"
        yield Figure(name=name, values=spread(late), unit="ms", target="p99 < 100", table="times")
        yield Figure(name="their lengths", values=spread(lengths), unit="ms", table="times")
        woken = wake_up(url, 100)
        yield Figure(name="100 waiters: flush to awake", values=spread(woken), unit="ms", table="times")
        took = [takeover(url, number) * 1000 for number in range(1 if few else 5)]
        name = "kill -9 of a shard's holder to its window closed"
        yield Figure(name=name, values=spread(took), unit="ms", target="< 5,000", table="times")
