"""From a closed window to a recorded plan: one solve pass on a real server, split into its phases.

The view is written as the watcher writes it, the batch closed as a window worker closes it. The pass runs in this
process, so what a Celery message adds is not in it (see latency: closed → planned). Mixed: 40 sizes of pods; different:
no two pods alike, the worst case for a solver that groups them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from bench.figures import Figure, Run, Value, percentile
from bench.parts import SHAPES, redis_server
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeClaimTemplate, NodePool, NodePoolSpec, NodeSelectorRequirement, TemplateSpec
from wainwright.api.nodes import Node, NodeSpec, NodeStatus
from wainwright.api.pods import Container, Pod, PodSpec, PodStatus, Quantity, ResourceRequirements, Toleration
from wainwright.batching.batcher import Batcher, Item
from wainwright.batching.locks import SOLVE_LEASE_MS, Lock
from wainwright.batching.pools import use_pool
from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy
from wainwright.clock import SystemClock
from wainwright.cloud.simulated.memory import MemoryProvider
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.kube.view import KINDS_BY_NAME, Change, ViewWriter
from wainwright.provisioning.solving import SolvePass, SolvePolicy, SolveReport

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PENDING = PodStatus(
    phase="Pending",
    conditions=(
        Condition(
            type="PodScheduled",
            status="False",
            reason="Unschedulable",
            message="0/100 nodes are available: 100 Insufficient cpu. preemption: 0/100 nodes are available.",
            last_transition_time=NOW,
        ),
    ),
)
RUNNING = PodStatus(
    phase="Running",
    start_time=NOW,
    conditions=tuple(
        Condition(type=type_, status="True", last_transition_time=NOW)
        for type_ in ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    ),
)
TOLERATIONS = tuple(
    Toleration(key=f"node.kubernetes.io/{what}", operator="Exists", effect="NoExecute", toleration_seconds=300)
    for what in ("not-ready", "unreachable")
)
LARGEST_BATCH = 20_000


class Quiet:
    """Hints that nobody gets."""

    def window(self, shard: int) -> None: ...

    def solve(self) -> None: ...

    def launch(self, claim: str) -> None: ...

    def nominate(self, batch: str) -> None: ...


def measure(run: Run) -> Iterator[Figure]:
    sizes, cluster = ((500,), (100, 1000)) if run.quick else ((1000, 2000, 5000, 10_000), (1000, 10_000))
    main = 500 if run.quick else 2000
    with redis_server(run.folder) as url:
        for different in (False, True):
            for nodes, bound in ((0, 0), cluster):
                for size in sizes if nodes == 0 or different is False else (main,):
                    target = "p50 < 500" if size == 2000 else ""
                    rounds = 2 if run.quick or size > 2000 else 5
                    yield _figure(url, size, rounds, different=different, nodes=nodes, bound=bound, target=target)


def _figure(url: str, size: int, rounds: int, *, different: bool, nodes: int, bound: int, target: str) -> Figure:
    """Phases are of passes without improvement; `improving` is how much longer the solve takes with it."""
    kind = "different" if different else "mixed"
    beside = f" beside {nodes:,} nodes, {bound:,} pods" if nodes else ""
    world = World(url, nodes=nodes, bound=bound)
    try:
        first = world.solve(size, different=different)
        plain = [world.solve(size, different=different) for _ in range(rounds)]
        improved = [world.solve(size, different=different, improve=True) for _ in range(rounds)]
    finally:
        world.close()

    def phase(reports: list[SolveReport], name: str) -> float:
        return percentile([report.spent_ms[name] for report in reports], 0.5)

    totals = [sum(report.spent_ms.values()) for report in plain]
    values: dict[str, Value] = {"p50": percentile(totals, 0.5), "max": max(totals)}
    values["first"] = sum(first.spent_ms.values())
    values |= {name: phase(plain, name) for name in plain[0].spent_ms}
    values["improving"] = phase(improved, "solve") - phase(plain, "solve")
    values["claims"] = plain[-1].claims
    return Figure(name=f"{size:,} {kind}{beside}", values=values, unit="ms", target=target)


class World:
    """A store with a complete view: a NodePool, and `nodes` nodes with `bound` pods on them that leave no room."""

    def __init__(self, url: str, *, nodes: int, bound: int) -> None:
        policy = WindowPolicy(idle_ms=0, max_ms=0, max_items=LARGEST_BATCH)
        self.store = Store.connect(url, prefix=f"b{secrets.token_hex(4)}:", policy=policy)
        self._writer = ViewWriter(self.store, epoch="bench", fence=1, holder="bench")
        self._writer.begin()
        self._version = 1
        self._put("nodepools", [_node_pool()])
        self._put("nodeclaims", [_node_claim(n) for n in range(nodes)])
        self._put("nodes", [_node(n) for n in range(nodes)])
        self._put(
            "pods", [_pod(f"old-{n}", *_size(n, different=False), node=f"node-{n % nodes}") for n in range(bound)]
        )
        listed = [Change.listed(kind, "1", self._names(kind), ()) for kind in KINDS_BY_NAME]
        self._writer.apply(listed)
        self.store.redis.set(self.store.keys.adopted, "bench")
        self._writer.complete()
        use_pool(self.store, "general", "uid-general")
        self._batcher = Batcher(self.store, "general", "uid-general", shards=1)
        cloud = MemoryProvider(generated_catalog(), SystemClock())
        self._solvers = {
            improve: SolvePass(
                self.store,
                cloud,
                Quiet(),
                SolvePolicy() if improve else SolvePolicy(improvement_units=0),
                SystemClock(),
            )
            for improve in (False, True)
        }
        self._rounds = 0

    def solve(self, count: int, *, different: bool, improve: bool = False) -> SolveReport:
        """One pass over a batch of `count` new pods; then everything is as before."""
        self._rounds += 1
        pods = [_pod(f"new-{self._rounds}-{n}", *_size(n, different=different)) for n in range(count)]
        self._put("pods", pods)
        items = [Item(pod.uid, pod.key) for pod in pods]
        for first in range(0, count, 500):
            self._batcher.add(items[first : first + 500])
        batch = self._batcher.wait(5)
        assert batch is not None
        self._keep_alive()
        lock = Lock(self.store, "solve", SOLVE_LEASE_MS)
        assert lock.acquire()
        with lock.renewing() as renewal:
            report = self._solvers[improve].run(lock, renewal)
        lock.release()
        assert report.pods == count, report
        self._forget(pods)
        return report

    def close(self) -> None:
        self.store.redis.flushall()
        self.store.close()

    def _forget(self, pods: list[Pod]) -> None:
        """Pods and claims of a pass go."""
        for first in range(0, len(pods), 500):
            self._writer.apply([Change.delete("pods", pod.metadata) for pod in pods[first : first + 500]])
        redis, keys = self.store.redis, self.store.keys
        for claim in map(str, redis.zrange(keys.claims, 0, -1)):
            redis.delete(keys.claim(claim), keys.claim_pods(claim))
        redis.delete(keys.claims, keys.claims_due, keys.seen, keys.planned, keys.batches("planned"))

    def _put(self, kind: str, things: list[NodeClaim] | list[Node] | list[NodePool] | list[Pod]) -> None:
        for first in range(0, len(things), 250):
            self._writer.apply([Change.put(kind, thing) for thing in things[first : first + 250]])

    def _names(self, kind: str) -> list[str]:
        return [str(name) for name in self.store.redis.hkeys(self.store.keys.view(kind))]

    def _keep_alive(self) -> None:
        self._writer.apply([Change.progress(kind, "1") for kind in KINDS_BY_NAME])


def _size(n: int, *, different: bool) -> tuple[int, int]:
    if different:
        return 100 + n % 1999, 128 + n % 4001
    return SHAPES[n % len(SHAPES)]


def _meta(name: str, labels: dict[str, str], *, namespace: str = "") -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{name}",
        labels=labels,
        resource_version="5",
        creation_timestamp=NOW,
    )


def _pod(name: str, cpu: int, memory: int, *, node: str = "") -> Pod:
    """With the fields that a real one has, trimmed as in the view."""
    requests = ResourceRequirements(requests={"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
    containers = tuple(
        Container(name=part, image="registry.example/app:1", resources=use)
        for part, use in (("app", requests), ("proxy", ResourceRequirements()))
    )
    return Pod(
        metadata=_meta(name, {"app": "web", "pod-template-hash": "5d4f8c7b9"}, namespace="default"),
        spec=PodSpec(
            node_name=node,
            containers=containers,
            tolerations=TOLERATIONS,
            priority=0,
            preemption_policy="PreemptLowerPriority",
            termination_grace_period_seconds=30,
        ),
        status=RUNNING if node else PENDING,
    )


def _node_pool() -> NodePool:
    requirement = NodeSelectorRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand", "spot"))
    spec = NodePoolSpec(template=NodeClaimTemplate(spec=TemplateSpec(requirements=(requirement,))))
    return NodePool(metadata=_meta("general", {}), spec=spec)


def _labels() -> dict[str, str]:
    return {
        "karpenter.sh/nodepool": "general",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m8.large",
        "topology.kubernetes.io/zone": "simulated-1a",
    }


def _node_claim(n: int) -> NodeClaim:
    return msgspec.convert(
        {"metadata": msgspec.to_builtins(_meta(f"claim-{n}", _labels())), "status": {"nodeName": f"node-{n}"}},
        NodeClaim,
    )


def _node(n: int) -> Node:
    room: dict[str, Quantity] = {"cpu": "4", "memory": "6Gi", "pods": "10"}
    return Node(
        metadata=_meta(f"node-{n}", {**_labels(), "kubernetes.io/hostname": f"node-{n}"}),
        spec=NodeSpec(provider_id=f"simulated:///simulated-1a/i-{n}"),
        status=NodeStatus(
            capacity=room, allocatable=room, conditions=(Condition(type="Ready", status="True", reason="KubeletReady"),)
        ),
    )
