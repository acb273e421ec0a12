"""Stores, queues and ownership: what the controllers stand on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.sim.controllers.builders import a_pod
from wainwright.sim.controllers.client import load_kubeconfig
from wainwright.sim.controllers.garbage import surviving_owners
from wainwright.sim.controllers.informers import Informer, Store
from wainwright.sim.controllers.objects import NODES
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.scheduler.loop import is_mine, told_message


def versioned(version, name="pod", uid="u", **more):
    return a_pod(name, metadata={"uid": uid, "resourceVersion": str(version)}, **more)


@pytest.fixture
def store():
    store = Store()
    store.index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
    return store


def names(store, node):
    return [pod.metadata.name for pod in store.by("node", node)]


def test_an_older_version_never_replaces_a_newer_one(store):
    store.put(versioned(5, on="a"))
    store.put(versioned(4, on="b"))
    assert (names(store, "a"), names(store, "b")) == (["pod"], [])
    store.put(versioned(6, on="b"))
    assert (names(store, "a"), names(store, "b")) == ([], ["pod"])


def test_what_was_deleted_does_not_come_back_with_a_late_answer(store):
    store.put(versioned(5))
    store.remove(versioned(6))
    store.put(versioned(5))
    assert store.objects == {}
    store.put(versioned(7, uid="another"))
    assert store.objects["default/pod"].metadata.uid == "another"


def test_handlers_see_old_and_new_and_a_replacement_as_two_changes(store):
    seen = []
    store.on_change(lambda old, new: seen.append((old and old.metadata.uid, new and new.metadata.uid)))
    store.put(versioned(1, uid="a"))
    store.put(versioned(2, uid="b"))
    store.remove(versioned(3, uid="b"))
    store.remove(versioned(3, uid="b"))
    assert seen == [(None, "a"), ("a", None), (None, "b"), ("b", None)]


def test_nulls_in_an_object_read_as_left_out():
    informer = Informer(None, NODES)
    content = b'{"metadata":{"name":"n","labels":null},"spec":{"taints":null},"status":{"addresses":[{"type":null}]}}'
    assert informer.decode(content).spec.taints == ()


def drive(scenario):
    async def bounded():
        async with asyncio.timeout(5):
            await scenario()

    asyncio.run(bounded())


def test_a_key_added_while_worked_on_is_worked_on_again_and_never_twice_at_once():
    async def scenario():
        running, most, done = 0, 0, []
        finished = asyncio.Event()

        async def reconcile(key):
            nonlocal running, most
            running += 1
            most = max(most, running)
            if not done:
                queue.add(key)
                queue.add(key)
            await asyncio.sleep(0)
            running -= 1
            done.append(key)
            if len(done) == 2:
                finished.set()

        queue = KeyQueue("test", reconcile, workers=3)
        task = asyncio.create_task(queue.run())
        queue.add("k")
        await finished.wait()
        await asyncio.sleep(0)
        task.cancel()
        assert (done, most) == (["k", "k"], 1)

    drive(scenario)


def test_a_failed_key_is_tried_again():
    async def scenario():
        tries = []
        finished = asyncio.Event()

        async def reconcile(key):
            tries.append(key)
            if len(tries) < 3:
                raise ValueError("not yet")
            finished.set()

        queue = KeyQueue("test", reconcile)
        task = asyncio.create_task(queue.run())
        queue.add("k")
        await finished.wait()
        task.cancel()
        assert tries == ["k"] * 3

    drive(scenario)


def test_the_scheduler_takes_only_pods_that_name_it_and_wait():
    assert is_mine(a_pod())
    assert not is_mine(a_pod(schedulerName="other"))
    assert not is_mine(a_pod(on="node"))
    assert not is_mine(a_pod(schedulingGates=[{"name": "g"}]))
    assert not is_mine(a_pod(phase="Failed"))


def test_a_condition_written_before_a_restart_is_known_again():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "why"}
    assert told_message(a_pod(status={"conditions": [condition]})) == "why"
    assert told_message(a_pod()) == ""


def test_references_to_owners_that_are_gone_are_dropped():
    owners = [{"apiVersion": "v1", "kind": "Node", "name": uid, "uid": uid} for uid in "ab"]
    pod = a_pod(metadata={"ownerReferences": owners})
    assert [owner.uid for owner in surviving_owners(pod.metadata, ["a"])] == ["b"]


def test_a_kubeconfig_gives_address_and_token(tmp_path):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1/"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = tmp_path / "config"
    path.write_bytes(msgspec.json.encode(config))
    access = load_kubeconfig(path)
    assert (access.address, access.tls) == ("http://127.0.0.1:1", None)
    assert access.headers["Authorization"] == "Bearer secret"
    path.write_bytes(msgspec.json.encode({**config, "current-context": "missing"}))
    with pytest.raises(ValueError, match="no entry 'missing' in contexts"):
        load_kubeconfig(path)
