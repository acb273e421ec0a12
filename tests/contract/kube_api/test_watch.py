"""Watches: lines 28 to 36 of the conformance list."""

import itertools
import json
import time

import pytest

from tests.contract.kube_api.cluster import TABLE, a_binding, a_config_map, a_pod, is_gone


def told(events):
    return [(type_, obj["metadata"]["name"]) for type_, obj in events]


def current(api, path):
    return api.get(path).body["metadata"]["resourceVersion"]


def test_from_a_version_come_later_events_in_order(api, config_maps):
    api.post(config_maps, a_config_map("before"))
    version = current(api, config_maps)
    watch = api.watch(config_maps, resourceVersion=version)
    api.post(config_maps, a_config_map("a", key="1"))
    api.patch(f"{config_maps}/a", {"data": {"key": "2"}})
    api.delete(f"{config_maps}/a")
    events = watch.take(3)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    assert events[2][1]["data"] == {"key": "2"}
    assert events[2][1]["kind"] == "ConfigMap"


def test_without_version_what_exists_comes_first(api, pods):
    for name in ("a", "b"):
        api.post(pods, a_pod(name))
    watch = api.watch(pods)
    api.post(pods, a_pod("c"))
    assert sorted(told(watch.take(3))) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_resume_replays_each_missed_event_once(api, config_maps):
    version = current(api, config_maps)
    for number in range(5):
        api.post(config_maps, a_config_map(f"m{number}"))
    first = api.watch(config_maps, resourceVersion=version).take(3)
    seen = first[-1][1]["metadata"]["resourceVersion"]
    rest = api.watch(config_maps, resourceVersion=seen).take(2)
    assert told(first + rest) == [("ADDED", f"m{number}") for number in range(5)]


def test_labels_in_and_out_of_the_selector(api, config_maps):
    api.post(config_maps, a_config_map("a", {"tier": "web"}))
    watch = api.watch(config_maps, resourceVersion=current(api, config_maps), labelSelector="tier=web")
    for tier in ("db", "web", "web"):
        api.patch(f"{config_maps}/a", {"metadata": {"labels": {"tier": tier}}})
    api.patch(f"{config_maps}/a", {"data": {"key": "1"}})
    events = watch.take(3)
    assert told(events) == [("DELETED", "a"), ("ADDED", "a"), ("MODIFIED", "a")]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))


def test_a_bind_moves_a_pod_between_watches(api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    version = current(api, pods)
    free = api.watch(pods, resourceVersion=version, fieldSelector="spec.nodeName=")
    bound = api.watch(pods, resourceVersion=version, fieldSelector=f"spec.nodeName={node}")
    api.post(f"{pods}/web/binding", a_binding("web", node))
    assert told(free.take(1)) == [("DELETED", "web")]
    ((type_, pod),) = bound.take(1)
    assert type_ == "ADDED"
    assert pod["spec"]["nodeName"] == node


def test_time_out_ends_cleanly_behind_a_bookmark(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    version = current(api, config_maps)
    begun = time.monotonic()
    watch = api.watch(config_maps, resourceVersion=version, seconds=3, allowWatchBookmarks="true")
    api.patch(f"{config_maps}/a", {"data": {"key": "1"}})
    changed = api.get(f"{config_maps}/a").body["metadata"]["resourceVersion"]
    events = list(watch)
    assert 2.5 < time.monotonic() - begun < 8
    assert events[0][0] == "MODIFIED"
    bookmarks = [obj for type_, obj in events if type_ == "BOOKMARK"]
    assert bookmarks
    assert int(bookmarks[-1]["metadata"]["resourceVersion"]) >= int(changed)
    assert bookmarks[-1]["kind"] == "ConfigMap"


def test_initial_events_end_with_a_bookmark(api, pods):
    for name in ("a", "b"):
        api.post(pods, a_pod(name))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watch = api.watch(pods, seconds=3, **query)
    first, second, third = itertools.islice(watch, 3)
    watch.close()
    assert sorted(told([first, second])) == [("ADDED", "a"), ("ADDED", "b")]
    assert third[0] == "BOOKMARK"
    assert third[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_initial_events_need_their_parameters(api, pods):
    assert api.get(pods, watch="true", sendInitialEvents="true").status == 422


def test_a_version_that_is_too_old(api, widgets, widget):
    """Of a resource that is younger than the server: what a new server was told first, it still has."""
    api.post(widgets, widget("a"))
    answer = api.get(widgets, watch="true", resourceVersion="1", timeoutSeconds=1)
    assert is_gone(answer)
    assert "too old resource version" in json.dumps(answer.body)


@pytest.mark.parametrize("spelling", ["1", "true"])
def test_spellings_of_watch(api, config_maps, spelling):
    version = current(api, config_maps)
    api.post(config_maps, a_config_map("a"))
    watch = api.watch(config_maps, resourceVersion=version, watch=spelling)
    assert told(watch.take(1)) == [("ADDED", "a")]


def test_watch_of_one_name(api, config_maps):
    version = current(api, config_maps)
    watch = api.watch(config_maps, resourceVersion=version, fieldSelector="metadata.name=b")
    for name in ("a", "b"):
        api.post(config_maps, a_config_map(name))
    assert told(watch.take(1)) == [("ADDED", "b")]


def test_watch_as_tables(api, pods):
    api.post(pods, a_pod("web"))
    watch = api.watch(pods, accept=TABLE)
    api.patch(f"{pods}/web/status", {"status": {"phase": "Running"}})
    first, second = itertools.islice(watch, 2)
    watch.close()
    assert first[0] == "ADDED"
    assert first[1]["kind"] == "Table"
    assert [column["name"] for column in first[1]["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert second[0] == "MODIFIED"
    assert second[1]["rows"][0]["cells"][2] == "Running"


def test_watch_over_all_namespaces(api, config_maps, unique):
    version = current(api, "/api/v1/configmaps")
    watch = api.watch("/api/v1/configmaps", resourceVersion=version, labelSelector=f"only={unique}")
    api.post(config_maps, a_config_map("a", {"only": unique}))
    assert told(watch.take(1)) == [("ADDED", "a")]


def test_five_watchers_see_every_event(api, leases):
    version = current(api, leases)
    watches = [api.watch(leases, resourceVersion=version, seconds=20) for _ in range(5)]
    for number in range(200):
        api.post(leases, {"metadata": {"name": f"m{number:03}"}, "spec": {}})
    wanted = [("ADDED", f"m{number:03}") for number in range(200)]
    for watch in watches:
        assert told(watch.take(200)) == wanted
