"""What no client should send: the server answers with a Status where there is one to give, stays up and bounded."""

import json
import socket
import ssl
from urllib.parse import urlparse

import pytest

from tests.contract.kube_api.cluster import EMBEDDED_ONLY, JSON_PATCH, STRATEGIC, a_config_map, a_pod


def is_up(api):
    return api.get("/readyz").body == b"ok"


def test_body_over_the_limit(api, config_maps):
    refused = api.post(config_maps, a_config_map("a", key="x" * (3 * 1024 * 1024 + 1)))
    assert (refused.status, refused.reason) == (413, "RequestEntityTooLarge")
    assert is_up(api)


@EMBEDDED_ONLY
def test_a_list_of_a_million_items(api, pods):
    """A real server takes longer over it than any client waits."""
    body = json.dumps(a_pod("a")).replace('"containers": [', '"containers": [' + "{}," * 999_000, 1)
    assert api.post(pods, body).status in (400, 413, 422)
    assert is_up(api)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_deep_nesting(api, config_maps, depth):
    body = '{"metadata":{"name":"a"},"data":' + '{"a":' * depth + "1" + "}" * depth + "}"
    assert api.post(config_maps, body).status == 400
    assert api.post(config_maps, "a: " + "[" * depth, media="application/yaml").status == 400
    assert is_up(api)


def test_yaml_that_grows(api, config_maps):
    """Nine lines that stand for a billion values."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    body = "\n".join(["metadata: {name: a}", *lines])
    assert api.post(config_maps, body, media="application/yaml").status == 400
    assert is_up(api)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "a",
        {"name": 1},
        {"name": "a", "labels": []},
        {"name": "a", "labels": {"x": 1}},
        {"name": "a", "annotations": "x"},
        {"name": "a", "finalizers": "x"},
        {"name": "a", "finalizers": [1]},
        {"name": "a", "ownerReferences": [1]},
        {"name": "a", "ownerReferences": [{}]},
        {"name": "a", "labels": {"bad key!": "x"}},
        {"name": "a", "labels": {"x": "bad value!"}},
        {"name": "a", "labels": {"x": "a" * 64}},
        {"name": "a/b"},
        {"name": ".."},
        {"name": "a", "resourceVersion": []},
        {"name": "a", "deletionTimestamp": 5},
    ],
)
def test_metadata_of_the_wrong_kind(api, config_maps, metadata, widgets, widget):
    for path, body in ((config_maps, a_config_map("a")), (widgets, widget("a"))):
        answer = api.post(path, {**body, "metadata": metadata})
        assert answer.status in (400, 422), answer.body
        assert answer.body["kind"] == "Status"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        "x",
        {"containers": {}},
        {"containers": [1]},
        {"containers": [{"name": {}}]},
        {"containers": [{"name": "a", "image": "b", "resources": []}]},
        {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": []}}}]},
        {"containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 70000}]}]},
        {"containers": [{"name": "a", "image": "b"}], "tolerations": [{"operator": "Sometimes"}]},
        {"containers": [{"name": "a", "image": "b"}], "nodeSelector": {"a": 1}},
        {"containers": [{"name": "a", "image": "b"}], "volumes": [1]},
        {"containers": [{"name": "a", "image": "b"}], "restartPolicy": "Maybe"},
        {"containers": [{"name": "a", "image": "b"}, {"name": "a", "image": "b"}]},
        {"containers": [{"name": "A_b", "image": "b"}]},
    ],
)
def test_pod_specs_of_the_wrong_kind(api, pods, spec):
    answer = api.post(pods, {"metadata": {"name": "a"}, "spec": spec})
    assert answer.status in (400, 422), answer.body
    assert answer.body["kind"] == "Status"


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"1", b'"x"', b"\xff\xfe", b'{"a":NaN}', b'{"a":1'])
def test_bodies_that_are_no_objects(api, pods, body):
    answer = api.post(pods, body)
    assert answer.status in (400, 422), answer.body
    assert api.send("POST", pods, body, media="application/yaml").status in (400, 422)


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "add", "path": "/metadata/labels/a/b", "value": 1}],
        [{"op": "add", "path": "/spec/containers/9", "value": {}}],
        [{"op": "replace", "path": "", "value": 7}],
        [{"op": "remove", "path": ""}],
        [{"op": "jump", "path": "/spec"}],
        [{"path": "/spec"}],
        [{"op": "move", "from": "/none", "path": "/spec"}],
        [7],
        7,
    ],
)
def test_json_patches_that_do_not_work(api, pods, patch):
    api.post(pods, a_pod("a", schedulerName="nobody"))
    before = api.get(f"{pods}/a").body
    answer = api.patch(f"{pods}/a", patch, media=JSON_PATCH)
    assert answer.status in (400, 422), answer.body
    assert api.get(f"{pods}/a").body == before


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": [7]}},
        {"spec": 7},
        {"metadata": {"labels": 7}},
        {"metadata": {"name": "b"}},
        {"$patch": "explode"},
        [],
    ],
)
def test_strategic_patches_that_do_not_work(api, pods, patch):
    api.post(pods, a_pod("a"))
    answer = api.patch(f"{pods}/a", patch, media=STRATEGIC)
    assert answer.status in (400, 422, 500), answer.body
    assert answer.body["kind"] == "Status"
    assert is_up(api)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "x"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"watch": "1", "timeoutSeconds": "x"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Sometimes", "resourceVersion": "1"}, 422),
        ({"continue": "x" * 5000}, 400),
    ],
)
def test_queries_that_cannot_be_read(api, pods, query, status):
    assert api.get(pods, **query).status == status


def raw_connection(api):
    address = urlparse(api.server)
    plain = socket.create_connection((address.hostname, address.port), timeout=5)
    if address.scheme != "https":
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=address.hostname)


def test_half_open_connections_and_broken_http(api, pods):
    """Those who begin and never end a request, and those who do not speak HTTP, disturb nobody."""
    begun = [raw_connection(api) for _ in range(20)]
    for connection in begun:
        connection.sendall(b"POST /api/v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    broken = raw_connection(api)
    broken.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
    assert broken.recv(100)[:12] in (b"HTTP/1.1 400", b"HTTP/1.0 400")
    assert api.post(pods, a_pod("a")).status == 201
    for connection in (*begun, broken):
        connection.close()
    assert is_up(api)


def test_delete_options_that_are_none(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    assert api.delete(f"{config_maps}/a", "[]").status == 400
    assert api.delete(f"{config_maps}/a", gracePeriodSeconds="soon").status == 400
    assert api.delete(f"{config_maps}/a", {"gracePeriodSeconds": "soon"}).status == 400
    assert api.delete(f"{config_maps}/a", {"preconditions": 7}).status == 400
    assert api.delete(f"{config_maps}/a", dryRun="Some").status in (400, 422)
    assert api.get(f"{config_maps}/a").status == 200


def test_odd_paths(api):
    for path in (
        "/api/v1/",
        "/api/v2/pods",
        "/apis//v1/pods",
        "/api/v1/namespaces/a/pods/b/c/d",
        "/%00",
        "/api/v1/pods/a",
    ):
        assert api.get(path).status in (400, 404, 200), path
    assert is_up(api)


def test_definitions_of_the_wrong_kind(api, unique):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for spec in (None, [], {"group": 1}, {"names": []}, {"versions": {}}, {"versions": [1]}):
        answer = api.post(path, {"metadata": {"name": f"{unique}.example.com"}, "spec": spec})
        assert answer.status in (400, 422), answer.body
    assert is_up(api)
