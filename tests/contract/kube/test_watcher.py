"""The watcher against the embedded API server and a real Redis-compatible server."""

import msgspec
import pytest

from tests.contract.kube.conftest import (
    a_client,
    a_pod_body,
    create_pending_pod,
    eventually,
    is_complete,
    view_keys,
    view_meta,
)
from wainwright.api.pods import Pod
from wainwright.batching.store import Store
from wainwright.errors import ViewNotReady
from wainwright.kube.resources import LEASES, NODE_CLAIMS, NODES, PODS
from wainwright.kube.view import KINDS, KINDS_BY_NAME, read_view
from wainwright.kube.watcher import WatchPolicy
from wainwright.sim.apiserver.testing import ThreadedServer
from workers.stack import apply_crds

QUICK = WatchPolicy(watch_seconds=1, silence_seconds=2)


def pod_rv(client, name):
    return client.get(PODS, name, "default", as_type=Pod).metadata.resource_version


def shown_rv(store, name):
    text = store.read(lambda redis: redis.hget(store.keys.view("pods"), f"default/{name}"))
    return text and msgspec.json.decode(text, type=Pod).metadata.resource_version


def shows(store, client, name):
    """The view has the pod as it is now."""
    return shown_rv(store, name) == pod_rv(client, name)


def inject(server, plural, obj):
    """Stores an object as it is, without any validation."""

    def add(api):
        (collection,) = [one for one in api.store.collections() if one.kind.plural == plural]
        api.store.add(collection, obj)

    server.call(add)


def expire(server):
    """Forgets the history: every watch that resumes gets 410."""
    server.call(lambda api: api.store.forget_history())


def cut(server):
    """Every connection of every watch is broken."""

    def close(api):
        for collection in api.store.collections():
            for watch in tuple(collection.watches):
                watch.close()

    server.call(close)


def test_view_follows_the_cluster(api, make_watcher):
    create_pending_pod(api.client, "before")
    watcher = make_watcher(api.client)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    assert view_keys(store) == {"default/before"}
    uid = create_pending_pod(api.client, "after")
    eventually(lambda: shows(store, api.client, "after"))
    eventually(lambda: "after" in watcher.consumer.pods)
    assert store.redis.hget(store.keys.view_pending, uid) == "default/after"
    api.client.bind("default", "after", uid, "node-1")
    eventually(lambda: not store.redis.hexists(store.keys.view_pending, uid))
    api.client.delete(PODS, "before", "default")
    eventually(lambda: view_keys(store) == {"default/after"})


def test_every_kind_is_listed_and_shows_life(api, make_watcher):
    make_watcher(api.client, policy=QUICK)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    first = view_meta(store)
    assert all(first[f"listed:{kind}"] == "1" for kind in KINDS_BY_NAME)
    quiet = [f"progress:{kind}" for kind in KINDS_BY_NAME]
    eventually(lambda: all(view_meta(store)[field] != first[field] for field in quiet))


