"""The whole system but for processes: pods, a cloud, Redis and Kubernetes in memory, under one clock.

Everything of ours is real (batcher, solve pass, launcher, upkeep, garbage collection, view); played are the API server,
the kubelets, kube-scheduler, and the watcher's way of noticing things.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.conftest import fake_store
from tests.unit.provisioning.fakes import FakeClock, FakeKube, NoKeeper, RecordedEvents
from wainwright.api import names
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node
from wainwright.api.pods import Pod
from wainwright.batching.batcher import Batcher, Item
from wainwright.batching.claims import ClaimRecords
from wainwright.batching.locks import SOLVE_LEASE_MS, WINDOW_LEASE_MS, Lock
from wainwright.batching.pools import use_pool
from wainwright.batching.retries import take_due
from wainwright.batching.shards import close_window, lock_name, open_windows, shard_of
from wainwright.cloud.simulated.memory import MemoryProvider
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from wainwright.kube.view import KINDS, Change, ViewWriter
from wainwright.provisioning.assembly import assemble
from wainwright.provisioning.binding import OneByOne
from wainwright.provisioning.objects import adoptions, pods_of
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.solving import SolvePass, SolvePolicy

SHARDS = 1
CLUSTER = "test"
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}
CATALOG = generated_catalog()


def on_fake_time(monkeypatch, clock):
    """The fake Redis server's clock is `clock` from now on."""
    for module in [m for name, m in sys.modules.items() if name.startswith("fakeredis")]:
        held = getattr(module, "time", None)
        if held is time or isinstance(held, FakeClock):
            monkeypatch.setattr(module, "time", clock)


class Hints:
    """Hints that somebody has yet to act on."""

    def __init__(self):
        self.claims, self.batches, self.solves = [], [], 0

    def window(self, shard):
        pass

    def solve(self):
        self.solves += 1

    def launch(self, claim):
        if claim not in self.claims:
            self.claims.append(claim)

    def nominate(self, batch):
        if batch not in self.batches:
            self.batches.append(batch)


class CountingCloud(MemoryProvider):
    """Looks after each launch whether two live instances serve one pod."""

    def __init__(self, clock, kube):
        super().__init__(CATALOG, clock, boot_seconds=2.0)
        self.kube = kube
        self.doubles = []
        self.claims = {}
        """Pods by claim, also of claims that are gone."""
        self.lost_answers = 0
        """So many launches are carried out without an answer."""

    def create(self, request):
        from wainwright.cloud.errors import CloudUnavailable

        instance = super().create(request)
        self.look()
        if self.lost_answers:
            self.lost_answers -= 1
            raise CloudUnavailable("no answer was received")
        return instance

    def look(self):
        self.claims |= {c.name: pods_of(c) for c in self.kube.typed(NODE_CLAIMS, NodeClaim)}
        live = [i for i in self.list(CLUSTER) if i.state.is_live]
        serving = Counter(pod.uid for i in live for pod in self.claims.get(i.node_claim, ()))
        self.doubles += [f"pod {uid} has {count} instances" for uid, count in serving.items() if count > 1]


