"""Discovery and transport: lines 1 to 8 of the conformance list."""

import pytest

from tests.contract.kube_api.cluster import Api, a_config_map

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
GROUPS = [
    "apps",
    "autoscaling",
    "policy",
    "coordination.k8s.io",
    "apiextensions.k8s.io",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "events.k8s.io",
    "authorization.k8s.io",
    "batch",
]


def test_version_and_health(api):
    version = api.get("/version").body
    assert int(version["major"]) == 1
    assert int(version["minor"].rstrip("+")) > 20
    assert version["gitVersion"].startswith("v")
    for path in ("/healthz", "/livez", "/readyz"):
        assert api.get(path).body == b"ok"


def test_core_resources(api):
    listed = api.get("/api/v1").body
    assert listed["kind"] == "APIResourceList"
    assert listed["groupVersion"] == "v1"
    resources = {resource["name"]: resource for resource in listed["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods"]["namespaced"] is True
    assert {"create", "get", "list", "watch", "patch", "update", "delete"} <= set(resources["pods"]["verbs"])
    assert {"pods/status", "pods/binding", "pods/log", "nodes/status"} <= set(resources)
    assert resources["pods/eviction"]["kind"] == "Eviction"
    assert resources["pods/eviction"]["group"] == "policy"


def test_groups(api):
    listed = api.get("/apis").body
    assert listed["kind"] == "APIGroupList"
    assert set(GROUPS) <= {group["name"] for group in listed["groups"]}
    assert api.get("/apis/apps").body["preferredVersion"]["groupVersion"] == "apps/v1"


def test_scale_is_of_the_autoscaling_group(api):
    resources = {resource["name"]: resource for resource in api.get("/apis/apps/v1").body["resources"]}
    for name in ("deployments/scale", "statefulsets/scale"):
        assert resources[name]["kind"] == "Scale"
        assert resources[name]["group"] == "autoscaling"


@pytest.mark.parametrize(("root", "plural"), [("/api", "pods"), ("/apis", "deployments")])
def test_aggregated_discovery(api, root, plural):
    answer = api.get(root, accept=AGGREGATED)
    if "g=apidiscovery.k8s.io" not in answer.headers["Content-Type"]:
        assert answer.headers["Content-Type"].startswith("application/json")
        return
    resources = {
        resource["resource"]: resource
        for group in answer.body["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }
    assert resources[plural]["scope"] == "Namespaced"
    assert "status" in {sub["subresource"] for sub in resources[plural]["subresources"]}


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1"])
def test_openapi_says_what_kubectl_asks(api, path):
    index = api.get("/openapi/v3").body["paths"]
    document = api.get(index[path]["serverRelativeURL"]).body
    found = 0
    for operations in document["paths"].values():
        for verb in ("post", "patch"):
            operation = operations.get(verb)
            if operation and "x-kubernetes-group-version-kind" in operation:
                parameters = [*operations.get("parameters", []), *operation.get("parameters", [])]
                found += "fieldValidation" in {parameter.get("name") for parameter in parameters}
    assert found > 5


def test_wrong_and_missing_tokens_are_refused(kubeconfig):
    wrong = Api(kubeconfig, token="wrong").get("/api/v1/pods")
    assert wrong.status == 401
    assert wrong.body["kind"] == "Status"
    assert wrong.reason == "Unauthorized"
    assert Api(kubeconfig, token="").get("/api/v1/pods").status in (401, 403)


def test_yaml_bodies(api, config_maps):
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  date: 2026-01-01\n  text: |\n    a\n"
    created = api.post(config_maps, body.replace("2026-01-01", '"2026-01-01"'), media="application/yaml")
    assert created.status == 201
    assert created.body["data"] == {"date": "2026-01-01", "text": "a\n"}


def test_who_would_like_protobuf_and_takes_json_gets_something(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    answer = api.get(f"{config_maps}/a", accept="application/vnd.kubernetes.protobuf,application/json")
    assert answer.status == 200


def test_protobuf_bodies(api, config_maps):
    """A ConfigMap as kubectl encodes it: envelope with type, and the object's own fields behind it."""

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    raw = field(1, field(1, b"proto")) + field(2, field(1, b"key") + field(2, b"value"))
    body = (
        b"k8s\x00" + field(1, field(1, b"v1") + field(2, b"ConfigMap")) + field(2, raw) + field(3, b"") + field(4, b"")
    )
    created = api.post(config_maps, body, media="application/vnd.kubernetes.protobuf")
    assert created.status == 201
    assert created.body["data"] == {"key": "value"}