def test_claims_are_adopted_before_the_view_is_complete(api, make_watcher):
    spec = {
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    for name in ("general-1", "general-2"):
        api.client.create(NODE_CLAIMS, {"metadata": {"name": name}, "spec": spec})
    watcher = make_watcher(api.client)
    eventually(lambda: is_complete(make_watcher.store))
    assert watcher.adopted == [["general-1", "general-2"]]
    assert view_keys(make_watcher.store, "nodeclaims") == {"general-1", "general-2"}


def test_broken_connections_are_resumed_and_nothing_is_missed(api, make_watcher):
    watcher = make_watcher(api.client)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    epoch = view_meta(store)["epoch"]
    for number in range(5):
        cut(api)
        create_pending_pod(api.client, f"web-{number}")
    eventually(lambda: all(shows(store, api.client, f"web-{number}") for number in range(5)))
    assert view_meta(store)["epoch"] == epoch, "a resumed watch is no new epoch"
    assert watcher.watcher.session.over is None


def test_expired_version_means_a_new_list_which_reconciles_deletes(api, make_watcher):
    make_watcher(api.client, policy=QUICK)
    store = make_watcher.store
    create_pending_pod(api.client, "goes")
    create_pending_pod(api.client, "stays")
    eventually(lambda: is_complete(store) and view_keys(store) == {"default/goes", "default/stays"})
    epoch = view_meta(store)["epoch"]

    def unseen(server):
        """Deleted, with the history forgotten, before any watch can tell."""
        for collection in server.store.collections():
            for watch in tuple(collection.watches):
                watch.close()
            if collection.kind.plural == "pods":
                server.store.remove(collection, collection.get("default", "goes"))
        server.store.forget_history()

    api.call(unseen)
    eventually(lambda: view_keys(store) == {"default/stays"})
    create_pending_pod(api.client, "later")
    eventually(lambda: shows(store, api.client, "later"))
    assert view_meta(store)["epoch"] == epoch


def test_history_that_is_too_short_is_survived(make_watcher):
    """A ring of five events, and more changes than that at every cut."""
    with ThreadedServer(ring_size=5) as server:
        server.client = a_client(server)
        apply_crds(server.client)
        make_watcher(server.client, policy=QUICK)
        store = make_watcher.store
        eventually(lambda: is_complete(store))
        for number in range(60):
            if number % 15 == 0:
                cut(server)
            create_pending_pod(server.client, f"web-{number}")
        names = {f"default/web-{number}" for number in range(60)}
        eventually(lambda: view_keys(store) == names, 20)
        eventually(lambda: all(shows(store, server.client, f"web-{number}") for number in range(60)))
        server.client.close()


def test_object_that_cannot_be_decoded_is_set_aside_and_others_go_on(api, make_watcher):
    create_pending_pod(api.client, "first")
    broken = {"metadata": {"name": "broken", "namespace": "default", "uid": "uid-broken"}, "spec": {"nodeName": 7}}
    inject(api, "pods", broken)
    make_watcher(api.client)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    assert view_keys(store) == {"default/first"}
    entry = msgspec.json.decode(store.redis.hget(store.keys.dead, "pod/uid-broken"))
    assert "Expected `str`, got `int` - at `$.spec.nodeName`" in entry["reason"]
    inject(api, "pods", {**broken, "metadata": {**broken["metadata"], "name": "late", "uid": "uid-late"}})
    create_pending_pod(api.client, "second")
    eventually(lambda: shows(store, api.client, "second"))
    assert store.redis.hexists(store.keys.dead, "pod/uid-late")


def test_kinds_that_the_server_does_not_serve_do_not_hold_up_the_view(api, make_watcher):
    absent = KINDS_BY_NAME["csinodes"]
    absent = absent._replace(resource=absent.resource._replace(plural="nosuchthings"))
    make_watcher(api.client, kinds=[absent if kind.name == "csinodes" else kind for kind in KINDS])
    eventually(lambda: view_meta(make_watcher.store).get("listed:nosuchthings") == "1")


def test_same_pod_patched_over_and_over_is_told_once_it_is_queued(api, make_watcher):
    """f40: one pod annotated every 300 ms must not extend its window for ever."""
    watcher = make_watcher(api.client)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    uid = create_pending_pod(api.client, "solo")
    eventually(lambda: watcher.consumer.pods)
    store.redis.hset(store.keys.seen, uid, "general/1-0")
    told = len(watcher.consumer.pods)
    for number in range(50):
        api.client.merge_patch(PODS, "solo", {"metadata": {"annotations": {"n": str(number)}}}, "default")
    eventually(lambda: shows(store, api.client, "solo"))
    assert len(watcher.consumer.pods) == told
    api.client.delete(PODS, "solo", "default", grace_seconds=0)
    again = create_pending_pod(api.client, "solo")
    eventually(lambda: len(watcher.consumer.pods) > told)
    eventually(lambda: store.redis.hgetall(store.keys.view_pending) == {again: "default/solo"})
    assert not store.redis.hexists(store.keys.seen, uid), "the old pod's place is given up"


# Losing things --------------------------------------------------------------------------------------------------------


def test_silent_api_server_is_noticed_and_survived(api_process, make_watcher):
    """f60: a server that answers nothing while its connections stay open."""
    watcher = make_watcher(api_process.client, policy=QUICK, lease=4)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    create_pending_pod(api_process.client, "before")
    with api_process.frozen():
        eventually(lambda: not watcher.elector.leads, 20)
        stalest = store.redis.hget(store.keys.view_meta, "progress:pods")
        store.redis.hset(store.keys.view_meta, "progress:pods", int(stalest) - 31_000)
        with pytest.raises(ViewNotReady, match="no sign of life"):
            read_view(store, ("pods",))
    create_pending_pod(api_process.client, "after")
    eventually(lambda: is_complete(store) and shows(store, api_process.client, "after"), 20)
    assert shows(store, api_process.client, "before")
    read_view(store, ("pods",))


def test_emptied_redis_begins_a_new_epoch(api, own_redis_server, make_watcher):
    store = Store.connect(own_redis_server.url)
    watcher = make_watcher(api.client, store=store)
    eventually(lambda: is_complete(store))
    create_pending_pod(api.client, "web")
    eventually(lambda: shows(store, api.client, "web"))
    before = view_meta(store)["epoch"]
    store.redis.flushall()
    eventually(lambda: view_meta(store).get("epoch", before) != before and is_complete(store), 5)
    assert view_keys(store) == {"default/web"}
    assert watcher.adopted == [[], []], "claims are adopted once per life of the data"


def test_restarted_redis_is_written_again_without_a_new_epoch(api, own_redis_server, make_watcher):
    store = Store.connect(own_redis_server.url)
    make_watcher(api.client, store=store)
    eventually(lambda: is_complete(store))
    epoch = view_meta(store)["epoch"]
    own_redis_server.kill()
    create_pending_pod(api.client, "meanwhile")
    own_redis_server.start()
    eventually(lambda: shows(store, api.client, "meanwhile"))
    assert view_meta(store)["epoch"] == epoch, "append-only: nothing was lost"


def test_standby_does_nothing_and_takes_over_from_a_holder_that_is_gone(api, make_watcher):
    first = make_watcher(api.client, "first", lease=2)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    second = make_watcher(api.client, "second", lease=2)
    epoch = view_meta(store)["epoch"]
    eventually(lambda: second.elector.other == "first")
    assert second.watcher.session is None
    paused = first.watcher.session
    first.elector.step = lambda: first.elector.leads  # it hangs: its Lease is not renewed any more
    eventually(lambda: view_meta(store)["holder"] == "second" and is_complete(store), 10)
    assert view_meta(store)["epoch"] != epoch
    assert int(view_meta(store)["fence"]) > first.elector.fence
    assert not paused.is_live
    create_pending_pod(api.client, "late")
    eventually(lambda: shows(store, api.client, "late"))
    assert first.consumer.pods == []


def test_watcher_that_is_stopped_hands_over_at_once(api, make_watcher):
    first = make_watcher(api.client, "first", lease=60)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    make_watcher(api.client, "second", lease=60)
    first.stop()
    eventually(lambda: view_meta(store)["holder"] == "second" and is_complete(store), 5)


def test_deposed_watcher_is_refused_by_its_fence(api, make_watcher):
    """It still thinks that it leads: what it writes is refused, and since the Lease is not its own, it stands by."""
    first = make_watcher(api.client, "first", lease=60)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    lease = api.client.get(LEASES, "watcher", "kube-system", as_type=dict)
    lease["spec"]["holderIdentity"] = "other"
    api.client.update(LEASES, lease)
    store.redis.hset(store.keys.view_meta, mapping={"fence": first.elector.fence + 5, "epoch": "others"})
    eventually(lambda: first.watcher.session is None)
    assert view_meta(store)["epoch"] == "others"


def test_holder_outdoes_a_fence_that_nobody_holds_any_more(api, make_watcher):
    """The Lease was deleted and clocks differ: Redis remembers a higher fence than ours."""
    store = make_watcher.store
    store.redis.hset(store.keys.view_meta, mapping={"fence": 10**15, "epoch": "ghost", "complete": "1"})
    watcher = make_watcher(api.client)
    eventually(lambda: view_meta(store)["epoch"] != "ghost" and is_complete(store))
    assert watcher.elector.fence > 10**15


def test_nodes_are_kept_too(api, make_watcher):
    make_watcher(api.client)
    store = make_watcher.store
    eventually(lambda: is_complete(store))
    api.client.create(NODES, {"metadata": {"name": "node-1"}, "spec": {"providerID": "sim://1"}})
    eventually(lambda: view_keys(store, "nodes") == {"node-1"})
    pod = a_pod_body("bound", pending=False)
    api.client.create(PODS, pod)
    eventually(lambda: [p.spec.node_name for p in read_view(store, ("pods",)).pods] == ["node-1"])
