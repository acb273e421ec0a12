"""Create and errors: lines 9 to 13 of the conformance list."""

import re

import pytest

from tests.contract.kube_api.cluster import a_config_map, a_container, a_deployment, a_pod


def test_what_a_created_object_has(api, pods, deployments):
    created = api.post(pods, a_pod("web"))
    assert created.status == 201
    metadata = created.body["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdigit()
    assert metadata["namespace"] == pods.split("/")[4]
    assert api.post(deployments, a_deployment("web")).body["metadata"]["generation"] == 1


def test_pod_defaults(api, pods):
    pod = api.post(pods, a_pod("web")).body
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["qosClass"] == "BestEffort"
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["priority"] == 0
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    tolerations = {t["key"]: t for t in spec["tolerations"]}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert tolerations[key] == {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_quality_of_service(api, pods, resources, quality):
    pod = api.post(pods, a_pod(containers=[a_container(resources=resources)])).body
    assert pod["status"]["qosClass"] == quality


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1e3", "1e3"),
        ("0.1Gi", "107374182400m"),
        ("2000Mi", "2000Mi"),
        (2, "2"),
        (0.5, "500m"),
        ("0", "0"),
    ],
)
def test_quantities_have_one_form(api, pods, given, stored):
    requests = {"memory": given}
    pod = api.post(pods, a_pod(containers=[a_container(resources={"requests": requests})]))
    assert pod.status == 201, pod.body
    assert pod.body["spec"]["containers"][0]["resources"]["requests"]["memory"] == stored