class World:
    """pods(...) makes pods, settle() lets everything run until nothing moves."""

    def __init__(self, monkeypatch, *, policy=None):
        self.clock = FakeClock()
        self.store = fake_store()
        on_fake_time(monkeypatch, self.clock)
        self.kube = FakeKube(self.clock)
        self.cloud = CountingCloud(self.clock, self.kube)
        self.events = RecordedEvents()
        self.hints = Hints()
        self.policy = policy or LaunchPolicy()
        self.epochs = 0
        self.writer = None
        self.keeps_pods = False
        self.wanted = ()
        self.parts = self.assemble()
        self.solver = SolvePass(self.store, self.cloud, self.hints, SolvePolicy(seconds=1e9), self.clock)

    @property
    def redis(self):
        return self.store.redis

    def assemble(self, *, kube=None, cloud=None, store=None, worker="w"):
        store = store or self.store
        return assemble(
            store,
            kube or self.kube,
            cloud or self.cloud,
            self.events,
            self.hints,
            OneByOne(),
            self.clock,
            policy=self.policy,
            cluster=CLUSTER,
            keeper=NoKeeper(),
            records=ClaimRecords(store, worker=worker),
        )

    # what users do

    def node_pool(self, name="general", **template):
        spec = {
            "requirements": [{"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": ["on-demand"]}],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            **template,
        }
        self.kube.create(NODE_POOLS, {"metadata": {"name": name}, "spec": {"template": {"spec": spec}}})

    def pods(self, *pod_names, cpu="500m", memory="256Mi", **spec):
        for name in pod_names:
            self.kube.create(
                PODS,
                {
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                        **spec,
                    },
                    "status": UNSCHEDULABLE,
                },
            )

    def deployment(self, *pod_names):
        """Pods that are made anew under another UID when they go, as a ReplicaSet does."""
        self.wanted = pod_names

    def flush_all(self):
        self.redis.flushall()

    # the watcher

    def sync(self):
        """The watcher until it has seen everything: a new epoch where Redis came back empty, then the lists."""
        held = self.redis.hget(self.store.keys.view_meta, "epoch")
        is_new = self.writer is None or held != self.writer.epoch
        if is_new:
            self.epochs += 1
            self.writer = ViewWriter(self.store, epoch=f"epoch-{self.epochs}", fence=self.epochs, holder="watcher")
            self.writer.begin()
            claims = self.kube.typed(NODE_CLAIMS, NodeClaim)
            self.parts.records.adopt(
                adoptions(claims),
                epoch=self.writer.epoch,
                fence=str(self.writer.fence),
                request_ms=self.policy.request_ms,
            )
        if is_new or self.kube.changed:
            self.kube.changed = False
            self._list()
        else:
            self.writer.apply([Change.progress(kind.name, str(next(self.kube.versions))) for kind in KINDS])

    def _list(self):
        for pool in self.kube.of(NODE_POOLS).values():
            use_pool(self.store, pool["metadata"]["name"], pool["metadata"]["uid"])
        changes = []
        for kind in KINDS:
            things = self.kube.typed(kind.resource, kind.as_type)
            changes += [Change.put(kind.name, thing) for thing in things]
            unbound = [t.metadata.uid for t in things if isinstance(t, Pod) and not t.is_bound]
            keys = [t.metadata.key for t in things]
            changes.append(Change.listed(kind.name, str(next(self.kube.versions)), keys, unbound))
        self.cloud.look()
        self.writer.apply(changes)
        assert self.writer.complete()

    def route(self):
        """Adds every pod that nobody works on."""
        missing = self.writer.missing()
        if missing:
            pool = min(self.kube.of(NODE_POOLS), default=None)
            if pool:
                uid = self.kube.of(NODE_POOLS)[pool]["metadata"]["uid"]
                batcher = Batcher(self.store, pool, uid, shards=SHARDS, epoch=self.writer.epoch)
                batcher.add([Item(uid=pod, pod=key) for pod, key in missing])

    # what workers do

    def close_windows(self):
        windows = open_windows(self.store)
        due = [pool for pool, at in windows.due_ms.items() if at <= windows.now_ms]
        if due:
            lock = Lock(self.store, lock_name(shard_of(due[0], SHARDS)), WINDOW_LEASE_MS, clock=self.clock)
            assert lock.acquire()
            for pool in due:
                close_window(self.store, lock, pool)
            lock.release()

    def solve(self):
        if not self.redis.zcard(self.store.keys.batches("closed")):
            return
        lock = Lock(self.store, "solve", SOLVE_LEASE_MS, clock=self.clock)
        if lock.acquire():
            self.solver.run(lock, NeverLost())
            lock.release()

    def launch_hinted(self):
        claims, self.hints.claims = self.hints.claims, []
        for claim in claims:
            self.parts.launcher.launch(claim)
        batches, self.hints.batches = self.hints.batches, []
        for batch in batches:
            self.parts.nominator.nominate(batch)

    def planned(self):
        """Brings what is pending so far that its claims are recorded; their names."""
        self.sync()
        self.route()
        self.clock.advance(1.1)
        self.close_windows()
        self.solve()
        return list(self.hints.claims)

    # what the cluster does by itself

    def kubelets(self):
        live = {i.provider_id: i for i in self.cloud.list(CLUSTER) if i.state.is_live}
        for node in self.kube.of(NODES).values():
            instance = live.get(node["spec"].get("providerID"))
            if instance is None or instance.boots_at > self.clock.now() or _is_ready(node):
                continue
            self.kube.change(
                NODES,
                node["metadata"]["name"],
                status={
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "capacity": {k: _quantity(k, v) for k, v in instance.capacity.items()},
                    "allocatable": {k: _quantity(k, v) for k, v in instance.allocatable.items()},
                },
            )
        for name, pod in self.kube.of(PODS).items():
            on = pod["spec"].get("nodeName")
            if on and pod["metadata"].get("deletionTimestamp") and not self.keeps_pods:
                self.kube.remove(PODS, name, pod["metadata"]["namespace"])
        self.pods(*(name for name in self.wanted if name not in self.kube.of(PODS)))

    def kube_scheduler(self):
        """Binds what was nominated, once the node is open."""
        nodes = {n.metadata.name: n for n in self.kube.typed(NODES, Node)}
        for uid, target in self.redis.hgetall(self.store.keys.planned).items():
            if self.redis.zscore(self.store.keys.nominated, uid) is None:
                continue
            kind, _, name = target.split(" ")[0].partition("/")
            if kind == "claim":
                name = self.redis.hget(self.store.keys.claim(name), "node") or ""
            node = nodes.get(name)
            pod = next((p for p in self.kube.of(PODS).values() if p["metadata"]["uid"] == uid), None)
            is_open = node is not None and node.is_ready and not node.spec.taints
            if is_open and pod and not pod["spec"].get("nodeName"):
                self.kube.bind("default", pod["metadata"]["name"], uid, name)

    # time

    def tick(self, seconds=1.0):
        self.clock.advance(seconds)
        self.kubelets()
        self.kube_scheduler()
        self.sync()
        self.route()
        take_due(self.store)
        self.close_windows()
        self.solve()
        self.parts.upkeep.sweep(SHARDS)
        self.launch_hinted()
        self.parts.upkeep.lifecycle()

    def settle(self, *, ticks=100):
        """Lets time pass until everything is as it should be and stays so; the checks say what is wrong else."""
        for number in range(ticks):
            self.tick(1.0 if number < 10 else 2.5)
            if number % 10 == 9:
                self.parts.garbage.collect()
            if not self.faults():
                return number
        raise AssertionError("; ".join(self.faults()))

    def faults(self):
        """Everything that must not be when nothing moves any more."""
        live = {i.provider_id: i for i in self.cloud.list(CLUSTER) if i.state.is_live}
        claims = {c.name: c for c in self.kube.typed(NODE_CLAIMS, NodeClaim)}
        nodes = {n.metadata.name: n for n in self.kube.typed(NODES, Node)}
        found = list(self.cloud.doubles)
        found += [f"pod {name} is missing" for name in self.wanted if name not in self.kube.of(PODS)]
        for pod in self.kube.typed(PODS, Pod):
            node = nodes.get(pod.spec.node_name)
            if not pod.is_bound:
                found.append(f"{pod.key} is pending")
            elif node is None or node.spec.provider_id not in live:
                found.append(f"{pod.key} is on {pod.spec.node_name}, which is dead")
        for instance in live.values():
            if instance.node_claim not in claims:
                found.append(f"{instance.id} has no claim")
        for claim in claims.values():
            if claim.status.provider_id not in live:
                found.append(f"claim {claim.name} has no instance")
            if not any(c.type == "Ready" and c.status == "True" for c in claim.status.conditions):
                found.append(f"claim {claim.name} is not ready")
        found += [f"node {n} has no claim" for n, node in nodes.items() if node.spec.provider_id not in live]
        keys = self.store.keys
        for record in self.parts.records.survey():
            if record.state != "done":
                found.append(f"record {record.name} is {record.state}")
        found += [f"{key} is left" for key in ("seen", "planned") if self.redis.hlen(getattr(keys, key))]
        found += [f"{state} batches" for state in ("closed", "planned") if self.redis.zcard(keys.batches(state))]
        found += ["claims are due"] if self.redis.zcard(keys.claims_due) else []
        return found

    def launches(self):
        return self.cloud.record().launches


class NeverLost:
    """A lease renewal that needs no thread: the clock stands while a solve runs."""

    lost = False


def _is_ready(node):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))


def _quantity(name, amount):
    return f"{amount}m" if name == "cpu" else str(amount)
