"""Valid requests with one part replaced by anything: each gets an answer, and everything can be listed afterwards."""

import copy
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.kube_api.cluster import a_binding, a_config_map, a_container, a_definition, a_deployment, a_pod
from wainwright.sim.apiserver.core import ApiServer
from wainwright.sim.apiserver.requests import Request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False), st.text(max_size=8), st.just("")
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ROOT = "/api/v1/namespaces/default"
RICH = a_pod(
    "rich",
    labels={"a": "b"},
    containers=[
        a_container(
            ports=[{"containerPort": 80}],
            env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            readinessProbe={"httpGet": {"port": 80}},
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
        )
    ],
    volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
    tolerations=[{"key": "a", "operator": "Exists"}],
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
)
WIDGET = {"apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": [{"b": 1}]}}
COLUMNS = [{"name": "A", "type": "string", "jsonPath": ".spec.a[0].b"}]
DEFINITION = a_definition(
    "fuzz.example.com",
    subresources={"status": {}, "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}},
    additionalPrinterColumns=COLUMNS,
    schema={
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [{"rule": "self == self"}],
                "properties": {
                    "a": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["b"],
                        "items": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}},
                    },
                    "r": {"type": "integer", "minimum": 0},
                },
            }
        },
    },
)
BUDGET = {"metadata": {"name": "pdb"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}}
JOB = {
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [a_container()]}}},
}
SET = {**a_deployment("s"), "kind": "StatefulSet"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SET["spec"] = {**SET["spec"], "serviceName": "s", "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": CLAIM}]}
del SET["spec"]["replicas"]
SERVICE = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
NODE = {
    "metadata": {"name": "n"},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": 1}},
}
STATUS = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"}}
DELETION = {"gracePeriodSeconds": 5, "preconditions": {"uid": "x"}, "propagationPolicy": "Foreground"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/fuzz.example.com/v1/namespaces/default/widgets"

REQUESTS = [
    ("POST", f"{ROOT}/pods", RICH, ""),
    ("PUT", f"{ROOT}/pods/there", RICH, ""),
    ("PATCH", f"{ROOT}/pods/there", RICH, "application/strategic-merge-patch+json"),
    ("PATCH", f"{ROOT}/pods/there", RICH, "application/merge-patch+json"),
    ("PATCH", f"{ROOT}/pods/there", RICH, "application/apply-patch+yaml"),
    ("PATCH", f"{ROOT}/pods/there/status", STATUS, "application/strategic-merge-patch+json"),
    (
        "PATCH",
        f"{ROOT}/pods/there",
        [{"op": "add", "path": "/metadata/labels/x", "value": "y"}],
        "application/json-patch+json",
    ),
    ("POST", f"{ROOT}/pods/there/binding", a_binding("there", "n"), ""),
    ("POST", f"{ROOT}/pods/there/eviction", {"metadata": {"name": "there"}, "deleteOptions": DELETION}, ""),
    ("DELETE", f"{ROOT}/pods/there", DELETION, ""),
    ("DELETE", f"{ROOT}/pods", DELETION, ""),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", a_deployment("d"), ""),
    ("POST", "/apis/apps/v1/namespaces/default/statefulsets", SET, ""),
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/there",
        a_deployment("there"),
        "application/apply-patch+yaml",
    ),
    ("PUT", "/apis/apps/v1/namespaces/default/deployments/there/scale", {"spec": {"replicas": 2}}, ""),
    ("POST", "/apis/batch/v1/namespaces/default/jobs", JOB, ""),
    ("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET, ""),
    ("POST", f"{ROOT}/services", SERVICE, ""),
    ("POST", "/api/v1/nodes", NODE, ""),
    ("POST", f"{ROOT}/configmaps", a_config_map("c", key="1"), ""),
    (
        "POST",
        f"{ROOT}/events",
        {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "source": {"host": "h"}},
        "",
    ),
    ("POST", DEFINITIONS, DEFINITION, ""),
    ("POST", WIDGETS, WIDGET, ""),
    ("PUT", f"{WIDGETS}/there", WIDGET, ""),
    ("PATCH", f"{WIDGETS}/there", WIDGET, "application/apply-patch+yaml"),
    ("PATCH", f"{WIDGETS}/there/scale", {"spec": {"replicas": 3}}, "application/merge-patch+json"),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get"}}},
        "",
    ),
]
LISTS = [f"{ROOT}/pods", "/apis/apps/v1/deployments", "/api/v1/nodes", f"{ROOT}/events", WIDGETS, DEFINITIONS]
LISTS += [
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
    f"{ROOT}/services",
    "/apis/policy/v1/poddisruptionbudgets",
]


def places(value, path=()):
    """Every place in a document, the document itself first."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def with_part(value, path, part):
    if not path:
        return part
    value = copy.copy(value)
    value[path[0]] = with_part(value[path[0]], path[1:], part)
    return value


def send(server, method, path, body=None, media="", accept="application/json"):
    headers = {"content-type": media, "accept": accept}
    raw = json.dumps(body).encode() if body is not None else b""
    return server.handle(Request(method, path, {"fieldManager": "me"}, headers, raw), lambda: NOW)


def a_server():
    """With one object of each kind that is posted above, all of them named `there`."""
    server = ApiServer(seed=1)
    server.bootstrap(NOW)
    assert send(server, "POST", DEFINITIONS, DEFINITION).status == 201
    for method, path, body, _ in REQUESTS:
        if method == "POST" and path != DEFINITIONS and "/pods/" not in path and "reviews" not in path:
            named = {**body, "metadata": {**body["metadata"], "name": "there"}}
            assert send(server, method, path, named).status == 201, path
    return server


@pytest.mark.parametrize(
    "request_", REQUESTS, ids=lambda r: f"{r[0]}-{r[1].rsplit('/', 2)[-2]}-{r[1].rsplit('/', 1)[-1]}"
)
def test_one_part_replaced(request_):
    method, path, body, media = request_
    spots = list(places(body))

    @settings(max_examples=20, deadline=None, database=None)
    @given(st.sampled_from(spots), ANYTHING)
    def check(spot, part):
        server = a_server()
        answer = send(server, method, path, with_part(body, spot, part), media)
        assert answer.status < 500 or json.loads(answer.body)["kind"] == "Status", answer.body
        for listed in LISTS:
            assert send(server, "GET", listed).status == 200
            shown = send(server, "GET", listed, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
            assert shown.status == 200

    check()
