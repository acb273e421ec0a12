"""Pod autoscaling: decisions, full ticks, samples, scrapes, memory.

A server of its own; the cluster view is written by hand, so no cluster and no Celery.
"""

import asyncio
import json
import multiprocessing
import random
import time
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
from redis.connection import Connection

from bench.figures import Figure
from bench.parts import redis_server
from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.autoscaling.arrays import SpecArrays, StateArrays, decide_arrays
from wainwright.autoscaling.buckets import Aggregation, Buckets
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import DeciderState, decide
from wainwright.autoscaling.window_arrays import WindowArrays
from wainwright.autoscaling.windows import Windows
from wainwright.batching.store import Store
from wainwright.clock import SystemClock
from wainwright.podscaling.autoscalers import define
from wainwright.podscaling.collector import Collector
from wainwright.podscaling.connections import Connections
from wainwright.podscaling.deciding import ShardDecider
from wainwright.podscaling.inbox import Push, push, record, take_pushes
from wainwright.podscaling.reconciler import Reconciler
from wainwright.podscaling.samples import Sample
from wainwright.podscaling.sources.pods import PodAddress
from workers.process import tune_garbage_collector

SHARDS = 16
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
random_ = random.Random(7)


def seconds(work, *, least=0.4, rounds=3):
    """Seconds of one call, best of some rounds."""
    calls, best = 1, float("inf")
    for _ in range(rounds):
        while True:
            began = time.perf_counter()
            for _ in range(calls):
                work()
            took = time.perf_counter() - began
            if took >= least / rounds:
                break
            calls = max(calls + 1, int(calls * 1.2 * least / rounds / max(took, 1e-6)))
        best = min(best, took / calls)
    return best


# Decisions ------------------------------------------------------------------------------------------------------------


def a_spec(window, aggregation):
    one = define(an_object(0, window=f"{window}s"), AutoscalerConfig(), SHARDS)
    return msgspec.structs.replace(one.spec, aggregation=aggregation)


def windows_of(spec, count):
    """Full windows; of each kind a few, shared, since only their arrays are measured."""
    kinds = []
    for _ in range(min(count, 20)):
        values = tuple(random_.uniform(0, 200) for _ in range(spec.stable_window_s))
        both = [
            Buckets(
                length=length,
                aggregation=spec.aggregation,
                first_s=NOW_S - length,
                last_s=NOW_S,
                total=sum(values[-length:]),
                values=values[-length:],
            )
            for length in (spec.stable_window_s, spec.panic_window_s)
        ]
        kinds.append(Windows(metric=spec.metric, stable=both[0], panic=both[1]))
    return [kinds[number % len(kinds)] for number in range(count)]


def decisions(run):
    sizes = (1, 100, 1000) if run.quick else (1, 100, 10_000)
    for aggregation in (Aggregation.LINEAR, Aggregation.WEIGHTED_EXPONENTIAL):
        for window in (60, 3600):
            spec = a_spec(window, aggregation)
            state = DeciderState.start(spec, 1, NOW - timedelta(hours=1))
            one = windows_of(spec, 1)[0]
            values = {"scalar": 1e6 * seconds(lambda s=spec, st=state, w=one: decide(s, st, w, 5, NOW))}
            for count in sizes:
                windows = windows_of(spec, count)
                arrays = (
                    SpecArrays.of([spec] * count),
                    StateArrays.of([state] * count),
                    WindowArrays.of([w.stable for w in windows], [w.panic for w in windows]),
                    np.full(count, 5, dtype=np.int64),
                )
                values[f"{count:,} at once"] = 1e6 * seconds(lambda a=arrays: decide_arrays(*a, NOW)) / count
            bar = "0.3 µs" if (aggregation, window) == (Aggregation.LINEAR, 60) else ""
            bar = "5 µs" if (aggregation, window) == (Aggregation.WEIGHTED_EXPONENTIAL, 3600) else bar
            name = f"{aggregation}, {window} s"
            yield Figure(table="decision, per autoscaler", name=name, values=values, unit="µs", target=bar)


# Full ticks -----------------------------------------------------------------------------------------------------------


