"""What benchmarks are put together from: an embedded stack, a NodePool, pods as large as real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import Run
from config.settings import Settings
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import NODE_POOLS, PODS
from workers.children import Children
from workers.demo.observer import Observer, Seen
from workers.stack import Stack, StackOptions, child_environment, free_port, python

Manifest = dict[str, Any]

LABELS = {"bench": "wainwright"}
ROUND_LABEL = "bench.example/round"
"""NodePools allow any value of it, so that pods of one round get nodes of their own."""
SHAPES = tuple((100 * (1 + n % 8), 128 * (1 + n // 8)) for n in range(40))
"""Forty sizes of pods: milli-CPU and MiB."""
MOST_CREATES = 8


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The embedded stack's Redis-compatible server by itself; its URL."""
    from wainwright.batching.store import Store
    from wainwright.errors import StoreUnavailable

    port = free_port()
    children = Children(folder / "logs")
    command = python("workers.redis_server", "--port", str(port), "--data", str(folder / "redis"))
    children.start("redis", command, child_environment())
    url = f"redis://127.0.0.1:{port}/0"
    store = Store.connect(url)

    def answers() -> bool:
        try:
            return store.now_ms() > 0
        except StoreUnavailable:
            return False

    try:
        until(answers, 20, "Redis to answer", pause=0.02)
        yield url
    finally:
        store.close()
        children.stop()


@contextmanager
def running_stack(run: Run, settings: Settings | None = None, **options: int) -> Iterator[Stack]:
    """An embedded stack with a NodePool `general`. options: of StackOptions."""
    stack = Stack(settings or Settings(), StackOptions(folder=run.folder / "stack", **options))
    try:
        stack.start(lambda step: run.report(f"stack: {step}"))
        stack.kube.create(NODE_POOLS, node_pool())
        yield stack
    finally:
        stack.stop()


def until(is_so: Callable[[], bool], seconds: float, what: str, pause: float = 0.05) -> None:
    """Waits. Raises TimeoutError, naming what was waited for."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(pause)


def node_pool(name: str = "general") -> Manifest:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"]},
        {"key": "instance.wainwright.dev/family", "operator": "NotIn", "values": ["gpu"]},
        {"key": ROUND_LABEL, "operator": "Exists"},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def pod(name: str, shape: tuple[int, int], *, round_: str = "", padding: int = 0) -> Manifest:
    """shape: milli-CPU, MiB. padding: bytes of annotations and environment, as real pods have them."""
    cpu, memory = shape
    container: Manifest = {
        "name": "app",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}},
    }
    metadata: Manifest = {"name": name, "namespace": "default", "labels": {**LABELS, "app": name.rpartition("-")[0]}}
    if padding:
        half = padding // 2
        metadata["annotations"] = {"example.com/last-applied": "a" * half}
        container["env"] = [{"name": f"SETTING_{n}", "value": "v" * 80} for n in range(max(1, half // 120))]
    selector = {ROUND_LABEL: round_} if round_ else {}
    return {"metadata": metadata, "spec": {"containers": [container], "nodeSelector": selector}}


def create_pods(kube: KubeClient, manifests: Sequence[Manifest]) -> dict[str, float]:
    """Creates them as fast as one client does; by UID, when (monotonic seconds) the API server had it."""

    def create(manifest: Manifest) -> tuple[str, float]:
        stored = kube.create(PODS, manifest)
        return stored["metadata"]["uid"], time.monotonic()

    with ThreadPoolExecutor(MOST_CREATES) as pool:
        return dict(pool.map(create, manifests))


def wait_bound(observer: Observer, uids: Sequence[str], seconds: float) -> list[Seen]:
    """Until the observer has seen all of them bound. Raises TimeoutError."""

    def missing() -> int:
        seen = observer.pods
        return sum(1 for uid in uids if uid not in seen or seen[uid].bound_at is None)

    until(lambda: missing() == 0, seconds, f"{len(uids)} pods to be bound")
    return [observer.pods[uid] for uid in uids]
