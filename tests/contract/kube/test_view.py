"""The scripts that write the view, on fakeredis and on a real server."""

import msgspec
import pytest

from tests.contract.kube.conftest import view_keys, view_meta
from tests.unit.kube.support import a_node, a_pod
from wainwright.api.meta import ObjectMeta
from wainwright.api.pods import Pod
from wainwright.batching.batcher import Batcher, Item
from wainwright.batching.locks import Lock
from wainwright.batching.pools import use_pool
from wainwright.batching.shards import close_window, lock_name
from wainwright.batching.windows import WindowPolicy
from wainwright.errors import ViewNotReady
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import PODS
from wainwright.kube.view import KINDS_BY_NAME, Change, EpochOver, Fenced, ViewWriter, read_view


@pytest.fixture
def writer(store):
    """The view in epoch `e1`, complete and empty."""
    return complete_writer(store)


def complete_writer(store, epoch="e1", fence=1):
    writer = ViewWriter(store, epoch=epoch, fence=fence, holder="me")
    writer.begin()
    writer.apply([Change.listed(kind, "1", [], []) for kind in KINDS_BY_NAME])
    store.redis.setnx(store.keys.adopted, epoch)
    assert writer.complete()
    return writer


def put(*pods, changed=False):
    return [Change.put("pods", pod, shape_changed=changed) for pod in pods]


def shown(store, key="default/web-0"):
    text = store.redis.hget(store.keys.view("pods"), key)
    return text and msgspec.json.decode(text, type=Pod)


def pending(store):
    return store.redis.hgetall(store.keys.view_pending)


def everywhere(store, uid):
    """The pod in every place that knows of pods."""
    keys = store.keys
    store.redis.hset(keys.seen, uid, "general/1-0")
    store.redis.hset(keys.planned, uid, "claim/c1 p1")
    store.redis.zadd(keys.nominated, {uid: 1})
    store.redis.zadd(keys.retry, {uid: 1})
    store.redis.hset(keys.retries, uid, "{}")
    store.redis.hset(keys.dead, f"pod/{uid}", "{}")


def places(store, uid):
    keys, redis = store.keys, store.redis
    found = {
        "seen": redis.hexists(keys.seen, uid),
        "planned": redis.hexists(keys.planned, uid),
        "nominated": redis.zscore(keys.nominated, uid) is not None,
        "retry": redis.zscore(keys.retry, uid) is not None,
        "retries": redis.hexists(keys.retries, uid),
        "dead": redis.hexists(keys.dead, f"pod/{uid}"),
        "pending": redis.hexists(keys.view_pending, uid),
    }
    return {name for name, there in found.items() if there}


def test_older_object_never_replaces_a_newer_one(store, writer):
    writer.apply(put(a_pod(rv="9", labels={"v": "new"})))
    writer.apply(put(a_pod(rv="10", labels={"v": "newer"})))
    version = view_meta(store)["version"]
    writer.apply(put(a_pod(rv="9", labels={"v": "new"})))
    assert shown(store).metadata.labels == {"v": "newer"}, "9 is older than 10: versions are numbers, not text"
    assert view_meta(store)["version"] == version


def test_label_that_looks_like_a_version_does_not_deceive(store, writer):
    tricky = {"resourceVersion": "99999", "a": '"resourceVersion":"88888"'}
    writer.apply(put(a_pod(rv="9", labels=tricky)))
    writer.apply(put(a_pod(rv="10", labels=tricky)))
    assert shown(store).metadata.resource_version == "10"


def test_object_is_kept_without_annotations_nobody_reads(store, writer):
    annotations = {"karpenter.sh/do-not-disrupt": "true", "example.com/big": "x" * 10_000}
    writer.apply(put(a_pod(annotations=annotations)))
    assert shown(store).metadata.annotations == {"karpenter.sh/do-not-disrupt": "true"}


def test_waiting_pod_is_told_once_it_is_nowhere(store, writer):
    pods = [a_pod("a"), a_pod("b"), a_pod("bound", node="n1"), a_pod("daemon", owners=["DaemonSet"])]
    assert [pod.key for pod in writer.apply(put(*pods))] == ["default/a", "default/b"]
    assert pending(store) == {"uid-a": "default/a", "uid-b": "default/b"}


