"""Scale: start-up, pods bound per second, whose CPU that was, and memory, up to 10,000 pods of 2.5 KB.

Pods are created by eight threads of this process as fast as the API server takes them. CPU seconds and memory are those
of each process of the stack with its children (/proc). API server, controllers, cloud and Redis are the embedded ones:
on a real cluster their share is elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import Figure, Run, Value
from bench.parts import SHAPES, create_pods, node_pool, pod, running_stack, until, wait_bound
from bench.processes import cpu_seconds, memory
from config.settings import Settings
from wainwright.kube.resources import NODE_POOLS
from workers.demo.observer import Observer
from workers.stack import Stack, StackOptions

PADDING = 600
"""Makes a pod 2.5 KB as the API server stores it."""
EMBEDDED = ("redis", "api-server", "cloud", "controllers")


STEPS = (("1,000", 1000), ("5,000 more", 5000), ("4,000 more", 4000))
QUICK_STEPS = (("200", 200), ("300 more", 300))


def measure(run: Run) -> Iterator[Figure]:
    yield from _start_up(run)
    steps = QUICK_STEPS if run.quick else STEPS
    with running_stack(run) as stack:
        processes = {child.name: child.pid for child in stack.children.all()}
        used = {"none": memory(processes)}
        rest = {"none": _at_rest(processes, 3 if run.quick else 10)}
        cpu: dict[str, dict[str, float]] = {}
        observer = Observer(stack.kube, "bench=wainwright")
        try:
            total = 0
            for name, count in steps:
                run.report(f"{name}: creating {count:,} pods")
                rates, cpu[name] = _burst(stack, observer, processes, f"n{total}", count)
                total += count
                used[f"{total:,}"] = memory(processes)
                yield Figure(name=name, values=rates, unit="1/s", table="pods a second")
            run.report("waiting until all of them run")
            until(lambda: observer.count()["running"] >= total, 60 + total / 20, "all pods to run", pause=0.5)
            used[f"{total:,}, running"] = memory(processes)
            rest[f"{total:,}, running"] = _at_rest(processes, 3 if run.quick else 10)
        finally:
            observer.stop()
        for process in next(iter(cpu.values())):
            values: dict[str, Value] = {name: spent[process] for name, spent in cpu.items()}
            yield Figure(name=process, values=values, unit="s", table="CPU seconds until all these pods were bound")
        for process in processes:
            still: dict[str, Value] = {pods: by[process] * 100 for pods, by in rest.items()}
            yield Figure(name=process, values=still, unit="% of a core", table="CPU at rest with so many pods")
        for process in processes:
            shown = {pods: f"{by[process].largest:.0f} / {by[process].shared:.0f}" for pods, by in used.items()}
            yield Figure(
                name=process,
                values={**shown},
                unit="MB",
                target="" if process in EMBEDDED else "< 300" if process.startswith("watcher") else "< 150",
                table="memory with so many pods in the cluster: RSS of the largest process / PSS of all",
            )
        yield _size_figure(stack)


def _at_rest(processes: dict[str, int], seconds: float) -> dict[str, float]:
    """Share of a core that each process uses while nothing changes."""
    before = cpu_seconds(processes)
    time.sleep(seconds)
    return {name: (after - before[name]) / seconds for name, after in cpu_seconds(processes).items()}


def _burst(
    stack: Stack, observer: Observer, processes: dict[str, int], name: str, count: int
) -> tuple[dict[str, Value], dict[str, float]]:
    """Rates of creating, marking and binding, and the CPU seconds of each process until all are bound."""
    before = cpu_seconds(processes)
    own = time.process_time()
    began = time.monotonic()
    manifests = [pod(f"{name}-{n}", SHAPES[n % 40], round_=name, padding=PADDING) for n in range(count)]
    created = create_pods(stack.kube, manifests)
    seen = wait_bound(observer, list(created), 60 + count / 10)
    after = cpu_seconds(processes)
    bound = max(one.bound_at or 0.0 for one in seen) - began
    marked = max(one.pending_at or one.bound_at or 0.0 for one in seen) - began
    rates: dict[str, Value] = {
        "created": count / (max(created.values()) - began),
        "marked": count / marked,
        "bound": count / bound,
        "all bound after (s)": bound,
    }
    cpu = {process: after[process] - before[process] for process in processes}
    cpu["this benchmark"] = time.process_time() - own
    cpu["all but embedded and benchmark, per 1,000 pods"] = (
        sum(cpu[process] for process in processes if process not in EMBEDDED) / count * 1000
    )
    return rates, cpu


def _size_figure(stack: Stack) -> Figure:
    """How large the pods were, as the API server gives them and as the view keeps them."""
    body = stack.kube.request("GET", "/api/v1/namespaces/default/pods/n0-0")
    kept = stack.store.read(lambda redis: redis.hget(stack.store.keys.view("pods"), "default/n0-0"))
    values: dict[str, Value] = {"API": len(body), "view": len(kept or "")}
    return Figure(name="one pod", values=values, unit="bytes", table="size of a pod")


def _start_up(run: Run) -> Iterator[Figure]:
    """Until every process shows life and the view is complete; then until a first pod is bound."""
    table = "start-up without (cold) and with (warm) compiled modules"
    values: dict[str, Value] = {}
    first: dict[str, Value] = {}
    with _bytecode_in(str(run.folder / "bytecode")):
        for what in ("cold", "warm"):
            run.report(f"start-up, {what}")
            began = time.monotonic()
            stack = Stack(Settings(), StackOptions(folder=run.folder / f"start-{what}"))
            try:
                stack.start(lambda _: None)
                values[what] = time.monotonic() - began
                stack.kube.create(NODE_POOLS, node_pool())
                observer = Observer(stack.kube, "bench=wainwright")
                wait_bound(observer, list(create_pods(stack.kube, [pod("first-0", SHAPES[0])])), 60)
                first[what] = time.monotonic() - began
                observer.stop()
            finally:
                stack.stop()
    yield Figure(name="ready", values=values, unit="s", target="< 10", table=table)
    yield Figure(name="first pod bound", values=first, unit="s", table=table)


@contextmanager
def _bytecode_in(folder: str) -> Iterator[None]:
    """Processes started meanwhile find no compiled modules but those that they leave in this folder."""
    before = os.environ.get("PYTHONPYCACHEPREFIX")
    os.environ["PYTHONPYCACHEPREFIX"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPYCACHEPREFIX"]
        else:
            os.environ["PYTHONPYCACHEPREFIX"] = before
