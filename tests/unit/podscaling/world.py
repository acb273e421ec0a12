"""Pod autoscaling in memory: PodAutoscalers, targets and the view under one clock; everything of ours is real."""

from __future__ import annotations

import json
from concurrent.futures import Executor, Future
from datetime import timedelta

import msgspec

from tests.conftest import fake_store
from tests.unit.provisioning.fakes import FakeClock, FakeKube, RecordedEvents, _merged
from tests.unit.provisioning.world import on_fake_time
from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.api.pods import Pod
from wainwright.api.workloads import Workload
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.kube.resources import CONFIG_MAPS, DEPLOYMENTS, POD_AUTOSCALERS, PODS, STATEFUL_SETS, Resource
from wainwright.podscaling.assembly import PodScaling, ScalingOptions
from wainwright.podscaling.inbox import Push, push, record
from wainwright.podscaling.records import decode_record
from wainwright.podscaling.samples import Sample

QUEUE = {"type": "redisList", "redisList": {"list": "jobs"}}
PUSH = {"type": "push"}
PREFIX = "autoscaling.knative.dev/"
PLAIN = {"target": "10", "target-utilization-percentage": "100"}
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True)

KINDS = ((DEPLOYMENTS, Workload), (STATEFUL_SETS, Workload), (POD_AUTOSCALERS, PodAutoscaler), (PODS, Pod))