def test_priority_comes_from_the_class(api, pods, unique):
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert api.post(classes, {"metadata": {"name": unique}, "value": 77}).status == 201
    pod = api.post(pods, a_pod("web", priorityClassName=unique)).body
    assert pod["spec"]["priority"] == 77
    assert pod["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    refused = api.post(pods, a_pod("other", priorityClassName="no-such-class"))
    assert refused.status == 403
    assert refused.reason == "Forbidden"
    assert refused.message == 'pods "other" is forbidden: no PriorityClass with name no-such-class was found'
    api.delete(f"{classes}/{unique}")


def test_generated_names_and_new_uids(api, pods, config_maps):
    name = api.post(pods, a_pod()).body["metadata"]["name"]
    assert re.fullmatch(r"pod-[a-z0-9]{5}", name)
    first = api.post(config_maps, a_config_map("again")).body["metadata"]["uid"]
    api.delete(f"{config_maps}/again")
    assert api.post(config_maps, a_config_map("again")).body["metadata"]["uid"] != first


def refusals(answer, status, reason):
    assert (answer.status, answer.reason) == (status, reason), answer.body
    assert answer.body["kind"] == "Status"
    assert answer.body["apiVersion"] == "v1"
    assert answer.body["status"] == "Failure"
    assert answer.body["code"] == status
    return answer


def test_already_exists(api, pods):
    api.post(pods, a_pod("web"))
    answer = refusals(api.post(pods, a_pod("web")), 409, "AlreadyExists")
    assert answer.message == 'pods "web" already exists'
    assert answer.body["details"] == {"name": "web", "kind": "pods"}


def test_not_found(api, pods, deployments):
    assert refusals(api.get(f"{pods}/x"), 404, "NotFound").message == 'pods "x" not found'
    answer = refusals(api.get(f"{deployments}/x"), 404, "NotFound")
    assert answer.message == 'deployments.apps "x" not found'
    assert answer.body["details"] == {"name": "x", "group": "apps", "kind": "deployments"}
    assert api.get("/apis/example.invalid/v1/things").status == 404
    assert api.get("/api/v1/things").status == 404
    assert refusals(api.post("/api/v1/namespaces/no-such/pods", a_pod("web")), 404, "NotFound").message == (
        'namespaces "no-such" not found'
    )


def test_namespace_mismatch(api, pods):
    pod = a_pod("web")
    pod["metadata"]["namespace"] = "elsewhere"
    refusals(api.post(pods, pod), 400, "BadRequest")


def test_invalid_objects_name_their_fields(api, pods):
    answer = refusals(api.post(pods, {**a_pod("web"), "spec": {"containers": []}}), 422, "Invalid")
    causes = {cause["field"]: cause["reason"] for cause in answer.body["details"]["causes"]}
    assert causes["spec.containers"] == "FieldValueRequired"
    assert 'Pod "web" is invalid: spec.containers: Required value' in answer.message
    assert answer.body["details"]["kind"] == "Pod"
    assert answer.body["details"]["name"] == "web"


@pytest.mark.parametrize("name", ["Web", "web_1", "-web", "web.", "a" * 254])
def test_names_that_are_none(api, pods, name):
    answer = refusals(api.post(pods, a_pod(name)), 422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


def test_neither_name_nor_prefix(api, pods):
    pod = a_pod("web")
    del pod["metadata"]["name"]
    answer = refusals(api.post(pods, pod), 422, "Invalid")
    assert "name or generateName is required" in answer.message


def test_requests_beyond_limits(api, pods):
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    answer = refusals(api.post(pods, a_pod("web", containers=[a_container(resources=resources)])), 422, "Invalid")
    assert "must be less than or equal to cpu limit of 1" in answer.message


def test_selector_must_match_the_template(api, deployments):
    deployment = a_deployment("web", selector={"matchLabels": {"app": "other"}})
    answer = refusals(api.post(deployments, deployment), 422, "Invalid")
    assert "`selector` does not match template `labels`" in answer.message
    assert answer.body["details"]["causes"][0]["field"] == "spec.template.metadata.labels"


def test_bodies_that_cannot_be_read(api, pods):
    refusals(api.post(pods, "{broken"), 400, "BadRequest")
    refusals(api.post(pods, "a: [", media="application/yaml"), 400, "BadRequest")
    refusals(api.post(pods, {**a_pod("web"), "kind": "Node"}), 400, "BadRequest")
    refusals(api.post(pods, {**a_pod("web"), "apiVersion": "v2"}), 400, "BadRequest")
    refusals(api.post(pods, {**a_pod("web"), "spec": {"containers": "none"}}), 400, "BadRequest")
    refusals(api.post(pods, a_pod("web", terminationGracePeriodSeconds="soon")), 400, "BadRequest")
    bad = a_pod("web", containers=[a_container(resources={"requests": {"cpu": "much"}})])
    refusals(api.post(pods, bad), 400, "BadRequest")
    refusals(api.post(pods, "<pod/>", media="application/xml"), 415, "UnsupportedMediaType")


def test_unknown_fields(api, pods):
    """Strict refuses them, Warn (the default) and Ignore drop them."""
    pod = a_pod("web", colour="red")
    answer = refusals(api.post(pods, pod, fieldValidation="Strict"), 400, "BadRequest")
    assert 'unknown field "spec.colour"' in answer.message
    warned = api.post(pods, pod)
    assert warned.status == 201
    assert "colour" not in warned.body["spec"]
    assert 'unknown field \\"spec.colour\\"' in warned.headers["Warning"]
    ignored = api.post(pods, a_pod("ignored", colour="red"), fieldValidation="Ignore")
    assert ignored.status == 201
    assert "Warning" not in ignored.headers


def test_methods_that_are_not_served(api, pods):
    refusals(api.put(pods, a_pod("web")), 405, "MethodNotAllowed")
    refusals(api.post(f"{pods}/web", a_pod("web")), 405, "MethodNotAllowed")
    refusals(api.post("/api/v1/pods", a_pod("web")), 405, "MethodNotAllowed")


def test_dry_run_stores_nothing(api, pods, config_maps):
    tried = api.post(pods, a_pod("web"), dryRun="All")
    assert tried.status == 201
    assert tried.body["metadata"]["uid"]
    assert tried.body["spec"]["restartPolicy"] == "Always"
    assert api.get(f"{pods}/web").status == 404
    api.post(config_maps, a_config_map("a", key="old"))
    assert api.patch(f"{config_maps}/a", {"data": {"key": "new"}}, dryRun="All").body["data"] == {"key": "new"}
    assert api.delete(f"{config_maps}/a", dryRun="All").status == 200
    assert api.get(f"{config_maps}/a").body["data"] == {"key": "old"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-01-02T03:04:05.678901+01:00", "2026-01-02T02:04:05.678901Z"),
        ("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456Z"),
    ],
)
def test_times_have_one_form(api, leases, given, stored):
    lease = api.post(leases, {"metadata": {"name": "a"}, "spec": {"renewTime": given}})
    assert lease.body["spec"]["renewTime"] == stored


@pytest.mark.parametrize("time", ["yesterday", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z"])
def test_times_that_are_none(api, leases, time):
    """Microseconds have six digits, no more, no less."""
    refused = api.post(leases, {"metadata": {"name": "a"}, "spec": {"renewTime": time}})
    assert (refused.status, refused.reason) == (400, "BadRequest")
