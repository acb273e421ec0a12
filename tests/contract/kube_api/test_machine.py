"""A state machine over the core: several clients write and watch one kind, in any order.

What must hold: a watcher's events, replayed, give exactly what a list gives (none missed), with versions that only
rise (none repeated, none out of order); a write with an old version never wins (no lost update).
"""

import json
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.contract.kube_api.cluster import a_binding
from wainwright.sim.apiserver.core import ApiServer
from wainwright.sim.apiserver.requests import Request, WatchStream
from wainwright.sim.apiserver.snapshot import lines, restore

PODS = "/api/v1/namespaces/default/pods"
NAMES = st.sampled_from(["a", "b", "c", "d"])
TIERS = st.sampled_from(["web", "db"])
SELECTORS = st.sampled_from(
    [
        {},
        {"labelSelector": "tier=web"},
        {"labelSelector": "tier!=web"},
        {"fieldSelector": "spec.nodeName="},
        {"fieldSelector": "spec.nodeName=n1"},
        {"fieldSelector": "metadata.name=a", "labelSelector": "tier"},
    ]
)


class Watcher:
    """A client that keeps a copy by watching, as every controller does."""

    def __init__(self, machine, selector):
        self.machine = machine
        self.selector = selector
        self.copy = {}
        self.version = 0
        self.stream = None
        self.relist()

    def relist(self):
        listed = self.machine.call("GET", PODS, query=self.selector)
        self.copy = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        self.version = int(listed["metadata"]["resourceVersion"])
        self.resume()

    def resume(self):
        if self.stream is not None:
            self.stream.watch.close()
        query = {**self.selector, "watch": "1", "resourceVersion": str(self.version)}
        self.stream = self.machine.send("GET", PODS, query=query)
        if self.stream.watch.closed:
            (line,) = self.stream.watch.take()
            assert json.loads(line)["object"]["code"] == 410
            self.relist()

    def read(self):
        assert isinstance(self.stream, WatchStream)
        for line in self.stream.watch.take():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            version = int(metadata["resourceVersion"])
            assert version > self.version, f"{version} after {self.version}: repeated or out of order"
            self.version = version
            name = metadata["name"]
            match event["type"]:
                case "ADDED":
                    assert name not in self.copy
                    self.copy[name] = metadata["resourceVersion"]
                case "MODIFIED":
                    assert name in self.copy
                    self.copy[name] = metadata["resourceVersion"]
                case "DELETED":
                    del self.copy[name]
                case other:
                    raise AssertionError(other)

    def bookmark(self):
        self.read()
        line = json.loads(self.machine.server.reader.bookmark(self.stream.watch.kind))
        assert int(line["object"]["metadata"]["resourceVersion"]) >= self.version
        self.version = int(line["object"]["metadata"]["resourceVersion"])

    def check(self):
        self.read()
        if self.stream.watch.closed:
            self.resume()
            self.read()
        listed = self.machine.call("GET", PODS, query=self.selector)
        there = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert self.copy == there