@pytest.mark.parametrize("place", ["seen", "planned", "retry", "dead"])
def test_pod_that_is_queued_planned_retried_or_dead_is_not_told_again(store, writer, place):
    """f40: the same pod annotated over and over must not be queued again."""
    keys = store.keys
    match place:
        case "seen":
            store.redis.hset(keys.seen, "uid-a", "general/1-0")
        case "planned":
            store.redis.hset(keys.planned, "uid-a", "claim/c p")
        case "retry":
            store.redis.zadd(keys.retry, {"uid-a": 1})
        case "dead":
            store.redis.hset(keys.dead, "pod/uid-a", "{}")
    for version in range(10, 20):
        assert writer.apply(put(a_pod("a", rv=version))) == []


def test_write_that_is_repeated_tells_the_same_pods(store, writer):
    """Its answer may have been lost."""
    changes = put(a_pod("a"))
    assert writer.apply(changes) == writer.apply(changes) != []


def test_nothing_is_told_while_the_view_is_incomplete(store):
    writer = ViewWriter(store, epoch="e1", fence=1, holder="me")
    writer.begin()
    assert writer.apply(put(a_pod("a"))) == []
    assert writer.missing() == []


def test_bound_pod_leaves_plans_and_retries_but_stays_in_its_batch(store, writer):
    writer.apply(put(a_pod(rv="1")))
    everywhere(store, "uid-web-0")
    writer.apply(put(a_pod(rv="2", node="node-1")))
    assert places(store, "uid-web-0") == {"seen", "dead"}


def test_gone_pod_leaves_everything_and_wakes_its_waiters(store, writer):
    writer.apply(put(a_pod(rv="1")))
    everywhere(store, "uid-web-0")
    writer.apply([Change.delete("pods", a_pod(rv="2").metadata)])
    assert places(store, "uid-web-0") == set()
    assert view_keys(store) == set()
    ((_, entry),) = store.redis.xrange(store.keys.gates)
    assert entry["outcome"] == "pod gone"


def test_pod_made_anew_under_its_name_is_another_pod(store, writer):
    """f40: nobody may have seen the old one go."""
    writer.apply(put(a_pod(rv="1", uid="old")))
    everywhere(store, "old")
    assert [pod.uid for pod in writer.apply(put(a_pod(rv="5", uid="new")))] == ["new"]
    assert places(store, "old") == set()
    assert pending(store) == {"new": "default/web-0"}


def test_late_delete_of_the_old_pod_leaves_the_new_one(store, writer):
    writer.apply(put(a_pod(rv="5", uid="new")))
    writer.apply([Change.delete("pods", a_pod(rv="4", uid="old").metadata)])
    assert view_keys(store) == {"default/web-0"}
    assert pending(store) == {"new": "default/web-0"}


def test_pod_that_changed_leaves_retries_and_dead_and_is_told(store, writer):
    writer.apply(put(a_pod("a", rv="1")))
    keys = store.keys
    store.redis.zadd(keys.retry, {"uid-a": 1})
    store.redis.hset(keys.retries, "uid-a", "{}")
    store.redis.hset(keys.dead, "pod/uid-a", "{}")
    assert writer.apply(put(a_pod("a", rv="2"))) == []
    assert [pod.uid for pod in writer.apply(put(a_pod("a", rv="3"), changed=True))] == ["uid-a"]
    assert places(store, "uid-a") == {"pending"}


def test_pod_that_waits_for_a_preemption_does_not_wait_for_capacity(store, writer):
    writer.apply(put(a_pod("a", rv="1")))
    store.redis.hset(store.keys.planned, "uid-a", "claim/c p")
    writer.apply(put(a_pod("a", rv="2", conditions=())))
    assert places(store, "uid-a") == {"planned"}, "its room stays kept: it may still be bound as planned"


