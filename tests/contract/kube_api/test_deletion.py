"""Deletion: lines 43 to 48 of the conformance list, as far as no controller has a part in it."""

import pytest

from tests.contract.kube_api.cluster import JSON_PATCH, a_binding, a_config_map, a_pod


def keep(api, path, name):
    body = a_config_map(name)
    body["metadata"]["finalizers"] = ["example.com/keep"]
    return api.post(path, body).body


def test_without_finalizers(api, config_maps):
    uid = api.post(config_maps, a_config_map("a")).body["metadata"]["uid"]
    answer = api.delete(f"{config_maps}/a")
    assert answer.status == 200
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert api.get(f"{config_maps}/a").status == 404
    assert api.delete(f"{config_maps}/a").status == 404


def test_with_finalizers(api, config_maps):
    first = keep(api, config_maps, "a")
    watch = api.watch(config_maps, resourceVersion=first["metadata"]["resourceVersion"])
    answer = api.delete(f"{config_maps}/a")
    assert answer.status == 200
    assert answer.body["metadata"]["deletionTimestamp"]
    assert api.delete(f"{config_maps}/a").status == 200
    api.patch(f"{config_maps}/a", {"metadata": {"finalizers": None}})
    assert api.get(f"{config_maps}/a").status == 404
    assert [type_ for type_, _ in watch.take(2)] == ["MODIFIED", "DELETED"]


def test_nothing_new_holds_what_is_being_deleted(api, config_maps):
    keep(api, config_maps, "a")
    stamp = api.delete(f"{config_maps}/a").body["metadata"]["deletionTimestamp"]
    refused = api.patch(f"{config_maps}/a", {"metadata": {"finalizers": ["example.com/keep", "example.com/new"]}})
    assert (refused.status, refused.reason) == (422, "Invalid")
    api.patch(f"{config_maps}/a", {"metadata": {"deletionTimestamp": None}, "data": {"key": "1"}})
    found = api.get(f"{config_maps}/a").body
    assert found["metadata"]["deletionTimestamp"] == stamp
    api.patch(f"{config_maps}/a", {"metadata": {"finalizers": None}})


def test_deletion_timestamp_cannot_be_set(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    api.patch(f"{config_maps}/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert "deletionTimestamp" not in api.get(f"{config_maps}/a").body["metadata"]


@pytest.fixture
def bound(api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody", terminationGracePeriodSeconds=20))
    api.post(f"{pods}/web/binding", a_binding("web", node))
    return f"{pods}/web"


def test_a_bound_pod_waits_for_its_kubelet(api, bound):
    answer = api.delete(bound)
    assert answer.status == 200
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert answer.body["metadata"]["deletionTimestamp"] > answer.body["metadata"]["creationTimestamp"]
    again = api.delete(bound)
    assert again.body["metadata"]["deletionTimestamp"] == answer.body["metadata"]["deletionTimestamp"]
    shorter = api.delete(bound, gracePeriodSeconds=5).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < answer.body["metadata"]["deletionTimestamp"]
    assert api.delete(bound, {"gracePeriodSeconds": 0}).status == 200
    assert api.get(bound).status == 404


def test_an_unbound_pod_goes_at_once(api, pods):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    answer = api.delete(f"{pods}/web")
    assert answer.status == 200
    assert answer.body["kind"] == "Pod"
    assert api.get(f"{pods}/web").status == 404


def test_an_ended_pod_goes_at_once(api, bound):
    api.patch(f"{bound}/status", {"status": {"phase": "Succeeded"}})
    api.delete(bound)
    assert api.get(bound).status == 404


def test_preconditions(api, config_maps):
    first = api.post(config_maps, a_config_map("a")).body["metadata"]
    for wrong in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}):
        answer = api.delete(f"{config_maps}/a", {"preconditions": wrong})
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "in the precondition" in answer.message
    right = {"uid": first["uid"], "resourceVersion": first["resourceVersion"]}
    assert api.delete(f"{config_maps}/a", {"preconditions": right}).status == 200


@pytest.mark.parametrize(("policy", "finalizer"), [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")])
def test_propagation_policies_leave_the_object_to_the_garbage_collector(api, config_maps, policy, finalizer):
    first = keep(api, config_maps, "a")
    watch = api.watch(config_maps, resourceVersion=first["metadata"]["resourceVersion"])
    api.delete(f"{config_maps}/a", {"propagationPolicy": policy})
    ((_, changed),) = watch.take(1)
    assert finalizer in changed["metadata"]["finalizers"]
    api.patch(f"{config_maps}/a", {"metadata": {"finalizers": None}})


def test_unknown_propagation_policy(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    assert api.delete(f"{config_maps}/a", {"propagationPolicy": "Sideways"}).status == 422


def test_a_namespace_in_deletion_takes_nothing_new(api, unique):
    api.post("/api/v1/namespaces", {"metadata": {"name": unique}})
    path = f"/api/v1/namespaces/{unique}/configmaps"
    keep(api, path, "kept")
    answer = api.delete(f"/api/v1/namespaces/{unique}")
    assert answer.status == 200
    assert answer.body["status"]["phase"] == "Terminating"
    refused = api.post(path, a_config_map("new"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "is being terminated" in refused.message
    api.patch(f"{path}/kept", [{"op": "remove", "path": "/metadata/finalizers"}], media=JSON_PATCH)


def test_a_namespace_goes_with_its_last_finalizer(api, unique):
    """As the namespace controller does it: empty spec.finalizers through the finalize sub-resource."""
    api.post("/api/v1/namespaces", {"metadata": {"name": unique}})
    path = f"/api/v1/namespaces/{unique}"
    body = api.delete(path).body
    body["spec"]["finalizers"] = []
    assert api.put(f"{path}/finalize", body).status in (200, 404, 409)


def test_the_first_namespaces_stay(api):
    assert api.delete("/api/v1/namespaces/default").status == 403