def an_object(number, *, window="60s"):
    annotations = {"autoscaling.knative.dev/target": "10", "autoscaling.knative.dev/window": window}
    name = f"web-{number:06d}"
    raw = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "generation": 1,
            "annotations": annotations,
            "creationTimestamp": "2026-03-01T12:00:00Z",
        },
        "spec": {"scaleTargetRef": {"name": name}, "metrics": [{"type": "redisList", "redisList": {"list": name}}]},
        "status": {
            "desiredScale": 5,
            "actualScale": 5,
            "observedGeneration": 1,
            "conditions": [
                {"type": type_, "status": "True", "reason": type_, "lastTransitionTime": "2026-03-01T12:00:00Z"}
                for type_ in ("Active", "ScaleTargetInitialized", "Ready")
            ],
        },
    }
    return msgspec.convert(raw, PodAutoscaler)


def a_deployment(number):
    name = f"web-{number:06d}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"d-{number}", "resourceVersion": "5"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": name}}},
        "status": {"replicas": 5, "readyReplicas": 5},
    }


def fill(store, count):
    """A view with so many PodAutoscalers and Deployments, and the configuration."""
    r = store.redis
    for first in range(0, count, 1000):
        numbers = range(first, min(count, first + 1000))
        r.hset(
            store.keys.view("podautoscalers"),
            mapping={(pa := an_object(number)).key: msgspec.json.encode(pa) for number in numbers},
        )
        r.hset(
            store.keys.view("deployments"),
            mapping={f"default/web-{number:06d}": json.dumps(a_deployment(number)) for number in numbers},
        )
    r.set(store.keys.kpa_config, json.dumps({"seen": "", "data": {}, "faults": []}))
    alive(store)


def alive(store):
    meta = {"epoch": "e1", "complete": "1", "rv:podautoscalers": "1", "progress:podautoscalers": store.now_ms()}
    store.redis.hset(store.keys.view_meta, mapping=meta)


def say(store, count, second):
    """What a collection of all of them leaves behind."""
    for first in range(0, count, 5000):
        samples = [
            Sample(f"default/web-{number:06d}", "redisList", second, float(random_.randrange(60)), "length")
            for number in range(first, min(count, first + 5000))
        ]
        record(store, samples, SHARDS)


@contextmanager
def counted():
    """Requests sent to Redis; a pipeline or a script is one."""
    real, trips = Connection.send_packed_command, []

    def send(self, *arguments, **options):
        trips.append(1)
        return real(self, *arguments, **options)

    Connection.send_packed_command = send
    try:
        yield trips
    finally:
        Connection.send_packed_command = real


def ticks(run, url):
    sizes = (1000,) if run.quick else (10_000, 50_000)
    for count in sizes:
        store = Store.connect(url, prefix=f"tick{count}:")
        fill(store, count)
        before = store.redis.info("memory")["used_memory"]
        decider = ShardDecider(store, SHARDS, no_others)
        reconciler = Reconciler(None, decider, None, None, None, Never())
        second = store.now_ms() // 1000
        for old in range(second - 60, second):
            say(store, count, old)
            if old % 20 == 0:
                for shard in range(SHARDS):
                    decider.decide(shard)
            alive(store)
        for shard in range(SHARDS):
            decider.decide(shard)
        size = (store.redis.info("memory")["used_memory"] - before) / count
        took, checks, calls = [], [], []
        for number in range(2 if run.quick else 5):
            for part in range(2):
                say(store, count, second + 2 * number + part)
            alive(store)
            with counted() as trips:
                began = time.perf_counter()
                passes = [decider.decide(shard) for shard in range(SHARDS)]
                took.append(time.perf_counter() - began)
            calls.append(len(trips))
            began = time.perf_counter()
            for one in passes:
                reconciler.carry_out(one)
            checks.append(time.perf_counter() - began)
        yield Figure(
            table="full tick: read windows and load, decide, write; 60 s windows, 16 shards",
            name=f"{count:,} autoscalers",
            values={"best": min(took), "worst": max(took), "reconcile check": min(checks)},
            unit="s",
            target="0.5 s" if count == 10_000 else "",
        )
        yield Figure(
            table="in Redis",
            name=f"{count:,} autoscalers, 60 s windows",
            values={"memory": size / 1024},
            unit="KiB each",
        )
        yield Figure(
            table="in Redis",
            name=f"{count:,} autoscalers",
            values={"round trips": calls[-1]},
            unit="a tick of all shards",
        )
        store.redis.flushall()
        store.close()