def test_what_cannot_be_decoded_is_set_aside_and_the_rest_goes_on(store, writer):
    bad = Undecodable(PODS, "default/bad", "uid-bad", "7", "Expected `str`, got `int`", b"{}")
    told = writer.apply([Change.undecodable("pods", bad), *put(a_pod("good"))])
    assert [pod.key for pod in told] == ["default/good"]
    entry = msgspec.json.decode(store.redis.hget(store.keys.dead, "pod/uid-bad"))
    assert entry["reason"] == "cannot be decoded: Expected `str`, got `int`"
    assert entry["what"] == "default/bad"
    assert entry["at_ms"] > 0
    writer.apply([Change("del", "pods", "default/bad", "uid-bad", "8", "", b"")])
    assert store.redis.hlen(store.keys.dead) == 0


def test_node_that_can_be_decoded_again_is_not_dead_any_more(store, writer):
    bad = Undecodable(KINDS_BY_NAME["nodes"].resource, "node-1", "", "7", "why", b"{}")
    writer.apply([Change.undecodable("nodes", bad)])
    assert store.redis.hkeys(store.keys.dead) == ["node/node-1"]
    writer.apply([Change.put("nodes", a_node(rv="8"), shape_changed=True)])
    assert store.redis.hlen(store.keys.dead) == 0


def test_list_reconciles_what_nobody_saw_go(store, writer):
    writer.apply(put(a_pod("stays", rv="1"), a_pod("went", rv="2"), a_pod("bound", rv="3", node="n")))
    for uid in ("uid-stays", "uid-went", "uid-bound", "uid-long-gone"):
        everywhere(store, uid)
    writer.apply([Change.listed("pods", "9", ["default/stays", "default/bound"], ["uid-stays"])])
    assert view_keys(store) == {"default/stays", "default/bound"}
    assert places(store, "uid-stays") == {"seen", "planned", "nominated", "retry", "retries", "dead", "pending"}
    for uid in ("uid-went", "uid-bound", "uid-long-gone"):
        assert places(store, uid) == set()


def test_list_does_not_remove_what_is_newer_than_it(store, writer):
    writer.apply([Change.put("nodes", a_node("new", rv="20"))])
    writer.apply([Change.listed("nodes", "10", [], [])])
    assert view_keys(store, "nodes") == {"new"}


def test_many_changes_are_one_step_in_order(store, writer):
    pods = [a_pod(f"p{number}", rv=number + 1) for number in range(500)]
    assert len(writer.apply(put(*pods))) == 500
    writer.apply([Change.delete("pods", pod.metadata) for pod in pods[:250]])
    assert len(view_keys(store)) == 250
    assert len(pending(store)) == 250


def test_missing_pods_are_found_again(store, writer):
    writer.apply(put(a_pod("a"), a_pod("b"), a_pod("c"), a_pod("d")))
    queue(store, "b")
    store.redis.hset(store.keys.planned, "uid-d", "claim/c p")
    assert sorted(writer.missing()) == [("uid-a", "default/a"), ("uid-c", "default/c")]


def queue(store, *names):
    """Queues the pods in the window of `general`."""
    use_pool(store, "general", "uid-general")
    Batcher(store, "general", "uid-general").add([Item(f"uid-{name}", f"default/{name}") for name in names])


@pytest.mark.parametrize("deleted", ["stream", "batch"])
def test_pods_whose_stream_or_batch_was_deleted_by_hand_are_missing(store, writer, deleted):
    """f57: DEL of one stream key in the middle; what `seen` says then points nowhere."""
    writer.apply(put(a_pod("a"), a_pod("b")))
    queue(store, "a")
    if deleted == "batch":
        store.policy = WindowPolicy(idle_ms=0, max_ms=0)
    queue(store, "b")
    if deleted == "batch":
        lock = Lock(store, lock_name(0), 60_000)
        assert lock.acquire()
        batch = close_window(store, lock, "general").batch
        assert writer.missing() == [], "it is in a batch"
        store.redis.delete(f"{store.keys.prefix}batch:{batch}")
    else:
        assert writer.missing() == []
        store.redis.delete(store.keys.pending("general"))
    assert sorted(uid for uid, _ in writer.missing()) == ["uid-a", "uid-b"]
    assert store.redis.hlen(store.keys.seen) == 0


