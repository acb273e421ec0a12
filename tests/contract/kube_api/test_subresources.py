"""Sub-resources: lines 37 to 42 of the conformance list."""

import pytest

from tests.contract.kube_api.cluster import a_binding, a_deployment, a_pod


@pytest.fixture
def bound(api, pods, node):
    """Path of a pod that is bound to a node without a kubelet."""
    api.post(pods, a_pod("web", labels={"app": "web"}, schedulerName="nobody"))
    answer = api.post(f"{pods}/web/binding", a_binding("web", node))
    assert answer.status == 201
    assert answer.body["status"] == "Success"
    return f"{pods}/web"


def test_binding(api, pods, node, bound):
    pod = api.get(bound).body
    assert pod["spec"]["nodeName"] == node
    (scheduled,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled["status"] == "True"
    assert scheduled["lastTransitionTime"]
    again = api.post(f"{bound}/binding", a_binding("web", "other"))
    assert (again.status, again.reason) == (409, "Conflict")
    assert f'already assigned to node "{node}"' in again.message
    assert api.get(bound).body == pod
    assert api.post(f"{pods}/none/binding", a_binding("none", node)).status == 404
    assert api.post(f"{pods}/web/binding", a_binding("other", node)).status == 400
    assert api.post(f"{pods}/web/binding", {"metadata": {"name": "web"}, "target": {}}).status == 500


def test_binding_by_the_collection_of_bindings(api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    assert api.post(pods.replace("/pods", "/bindings"), a_binding("web", node)).status == 201
    assert api.get(f"{pods}/web").body["spec"]["nodeName"] == node


def test_binding_to_a_pod_of_another_uid(api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    assert api.post(f"{pods}/web/binding", a_binding("web", node, uid="0")).status == 409


def test_binding_of_a_pod_in_deletion(api, pods, node):
    pod = a_pod("web", schedulerName="nobody")
    pod["metadata"]["finalizers"] = ["example.com/keep"]
    api.post(pods, pod)
    api.delete(f"{pods}/web")
    answer = api.post(f"{pods}/web/binding", a_binding("web", node))
    assert answer.status == 409
    api.patch(f"{pods}/web", {"metadata": {"finalizers": None}})


def test_status_and_spec_are_written_apart(api, pods, node, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    body = {"spec": {"paused": True}, "status": {"observedGeneration": 7}}
    main = api.patch(f"{deployments}/web", body).body
    assert main["spec"]["paused"] is True
    assert main["status"].get("observedGeneration") != 7
    status = api.patch(f"{deployments}/web/status", {"spec": {"paused": False}, "status": {"readyReplicas": 0}}).body
    assert status["spec"]["paused"] is True
    capacity = {"cpu": "1000m", "memory": "1024Mi"}
    answer = api.patch(
        f"/api/v1/nodes/{node}/status", {"status": {"capacity": capacity}, "spec": {"podCIDR": "1"}}
    ).body
    assert answer["status"]["capacity"] == {"cpu": "1", "memory": "1Gi"}
    assert "podCIDR" not in answer["spec"]
    assert api.get(f"/api/v1/nodes/{node}/status").body == api.get(f"/api/v1/nodes/{node}").body


def an_eviction(name, **options):
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}


def test_eviction_deletes(api, pods):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    answer = api.post(f"{pods}/web/eviction", an_eviction("web"))
    assert answer.status == 201
    assert answer.body["status"] == "Success"
    assert api.get(f"{pods}/web").status == 404
    assert api.post(f"{pods}/web/eviction", an_eviction("web")).status == 404


def test_eviction_honours_and_charges_the_budget(api, namespace, pods, node, bound):
    """Every number is set by hand: the test says nothing about who computes a budget's status."""
    api.patch(f"{bound}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    budget = api.post(budgets, {"metadata": {"name": "pdb"}, "spec": spec}).body
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    status["expectedPods"] = 1
    api.put(f"{budgets}/pdb/status", {**budget, "status": status})
    refused = api.post(f"{bound}/eviction", an_eviction("web"))
    assert (refused.status, refused.reason) == (429, "TooManyRequests")
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.message
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert api.get(bound).status == 200
    status |= {"disruptionsAllowed": 1, "desiredHealthy": 0}
    api.patch(f"{budgets}/pdb/status", {"status": status})
    assert api.post(f"{bound}/eviction", an_eviction("web")).status == 201
    assert api.get(f"{budgets}/pdb").body["status"]["disruptionsAllowed"] == 0
    pod = api.get(bound).body
    assert pod["metadata"]["deletionTimestamp"]
    assert "DisruptionTarget" in {c["type"] for c in pod["status"]["conditions"]}
    api.delete(bound, gracePeriodSeconds=0)


def test_scale_of_a_deployment(api, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    path = f"{deployments}/web/scale"
    scale = api.get(path).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["status"]["selector"] == "app=web"
    assert scale["spec"].get("replicas", 0) == 0
    scale["spec"]["replicas"] = 3
    changed = api.put(path, scale)
    assert changed.status == 200
    assert changed.body["spec"]["replicas"] == 3
    deployment = api.get(f"{deployments}/web").body
    assert deployment["spec"]["replicas"] == 3
    assert deployment["metadata"]["generation"] == 2
    assert api.put(path, scale).status == 409
    assert api.patch(path, {"spec": {"replicas": 0}}).body["spec"].get("replicas", 0) == 0
    assert api.patch(path, {"spec": {"replicas": -1}}).status == 422
    assert api.get(f"{deployments}/none/scale").status == 404


def test_scale_of_custom_resources(api, widgets, widget):
    api.post(widgets, widget("a", replicas=2))
    api.patch(f"{widgets}/a/status", {"status": {"replicas": 1, "selector": "app=a"}})
    scale = api.get(f"{widgets}/a/scale").body
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=a"}
    scale["spec"]["replicas"] = 5
    assert api.put(f"{widgets}/a/scale", scale).status == 200
    found = api.get(f"{widgets}/a").body
    assert found["spec"]["replicas"] == 5
    assert found["metadata"]["generation"] == 2


def test_what_has_no_scale(api, config_maps):
    assert api.get(f"{config_maps}/a/scale").status == 404


def test_log_without_kubelet(api, pods, bound):
    api.post(pods, a_pod("free", schedulerName="nobody"))
    assert api.get(f"{pods}/free/log").status in (200, 204)
    answer = api.get(f"{bound}/log")
    assert answer.status >= 400
    assert answer.body["kind"] == "Status"


def test_access_reviews(api):
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer.status == 201
    assert answer.body["status"]["allowed"] is True


def test_events_in_both_groups(api, namespace):
    events = f"/api/v1/namespaces/{namespace}/events"
    about = {"kind": "Pod", "name": "web", "namespace": namespace}
    body = {"metadata": {"name": "web.1"}, "involvedObject": about, "reason": "Tested", "message": "hello"}
    assert api.post(events, body).status == 201
    assert len(api.get(events, fieldSelector="involvedObject.name=web").body["items"]) == 1
    assert api.get(events, fieldSelector="involvedObject.name=other").body["items"] == []
    (found,) = api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    assert found["note"] == "hello"
    assert found["regarding"]["name"] == "web"
    assert "involvedObject" not in found
    newer = {
        "metadata": {"name": "web.2"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": about,
        "note": "newer",
        "reason": "Tested",
        "action": "Testing",
        "type": "Normal",
        "reportingController": "example.com/test",
        "reportingInstance": "one",
    }
    answer = api.post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", newer)
    assert answer.status == 201, answer.body
    assert answer.body["note"] == "newer"
    assert api.get(f"{events}/web.2").body["message"] == "newer"