class ApiMachine(RuleBasedStateMachine):
    @initialize(ring_size=st.sampled_from([4, 1000]), selectors=st.lists(SELECTORS, min_size=1, max_size=3))
    def start(self, ring_size, selectors):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.ring_size = ring_size
        self.server = ApiServer(ring_size=ring_size, seed=1)
        self.server.bootstrap(self.now)
        self.watchers = []
        self.seen = {}
        self.counts = {}
        for name in ("a", "b", "c"):
            self.create(name, "web", kept=False)
        self.watchers = [Watcher(self, selector) for selector in selectors]

    def send(self, method, path, body=None, media="application/json", query=None):
        raw = json.dumps(body).encode() if body is not None else b""
        request = Request(method, path, query or {}, {"content-type": media}, raw)
        return self.server.handle(request, lambda: self.now)

    def call(self, *arguments, expect=(200, 201), **options):
        answer = self.send(*arguments, **options)
        assert answer.status in expect, answer.body
        return json.loads(answer.body)

    def exists(self, name):
        return self.send("GET", f"{PODS}/{name}").status == 200

    def remember(self, pod):
        self.seen.setdefault(pod["metadata"]["name"], []).append(pod)

    @rule(name=NAMES, tier=TIERS, kept=st.booleans())
    def create(self, name, tier, kept):
        there = self.exists(name)
        metadata = {"name": name, "labels": {"tier": tier}, "annotations": {"count": "0"}}
        if kept:
            metadata["finalizers"] = ["example.com/keep"]
        body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        pod = self.call("POST", PODS, body, expect=(409,) if there else (201,))
        if not there:
            self.counts[name] = 0
            self.remember(pod)

    @rule(name=NAMES, tier=TIERS)
    def patch(self, name, tier):
        if self.exists(name):
            body = {"metadata": {"labels": {"tier": tier}}}
            self.remember(self.call("PATCH", f"{PODS}/{name}", body, media="application/merge-patch+json"))

    @rule(name=NAMES, back=st.integers(0, 3))
    def count_up(self, name, back):
        """A client that read some time ago adds one to what it read then: it must not undo what came between."""
        if not self.seen.get(name) or not self.exists(name):
            return
        history = self.seen[name]
        read = json.loads(json.dumps(history[max(len(history) - 1 - back, 0)]))
        annotations = read["metadata"]["annotations"]
        annotations["count"] = str(int(annotations["count"]) + 1)
        answer = self.send("PUT", f"{PODS}/{name}", read)
        now = self.call("GET", f"{PODS}/{name}")
        if answer.status == 200:
            self.counts[name] += 1
            self.remember(now)
        else:
            assert answer.status == 409
        assert int(now["metadata"]["annotations"]["count"]) == self.counts[name]

    @rule(name=NAMES, node=st.sampled_from(["n1", "n2"]))
    def bind(self, name, node):
        if self.exists(name):
            before = self.call("GET", f"{PODS}/{name}")
            free = not before["spec"].get("nodeName") and not before["metadata"].get("deletionTimestamp")
            self.call("POST", f"{PODS}/{name}/binding", a_binding(name, node), expect=(201,) if free else (409,))

    @rule(name=NAMES, phase=st.sampled_from(["Running", "Succeeded"]))
    def report(self, name, phase):
        if self.exists(name):
            body = {"status": {"phase": phase}}
            self.call("PATCH", f"{PODS}/{name}/status", body, media="application/strategic-merge-patch+json")

    @rule(name=NAMES, grace=st.sampled_from([None, 0, 5]))
    def delete(self, name, grace):
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        self.call("DELETE", f"{PODS}/{name}", expect=(200,) if self.exists(name) else (404,), query=query)

    @rule(name=NAMES)
    def let_go(self, name):
        if self.exists(name):
            body = {"metadata": {"finalizers": None}}
            self.call("PATCH", f"{PODS}/{name}", body, media="application/merge-patch+json")

    @rule()
    def delete_all_of_a_tier(self):
        self.call("DELETE", PODS, query={"labelSelector": "tier=db"})

    @precondition(lambda self: len(self.watchers) < 5)
    @rule(selector=SELECTORS)
    def watch(self, selector):
        self.watchers.append(Watcher(self, selector))

    @rule(number=st.integers(0, 4))
    def read(self, number):
        if self.watchers:
            self.watchers[number % len(self.watchers)].read()

    @rule(number=st.integers(0, 4), writes=st.lists(st.tuples(NAMES, TIERS), max_size=8))
    def cut(self, number, writes):
        """Unread events are lost with the connection; the client goes on from what it has, maybe much later."""
        for name, tier in writes:
            self.patch(name, tier)
        if self.watchers:
            self.watchers[number % len(self.watchers)].resume()

    @rule(number=st.integers(0, 4))
    def bookmark(self, number):
        if self.watchers:
            watcher = self.watchers[number % len(self.watchers)]
            watcher.bookmark()
            watcher.resume()

    @rule()
    def compact(self):
        self.server.store.forget_history()

    @rule()
    def restart(self):
        """The server comes back from a snapshot: watches end, and resume from there or are told 410."""
        kept = b"".join(lines(self.server))
        for watcher in self.watchers:
            watcher.read()
        self.server = ApiServer(ring_size=self.ring_size, seed=2)
        restore(self.server, kept)
        for watcher in self.watchers:
            watcher.stream = None
            watcher.resume()

    @rule()
    def time_passes(self):
        self.now += timedelta(seconds=1)

    @invariant()
    def every_copy_is_what_a_list_gives(self):
        for watcher in getattr(self, "watchers", ()):
            if watcher.stream.watch.closed:
                watcher.check()

    @invariant()
    def indexes_agree_with_the_objects(self):
        if not hasattr(self, "server"):
            return
        for node in ("n1", "n2", ""):
            by_index = self.call("GET", PODS, query={"fieldSelector": f"spec.nodeName={node}"})["items"]
            by_hand = [item for item in self.call("GET", PODS)["items"] if item["spec"].get("nodeName", "") == node]
            assert by_index == by_hand

    def teardown(self):
        for watcher in getattr(self, "watchers", ()):
            watcher.check()


ApiMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestApiMachine = ApiMachine.TestCase