class Never(Executor):
    """Carries nothing out."""

    def submit(self, _fn, /, *_args, **_kwargs):
        return Future()


def no_others(_targets):
    """All targets are in the view."""
    return {}


# Samples --------------------------------------------------------------------------------------------------------------


def samples(run, url):
    count, store = 2000 if run.quick else 20_000, Store.connect(url, prefix="samples:")
    fill(store, 1000)
    decider = ShardDecider(store, SHARDS, no_others)
    one_second = [Sample(f"default/web-{n % 1000:06d}", "redisList", NOW_S + n // 1000, 3.5) for n in range(count)]
    took = seconds(lambda: record(store, one_second, SHARDS), least=1)
    table = "samples a second"
    yield Figure(table=table, name="recorded, 20,000 at once", values={"rate": count / took}, target="20,000")
    by_one = [Sample("default/web-000001", "redisList", NOW_S, 3.5)]
    yield Figure(
        table=table, name="recorded, one by one", values={"rate": 1 / seconds(lambda: record(store, by_one, SHARDS))}
    )
    raw = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"scaleTargetRef": {"name": "p"}, "metrics": [{"type": "push"}]},
    }
    store.redis.hset(store.keys.view("podautoscalers"), "default/p", json.dumps(raw))
    pushes = [Push(pa="default/p", value=3.0, reporter=f"r{n}") for n in range(count)]
    began = time.perf_counter()
    push(store, pushes)
    yield Figure(table=table, name="pushed", values={"rate": count / (time.perf_counter() - began)})
    roster, _ = decider.roster()
    began, taken = time.perf_counter(), 0
    while more := take_pushes(store, roster, SHARDS).taken:
        taken += more
    yield Figure(table=table, name="pushes taken over", values={"rate": taken / (time.perf_counter() - began)})
    store.redis.flushall()
    store.close()


# Scrapes --------------------------------------------------------------------------------------------------------------

PAGE = b"# TYPE busy gauge\n" + b"".join(b'other{n="%d"} 1\n' % n for n in range(50)) + b"busy 2\n"


def serve(ready):
    """Answers every request with a page of metrics; as cheap as can be, since it shares the machine."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)

    class Page(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(answer * data.count(b"\r\n\r\n"))

    async def main():
        server = await asyncio.get_running_loop().create_server(Page, "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def scrapes(run):
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    server = context.Process(target=serve, args=(ready,), daemon=True)
    server.start()
    port = ready.get(timeout=20)
    collector = Collector(Connections("redis://127.0.0.1:1/0", None), SystemClock())
    count = 20 if run.quick else 100
    autoscalers = []
    for number in range(count):
        pa = an_object(number)
        source = {"type": "pods", "pods": {"port": port, "metric": "busy"}}
        spec = msgspec.convert({"scaleTargetRef": {"name": pa.name}, "metrics": [source]}, type(pa.spec))
        autoscalers.append(define(msgspec.structs.replace(pa, spec=spec), AutoscalerConfig(), SHARDS))
    pods = {one.key: [PodAddress(f"p{n}", "127.0.0.1", None) for n in range(50)] for one in autoscalers}
    asked, wall, cpu = 12 * count, [], []
    for _ in range(2 if run.quick else 5):
        began, began_cpu = time.perf_counter(), time.process_time()
        found = collector.collect(autoscalers, pods, SystemClock().now(), seconds=10)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
        assert [sample.value for sample in found] == [100.0] * count, found[:3]
    collector.close()
    server.kill()
    yield Figure(
        table="pods scraped over HTTP a second",
        name=f"{count} autoscalers of 50 pods",
        values={"by the clock": asked / min(wall), "per core": asked / min(cpu)},
        target="1,000",
    )


def measure(run):
    tune_garbage_collector()
    yield from decisions(run)
    with redis_server(run.folder) as url:
        yield from ticks(run, url)
        yield from samples(run, url)
    yield from scrapes(run)
