"""Versions and updates: lines 14 to 17 of the conformance list."""

from concurrent.futures import ThreadPoolExecutor

from tests.contract.kube_api.cluster import a_config_map, a_deployment, a_pod


def version(body):
    return int(body["metadata"]["resourceVersion"])


def test_one_version_rises_over_all_kinds(api, pods, config_maps, deployments):
    versions = [
        version(api.post(config_maps, a_config_map("a")).body),
        version(api.post(pods, a_pod("a")).body),
        version(api.post(deployments, a_deployment("a", replicas=0)).body),
        version(api.patch(f"{config_maps}/a", {"data": {"key": "1"}}).body),
    ]
    assert versions == sorted(set(versions))


def test_put_needs_the_current_version(api, config_maps):
    first = api.post(config_maps, a_config_map("a", key="1", other="2")).body
    changed = {**first, "data": {"key": "2"}}
    second = api.put(f"{config_maps}/a", changed)
    assert second.status == 200
    assert version(second.body) > version(first)
    assert second.body["metadata"]["uid"] == first["metadata"]["uid"]
    assert second.body["data"] == {"key": "2"}
    stale = api.put(f"{config_maps}/a", changed)
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_nothing_changed_nothing_written(api, config_maps):
    first = api.post(config_maps, a_config_map("a", key="1")).body
    watch = api.watch(config_maps, resourceVersion=first["metadata"]["resourceVersion"])
    again = api.put(f"{config_maps}/a", first)
    assert again.status == 200
    assert version(again.body) == version(first)
    api.patch(f"{config_maps}/a", {"data": {"key": "2"}})
    (only,) = watch.take(1)
    assert only[1]["data"] == {"key": "2"}


def test_put_of_another_name(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    assert api.put(f"{config_maps}/a", a_config_map("b")).status == 400


def test_put_of_another_uid(api, config_maps):
    first = api.post(config_maps, a_config_map("a")).body
    first["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    assert api.put(f"{config_maps}/a", first).status == 409


def test_put_without_version_where_it_must_be(api, leases):
    api.post(leases, {"metadata": {"name": "a"}, "spec": {}})
    refused = api.put(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    assert refused.status == 422
    assert "metadata.resourceVersion" in refused.message


def test_put_of_what_is_not_there(api, config_maps):
    assert api.put(f"{config_maps}/a", a_config_map("a")).status == 404


def test_pod_spec_is_fixed(api, pods):
    api.post(pods, a_pod("web"))
    refused = api.patch(f"{pods}/web", {"spec": {"nodeName": "somewhere"}})
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert "pod updates may not change fields other than" in refused.message
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "nginx:1.27"}]
    assert api.patch(f"{pods}/web", image, media="application/json-patch+json").status == 200
    toleration = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}}]
    assert api.patch(f"{pods}/web", toleration, media="application/json-patch+json").status == 200


def test_selectors_are_fixed(api, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    body = {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}}}
    refused = api.patch(f"{deployments}/web", body)
    assert refused.status == 422
    assert "field is immutable" in refused.message


def test_generation_counts_changes_of_the_spec_only(api, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    path = f"{deployments}/web"
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).body["metadata"]["generation"] == 1
    assert api.patch(path, {"spec": {"minReadySeconds": 1}}).body["metadata"]["generation"] == 2


def test_two_holders_of_one_lease(api, leases):
    """Leader election rests on it: of two writers with one version, one wins."""
    lease = api.post(leases, {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 15}}).body
    bodies = [{**lease, "spec": {"holderIdentity": name}} for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda body: api.put(f"{leases}/a", body), bodies))
    assert sorted(answer.status for answer in answers) == [200, 409]
    winner = next(answer for answer in answers if answer.status == 200)
    assert api.get(f"{leases}/a").body == winner.body
