"""How fast the Batcher is: `python -m bench.batching`. Starts a server and workers of its own; takes half a minute.

Figures: pods added per second (one and 500 a call), pods through closed windows per second, how late 100 windows close
on one worker, gate wake-up, and take-over after the holder of a shard was killed.
"""

import multiprocessing
import random
import signal
import statistics
import sys
import threading
import time
from contextlib import contextmanager

from tests.conftest import RedisServer
from wainwright.batching.batcher import Batcher, Item, flush_batch
from wainwright.batching.pools import use_pool
from wainwright.batching.shards import overdue, serve_shard, shard_of
from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy

SHARDS = 8


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values):
    return f"p50 {percentile(values, 0.5):.1f}, p99 {percentile(values, 0.99):.1f}, max {max(values):.1f}"


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


def takeover(url):
    """Seconds from kill -9 of a shard's holder to its window closed by a successor, which a sweep per second hints."""
    store = Store.connect(url, prefix="take:")
    pool = "general"
    shard = shard_of(pool, SHARDS)
    with a_worker(url, "take:", shards=[shard]) as holder:
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


def measure():
    """Yields name and figure, as text, in the order measured."""
    server = RedisServer().start()
    try:
        yield "pods added per second, one a call", f"{add_rate(server.url, 10_000, 1):,.0f}"
        yield "pods added per second, 500 a call", f"{add_rate(server.url, 100_000, 500):,.0f}"
        yield "pods per second through full windows", f"{throughput(server.url, 40_000):,.0f}"
        late, lengths = lateness(server.url, 100, 12)
        yield f"100 NodePools, {len(late)} windows: ms closed after the deadline", spread(late)
        yield "their lengths, ms", f"{spread(lengths)}, mean {statistics.mean(lengths):.0f}"
        yield "100 waiters in one process: ms from flush to awake", spread(wake_up(server.url, 100))
        yield "seconds from kill -9 of a shard's holder to its window closed", f"{takeover(server.url):.1f}"
    finally:
        server.remove()


def main():
    for name, figure in measure():
        print(f"{name}: {figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