# Epochs and fences ----------------------------------------------------------------------------------------------------


def test_emptied_redis_refuses_every_write(store, writer):
    store.redis.flushall()
    for attempt in (lambda: writer.apply([]), lambda: writer.apply(put(a_pod())), writer.complete, writer.missing):
        with pytest.raises(EpochOver):
            attempt()
    assert store.redis.keys("*") == []


def test_deposed_watcher_changes_nothing(store, writer):
    writer.apply(put(a_pod("old")))
    newer = complete_writer(store, "e2", fence=2)
    with pytest.raises(Fenced) as raised:
        writer.apply(put(a_pod("late")))
    assert raised.value.fence == 2
    with pytest.raises(Fenced):
        ViewWriter(store, epoch="e3", fence=1, holder="me").begin()
    assert view_keys(store) == set()
    newer.apply([])


def test_same_watcher_in_an_older_epoch_is_refused(store, writer):
    complete_writer(store, "e2", fence=1)
    with pytest.raises(EpochOver):
        writer.apply(put(a_pod()))


def test_version_grows_over_epochs(store, writer):
    before = int(view_meta(store)["version"])
    complete_writer(store, "e2", fence=2)
    assert int(view_meta(store)["version"]) > before


def test_view_is_complete_only_when_every_kind_was_listed_and_claims_adopted(store):
    writer = ViewWriter(store, epoch="e1", fence=1, holder="me")
    assert writer.begin() == ""
    kinds = list(KINDS_BY_NAME)
    writer.apply([Change.listed(kind, "1", [], []) for kind in kinds[:-1]])
    assert not writer.complete()
    writer.apply([Change.listed(kinds[-1], "1", [], [])])
    assert not writer.complete(), "claims are not adopted yet"
    store.redis.set(store.keys.adopted, "e1")
    assert writer.complete()
    assert ViewWriter(store, epoch="e2", fence=2, holder="me").begin() == "e1"


# Reading --------------------------------------------------------------------------------------------------------------


def test_view_is_read_with_what_else_is_asked_for(store, writer):
    writer.apply([*put(a_pod("a"), a_pod("b")), Change.put("nodes", a_node())])
    view = read_view(store, ("pods", "nodes"), extra=(("HLEN", store.keys.view_pending),))
    assert sorted(pod.metadata.name for pod in view.pods) == ["a", "b"]
    assert [node.metadata.name for node in view.nodes] == ["node-1"]
    assert view.epoch == "e1"
    assert view.complete
    assert view.extra == [2]
    assert max(view.progress_age_seconds.values()) < 5


def test_single_objects_are_read_by_key(store, writer):
    writer.apply(put(a_pod("a"), a_pod("b")))
    view = read_view(store, {"pods": ["default/b", "default/none"], "nodes": []})
    assert [pod.key for pod in view.pods] == ["default/b"]
    assert view.nodes == []


def test_view_that_is_missing_incomplete_or_stale_is_refused(store):
    with pytest.raises(ViewNotReady, match="no watcher has written"):
        read_view(store, ("pods",))
    writer = ViewWriter(store, epoch="e1", fence=1, holder="me")
    writer.begin()
    with pytest.raises(ViewNotReady, match="not complete"):
        read_view(store, ("pods",))
    assert read_view(store, ("pods",), require_ready=False).pods == []
    complete_writer(store, "e2", fence=2)
    read_view(store, ("pods",))
    store.redis.hset(store.keys.view_meta, "progress:nodes", store.now_ms() - 31_000)
    with pytest.raises(ViewNotReady, match="watch of nodes has shown no sign of life for 31 s"):
        read_view(store, ("pods",))


def test_every_kept_kind_has_its_metadata_first():
    """The scripts look for the resourceVersion from the left."""
    for kind in KINDS_BY_NAME.values():
        thing = kind.as_type(metadata=ObjectMeta(name="x", uid="u", resource_version="1"))
        assert Change.put(kind.name, thing).value.startswith(b'{"metadata":{"name":"x","uid":"u","resourceVersion"')
