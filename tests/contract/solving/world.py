"""A small world for solve passes: a store with a view in it, NodePools in use, batches closed, a cloud in memory."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodepools import NodeClaimTemplate, NodePool, NodePoolSpec, NodeSelectorRequirement, TemplateSpec
from wainwright.api.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from wainwright.batching.locks import SOLVE_LEASE_MS, Lock
from wainwright.clock import SystemClock
from wainwright.cloud.simulated.memory import MemoryProvider
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.provisioning.solving import SolvePass, SolvePolicy

EPOCH = "epoch-1"
UNSCHEDULABLE = PodStatus(
    phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),)
)


def a_pod(name, *, cpu="500m", memory="256Mi", node="", uid=None, **spec):
    status = PodStatus(phase="Running") if node else UNSCHEDULABLE
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}",
            resource_version="5",
            creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        spec=PodSpec(
            node_name=node,
            containers=(Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory})),),
            **spec,
        ),
        status=status,
    )


def a_node_pool(name="general", *, uid=None, limits=None, weight=None):
    requirement = NodeSelectorRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",))
    return NodePool(
        metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version="3"),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(spec=TemplateSpec(requirements=(requirement,))),
            limits=limits or {},
            weight=weight,
        ),
    )


class RecordedHints:
    """Remembers what was hinted."""

    def __init__(self):
        self.launched, self.nominated, self.windows, self.solves = [], [], [], 0

    def window(self, shard):
        self.windows.append(shard)

    def solve(self):
        self.solves += 1

    def launch(self, claim):
        self.launched.append(claim)

    def nominate(self, batch):
        self.nominated.append(batch)


class World:
    def __init__(self, store, pools=None):
        self.store = store
        self.redis = store.redis
        self.keys = store.keys
        self.hints = RecordedHints()
        self.cloud = MemoryProvider(generated_catalog(), SystemClock())
        self.solver = SolvePass(store, self.cloud, self.hints, SolvePolicy(), SystemClock())
        self.redis.hset(self.keys.view_meta, mapping={"epoch": EPOCH, "complete": "1", "version": "1"})
        self.put("namespaces", msgspec.json.decode(b'{"metadata":{"name":"default"}}'), "default")
        self.use(*(pools or [a_node_pool()]))

    def put(self, kind, thing, key=None):
        self.redis.hset(self.keys.view(kind), key or thing.metadata.key, msgspec.json.encode(thing))
        self.redis.hset(self.keys.view_meta, f"progress:{kind}", self.store.now_ms())
        if isinstance(thing, Pod):
            if thing.is_provisionable:
                self.redis.hset(self.keys.view_pending, thing.uid, thing.key)
            else:
                self.redis.hdel(self.keys.view_pending, thing.uid)

    def use(self, *pools):
        for pool in pools:
            self.put("nodepools", pool)
            self.redis.hset(self.keys.nodepools, pool.name, pool.metadata.uid)

    def gone(self, pod):
        self.redis.hdel(self.keys.view("pods"), pod.key)
        self.redis.hdel(self.keys.view_pending, pod.uid)

    def closed_batch(self, *pods, pool="general", name="batch-1", kind="fresh", in_view=True):
        """A batch as the close script leaves it; the pods' entries are in `seen`."""
        items = []
        for number, pod in enumerate(pods):
            if in_view:
                self.put("pods", pod)
            entry = f"{1000 + number}-0"
            self.redis.hset(self.keys.seen, pod.uid, f"{pool}/{entry}")
            items.append([pod.uid, pod.key, entry])
        fields = {
            "state": "closed",
            "kind": kind,
            "nodepool": pool,
            "items": msgspec.json.encode(items),
            "size": len(items),
            "deaths": 0,
        }
        self.redis.hset(self.keys.batch(name), mapping=fields)
        closed = self.redis.zcard(self.keys.batches("closed"))
        self.redis.zadd(self.keys.batches("closed"), {name: closed + (10**6 if kind == "retry" else 0)})
        return name

    def lock(self):
        lock = Lock(self.store, "solve", SOLVE_LEASE_MS)
        assert lock.acquire()
        return lock

    def solve(self):
        lock = self.lock()
        try:
            with lock.renewing() as renewal:
                return self.solver.run(lock, renewal)
        finally:
            lock.release()

    def plan(self, report):
        return self.redis.hgetall(self.keys.plan(report.plan))
