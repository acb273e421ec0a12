"""Nodes and the first objects of a cluster: line 51 of the conformance list."""

from tests.contract.kube_api.cluster import a_pod


def test_a_new_node_is_not_ready(api, unique):
    spec = {"providerID": f"sim:///{unique}", "taints": [{"key": "example.com/a", "effect": "NoExecute"}]}
    node = api.post("/api/v1/nodes", {"metadata": {"name": unique, "labels": {"a": "b"}}, "spec": spec}).body
    assert node["spec"]["providerID"] == f"sim:///{unique}"
    assert node["metadata"]["labels"]["a"] == "b"
    taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
    assert taints == {("example.com/a", "NoExecute"), ("node.kubernetes.io/not-ready", "NoSchedule")}
    refused = api.patch(f"/api/v1/nodes/{unique}", {"spec": {"providerID": "other"}})
    assert refused.status == 422
    api.delete(f"/api/v1/nodes/{unique}")


def test_first_namespaces_and_priorities(api):
    names = {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").body["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names
    default = api.get("/api/v1/namespaces/default").body
    assert default["metadata"]["labels"]["kubernetes.io/metadata.name"] == "default"
    assert default["status"]["phase"] == "Active"
    assert default["spec"]["finalizers"] == ["kubernetes"]
    priority = api.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").body
    assert priority["value"] == 2_000_001_000


def test_gated_pods_say_so(api, pods):
    pod = api.post(pods, a_pod("web", schedulingGates=[{"name": "example.com/wait"}])).body
    (condition,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    opened = api.patch(f"{pods}/web", {"spec": {"schedulingGates": None}})
    assert opened.status == 200
    assert "schedulingGates" not in opened.body["spec"]