class Inline(Executor):
    """Does everything at once."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Kube(FakeKube):
    """With Scales. refuse: error to answer writes of a Scale with; vanish: error for every call."""

    def __init__(self, clock):
        super().__init__(clock)
        self.refuse = None
        self.scaled = []

    def request(self, method, path, **_):
        assert (method, path.rsplit("/", 1)[1]) == ("GET", "scale")
        *_, namespace, plural, name, _scale = path.split("/")
        held = next((o for (p, key), o in self.objects.items() if (p, key) == (plural, f"{namespace}/{name}")), None)
        if held is None:
            raise NotFound(path, status=404)
        selector = held["spec"].get("selector", {}).get("matchLabels", {})
        return json.dumps(
            {
                "metadata": {k: held["metadata"][k] for k in ("name", "namespace", "uid", "resourceVersion")},
                "spec": {"replicas": held["spec"].get("replicas", 1)},
                "status": {"selector": ",".join(f"{k}={v}" for k, v in selector.items())},
            }
        ).encode()

    def update(self, resource, body, subresource=""):
        assert subresource == "scale"
        meta = body["metadata"]
        held = self._stored(resource, meta["name"], meta["namespace"])
        if self.refuse is not None:
            raise self.refuse
        if held["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict("changed", status=409)
        held["spec"]["replicas"] = body["spec"]["replicas"]
        self.scaled.append((meta["name"], body["spec"]["replicas"]))
        return self._store(self._key(resource, meta["name"], meta["namespace"]), held)

    def merge_patch(self, resource, name, body, namespace="", subresource=""):
        self.calls.append(("patch", resource.plural, name))
        held = self._stored(resource, name, namespace)
        version = body.get("metadata", {}).get("resourceVersion")
        if version and version != held["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        body = json.loads(msgspec.json.encode(body))
        body.get("metadata", {}).pop("resourceVersion", None)
        return self._store(self._key(resource, name, namespace), _merged(held, body))

    def list(self, resource, as_type, *, namespace="", label_selector="", field_selector=""):
        found, version = super().list(resource, as_type, field_selector=field_selector)
        wanted = dict(part.split("=") for part in label_selector.split(",") if part)
        return [o for o in found if wanted.items() <= o.metadata.labels.items()], version

    def discover(self, group, kind):
        return WIDGETS if (group, kind) == ("example.com", "Widget") else None


class NoCollector:
    """Reads nothing: tests say what sources said. loads: what pods have to do."""

    def __init__(self):
        self.loads = {}

    def pod_loads(self, one, pods):
        return dict(self.loads)


class World:
    def __init__(self, monkeypatch, *, shards=1, store=None):
        self.clock = FakeClock()
        on_fake_time(monkeypatch, self.clock)
        self.store = store or fake_store()
        self.keys = self.store.keys
        self.kube = Kube(self.clock)
        self.events = RecordedEvents()
        self.collector = NoCollector()
        self.shards = shards
        self.lag = {}
        """Ready pods of a Deployment, where they are not its replicas."""
        self.start_process()
        self.view()

    def start_process(self):
        """A process begins anew: nothing is left of what the old one had in memory."""
        self.scaling = PodScaling(
            self.store,
            self.kube,
            self.events,
            self.clock,
            self.collector,
            ScalingOptions(shards=self.shards, namespace="kube-system"),
            writers=Inline(),
            askers=Inline(),
        )

    # What users do

    def deployment(self, name="web", replicas=1, *, resource=DEPLOYMENTS):
        body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
            "status": {},
        }
        self.kube.create(resource, body)

    def autoscaler(self, name="web", target=None, *, metrics=(QUEUE,), kind="Deployment", api="apps/v1", **annotations):
        named = {k.replace("_", "-"): v for k, v in annotations.items()}
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "generation": 1,
                "annotations": {PREFIX + k: v for k, v in {**PLAIN, **named}.items()},
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": target or name},
                "metrics": list(metrics),
            },
        }
        self.kube.create(POD_AUTOSCALERS, body)

    def annotate(self, name="web", **annotations):
        named = {PREFIX + k.replace("_", "-"): v for k, v in annotations.items()}
        self.kube.change(POD_AUTOSCALERS, name, "default", metadata={"annotations": named})

    def config(self, **data):
        named = {k.replace("_", "-"): v for k, v in data.items()}
        key = (CONFIG_MAPS.plural, "kube-system/config-autoscaler")
        if key in self.kube.objects:
            self.kube.objects[key]["data"] = named
            self.kube._store(key, self.kube.objects[key])
        else:
            self.kube.create(
                CONFIG_MAPS, {"metadata": {"name": "config-autoscaler", "namespace": "kube-system"}, "data": named}
            )

    def pod(self, name, app="web", *, ip="10.0.0.1"):
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.kube.create(PODS, body)

    # What the cluster does

    def view(self):
        """The watcher has seen everything."""
        for kind, as_type in KINDS:
            self.store.redis.delete(self.keys.view(kind.plural))
            for thing in self.kube.typed(kind, as_type):
                shown = self._with_ready_pods(thing) if isinstance(thing, Workload) else thing
                self.store.redis.hset(self.keys.view(kind.plural), thing.metadata.key, msgspec.json.encode(shown))
        now_ms = self.store.now_ms()
        meta = {"epoch": "e1", "complete": "1", "rv:podautoscalers": str(next(self.kube.versions))}
        self.store.redis.hset(self.keys.view_meta, mapping={**meta, "progress:podautoscalers": now_ms})

    def _with_ready_pods(self, workload):
        ready = self.lag.get(workload.metadata.name, workload.wanted_replicas)
        return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, ready_replicas=ready))

    # What beat does

    def tick(self):
        self.view()
        self.scaling.follow_config()
        self.scaling.pushes(lambda keys: None)
        for shard in range(self.shards):
            self.scaling.decide(shard)
        self.view()

    def says(self, value, name="web", source="redisList", message="length of jobs"):
        """What the source says in this second. value None: it cannot be read."""
        second = int(self.store.now_ms() // 1000)
        return record(self.store, [Sample(f"default/{name}", source, second, value, message)], self.shards)

    def pushes(self, value, name="web", **fields):
        push(self.store, [Push(pa=f"default/{name}", value=value, **fields)])

    def run(self, seconds, load=None, name="web", *, each=None):
        """Seconds with this load said every second, and a decision every two."""
        for number in range(seconds):
            self.clock.advance(1)
            if load is not None:
                self.says(load, name)
            if each is not None:
                each()
            if number % 2:
                self.tick()

    # What can be seen

    def replicas(self, name="web"):
        return self.kube.of(DEPLOYMENTS)[name]["spec"]["replicas"]

    def status(self, name="web"):
        return self.kube.of(POD_AUTOSCALERS)[name].get("status", {})

    def condition(self, type_, name="web"):
        found = {c["type"]: c for c in self.status(name).get("conditions", ())}.get(type_)
        return (found["status"], found["reason"]) if found else None

    def message(self, type_, name="web"):
        return {c["type"]: c for c in self.status(name).get("conditions", ())}[type_]["message"]

    def record(self, name="web"):
        return decode_record(self.store.raw.get(self.keys.kpa_state(f"default/{name}")))

    def wish(self, name="web"):
        return self.record(name).state.desired

    def scaled(self):
        return self.kube.scaled


__all__ = ["PUSH", "QUEUE", "KubeError", "KubeUnavailable", "World", "timedelta"]
