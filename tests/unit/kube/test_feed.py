"""The feed with a writer in memory: what is written, in which order, and what happens when it cannot be."""

import logging
import threading

import msgspec
import pytest

from tests.unit.kube.support import UNSCHEDULABLE, a_node, a_pod
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodeclaims import NodeClaim
from wainwright.errors import StoreUnavailable
from wainwright.kube.client import Undecodable
from wainwright.kube.feed import ViewFeed
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from wainwright.kube.view import EpochOver


class MemoryWriter:
    """Remembers changes; `errors` are raised first, one an attempt. Every waiting pod counts as nowhere."""

    def __init__(self):
        self.batches = []
        self.errors = []
        self.attempts = 0
        self.tried = threading.Semaphore(0)

    def apply(self, changes):
        self.attempts += 1
        self.tried.release()
        if self.errors:
            raise self.errors.pop(0)
        if changes:
            self.batches.append(list(changes))
        return [change.thing for change in changes if change.thing is not None]

    @property
    def changes(self):
        return [change for batch in self.batches for change in batch]

    @property
    def ops(self):
        return [(change.op, change.key or change.kind) for change in self.changes]


class Running:
    """A feed whose writer thread runs."""

    def __init__(self, **options):
        self.writer = MemoryWriter()
        self.waiting, self.material, self.heard = [], [], []
        self.may_write = True
        self.feed = ViewFeed(
            self.writer,
            may_write=lambda: self.may_write,
            on_waiting=self.waiting.extend,
            on_material=self.material.append,
            listeners={"nodepools": [lambda event, thing: self.heard.append((event, thing))]},
            **options,
        )
        self.thread = threading.Thread(target=self.feed.run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.feed.stop()
        self.thread.join(5)
        assert not self.thread.is_alive()


@pytest.fixture
def running():
    one = Running()
    yield one
    one.feed.stop()


def test_what_is_told_together_is_written_together_and_in_order(running):
    for number in range(100):
        running.feed.put(PODS, a_pod(f"p{number}"))
    running.feed.gone(PODS, a_pod("p5", rv=9))
    running.start()
    assert running.feed.flush()
    assert len(running.writer.batches) == 1
    assert running.writer.ops == [*(("put", f"default/p{n}") for n in range(100)), ("del", "default/p5")]
    assert len(running.waiting) == 100


def test_pods_in_flight_are_not_kept(running):
    running.feed.put(PODS, a_pod("bound", node="n1"))
    running.feed.put(PODS, a_pod("waits"))
    running.start()
    running.feed.flush()
    assert [change.thing and change.thing.key for change in running.writer.changes] == [None, "default/waits"]


def test_status_and_annotations_are_no_change_for_scheduling(running):
    running.feed.put(PODS, a_pod(rv=1))
    running.feed.put(PODS, a_pod(rv=2, annotations={"n": "1"}))
    running.feed.put(PODS, a_pod(rv=3, conditions=(*UNSCHEDULABLE, Condition(type="X"))))
    running.feed.put(PODS, a_pod(rv=4, labels={"app": "web"}))
    running.feed.put(PODS, a_pod(rv=5, labels={"app": "web"}, node_selector={"disk": "ssd"}))
    running.start()
    running.feed.flush()
    assert [change.state for change in running.writer.changes] == ["p", "p", "p", "pc", "pc"]


def test_pod_that_is_over_is_gone(running):
    running.feed.put(PODS, a_pod("job", rv=1, node="n"))
    running.feed.put(PODS, a_pod("job", rv=2, node="n", phase="Succeeded"))
    running.feed.put(PODS, a_pod("job", rv=3, node="n", phase="Succeeded"))
    running.feed.put(PODS, a_pod("old", rv=1, node="n", phase="Failed"))
    running.start()
    running.feed.flush()
    assert running.writer.ops == [("put", "default/job"), ("del", "default/job")]


def test_list_says_what_exists_and_what_is_unbound(running):
    running.feed.listing(PODS)
    running.feed.put(PODS, a_pod("a"))
    running.feed.put(PODS, a_pod("b", node="n"))
    running.feed.put(PODS, a_pod("done", node="n", phase="Succeeded"))
    running.feed.undecodable(PODS, Undecodable(PODS, "default/bad", "uid-bad", "1", "why", b"{}"), gone=False)
    running.feed.listed(PODS, "9")
    running.start()
    running.feed.flush()
    value = msgspec.json.decode(running.writer.changes[-1].value)
    assert sorted(value["keys"]) == ["default/a", "default/b", "default/bad"]
    assert sorted(value["unbound"]) == ["uid-a", "uid-bad"]


def test_claims_of_the_first_list_are_handed_out_once(running):
    def claim(name):
        return NodeClaim(metadata=ObjectMeta(name=name, uid=name, resource_version="1"))

    running.feed.listing(NODE_CLAIMS)
    running.feed.put(NODE_CLAIMS, claim("cut-off"))
    running.feed.listing(NODE_CLAIMS)
    running.feed.put(NODE_CLAIMS, claim("a"))
    running.feed.listed(NODE_CLAIMS, "5")
    running.feed.put(NODE_CLAIMS, claim("later"))
    assert [one.name for one in running.feed.take_claims()] == ["a"]
    assert running.feed.take_claims() == []


def test_nodes_and_claims_that_help_retries_are_told(running):
    ready = (Condition(type="Ready", status="True"),)
    running.start()
    for thing in (a_node(rv=1), a_node(rv=2), a_node(rv=3, conditions=ready), a_node(rv=4, conditions=ready)):
        running.feed.put(NODES, thing)
        running.feed.flush()
    running.feed.gone(NODE_CLAIMS, NodeClaim(metadata=ObjectMeta(name="c1")))
    running.feed.flush()
    assert running.material == ["node node-1 appeared", "node node-1 changed", "claim c1 gone"]


def test_listeners_hear_of_it_after_it_is_written(running):
    bad = Undecodable(NODE_POOLS, "broken", "u", "1", "why", b"{}")
    running.feed.listing(NODE_POOLS)
    running.feed.undecodable(NODE_POOLS, bad, gone=False)
    running.feed.listed(NODE_POOLS, "9")
    running.feed.alive(NODE_POOLS, "10")
    running.feed.put(NODES, a_node())
    assert running.heard == []
    running.start()
    running.feed.flush()
    assert running.heard == [("undecodable", bad), ("listed", frozenset({"broken"}))]


def test_object_that_can_be_decoded_again_counts_as_changed(running):
    running.feed.undecodable(PODS, Undecodable(PODS, "default/web-0", "uid-web-0", "1", "why", b"{}"), gone=False)
    running.feed.put(PODS, a_pod(rv=2))
    running.feed.put(PODS, a_pod(rv=3))
    running.start()
    running.feed.flush()
    assert [(change.op, change.state) for change in running.writer.changes] == [
        ("bad", ""),
        ("put", "pc"),
        ("put", "p"),
    ]


def test_store_that_is_away_loses_nothing_and_is_told_once(running, caplog):
    running.writer.errors = [
        StoreUnavailable("down"),
        RuntimeError("OOM command not allowed"),
        StoreUnavailable("down"),
    ]
    running.feed.put(PODS, a_pod("a"))
    with caplog.at_level(logging.INFO):
        running.start()
        running.feed.put(PODS, a_pod("b"))
        running.feed.flush()
    assert running.writer.ops == [("put", "default/a"), ("put", "default/b")]
    assert [record.message.split()[0] for record in caplog.records] == [
        "action=view_write_failed",
        "action=view_write_recovered",
    ]


def test_emptied_redis_is_found_without_any_change(running):
    running.writer.errors = [EpochOver("empty")]
    running.start()
    running.thread.join(5)
    assert isinstance(running.feed.over, EpochOver)
    assert not running.feed.flush()


def test_nothing_is_written_while_the_lease_is_not_ours(running):
    running.may_write = False
    running.feed.put(PODS, a_pod())
    running.start()
    running.stop()
    assert running.writer.attempts == 0


def test_followers_do_not_hang_when_the_session_ends(running):
    """The queue is full and nobody takes from it: stopping lets them go."""

    def tell_many():
        for number in range(3000):
            running.feed.put(PODS, a_pod(f"p{number}"))

    teller = threading.Thread(target=tell_many, daemon=True)
    teller.start()
    teller.join(0.3)
    assert teller.is_alive(), "it waits: memory stays bounded"
    running.feed.stop()
    teller.join(5)
    assert not teller.is_alive()


def test_history_that_went_back_ends_the_epoch(running):
    """An API server restored from a backup: what the view holds is newer by number only."""
    running.start()
    for version in ("90", "100"):
        running.feed.listing(NODES)
        running.feed.listed(NODES, version)
    assert running.feed.flush()
    running.feed.listing(NODES)
    running.feed.listed(NODES, "95")
    assert isinstance(running.feed.over, EpochOver)


def test_fault_of_a_consumer_does_not_end_the_writer(running, caplog):
    def fail(_pods):
        raise ZeroDivisionError

    running.feed._on_waiting = fail
    running.start()
    for name in ("a", "b", "c"):
        running.feed.put(PODS, a_pod(name))
        assert running.feed.flush()
    assert len(running.writer.changes) == 3
    assert [record.message for record in caplog.records] == ["action=consumer_failed"]
