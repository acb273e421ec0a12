"""Lists: lines 21 to 27 of the conformance list."""

import base64
import json

import pytest

from tests.contract.kube_api.cluster import PARTIAL, TABLE, a_binding, a_config_map, a_pod

JSON = "application/json"


def names(answer):
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


def test_form_of_a_list(api, pods, widgets, widget):
    empty = api.get(pods).body
    assert (empty["kind"], empty["apiVersion"], empty["items"]) == ("PodList", "v1", [])
    assert int(empty["metadata"]["resourceVersion"]) > 0
    api.post(widgets, widget("a"))
    listed = api.get(widgets).body
    assert listed["kind"] == "WidgetList"
    assert listed["items"][0]["kind"] == "Widget"


def a_lease(name):
    """Of Leases no controller puts one of its own into a namespace."""
    return {"metadata": {"name": name}, "spec": {}}


def test_pages_hold_each_object_once(api, leases):
    wanted = [f"lease-{number:02}" for number in range(7)]
    for name in wanted:
        api.post(leases, a_lease(name))
    found, query = [], {"limit": 3}
    while True:
        page = api.get(leases, **query)
        found += names(page)
        metadata = page.body["metadata"]
        if not metadata.get("continue"):
            assert "remainingItemCount" not in metadata
            break
        assert metadata["remainingItemCount"] == 7 - len(found)
        query = {"limit": 3, "continue": metadata["continue"]}
    assert found == wanted


def test_pages_are_of_one_instant(api, leases):
    for name in ("a", "b", "c"):
        api.post(leases, a_lease(name))
    first = api.get(leases, limit=2)
    assert names(first) == ["a", "b"]
    api.delete(f"{leases}/c")
    api.post(leases, a_lease("d"))
    rest = api.get(leases, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert names(rest) == ["c"]
    assert rest.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


def test_broken_token(api, config_maps):
    assert api.get(config_maps, limit=1, **{"continue": "broken!"}).status == 400


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("tier=web", "ac"),
        ("tier==web", "ac"),
        ("tier!=web", "bd"),
        ("tier in (web,db)", "abc"),
        ("tier notin (web)", "bd"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("tier=web,size=small", "a"),
        ("tier=web,size!=small", "c"),
        ("example.com/key=v", "d"),
        ("tier=", ""),
        ("", "abcd"),
    ],
)
def test_label_selectors(api, config_maps, selector, wanted):
    for name, labels in {
        "a": {"tier": "web", "size": "small"},
        "b": {"tier": "db"},
        "c": {"tier": "web"},
        "d": {"example.com/key": "v"},
    }.items():
        api.post(config_maps, a_config_map(name, labels))
    assert [name for name in names(api.get(config_maps, labelSelector=selector)) if len(name) == 1] == list(wanted)


@pytest.mark.parametrize("selector", ["tier in", "=x", "a=b=c", "tier in (a", "!", "a b"])
def test_bad_label_selectors(api, config_maps, selector):
    answer = api.get(config_maps, labelSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_field_selectors(api, pods, node):
    for name in ("bound", "free"):
        api.post(pods, a_pod(name, schedulerName="nobody"))
    api.post(f"{pods}/bound/binding", a_binding("bound", node))
    api.patch(f"{pods}/bound/status", {"status": {"phase": "Running"}})
    for selector, wanted in {
        "metadata.name=free": ["free"],
        f"spec.nodeName={node}": ["bound"],
        "spec.nodeName=": ["free"],
        "spec.nodeName!=": ["bound"],
        "status.phase=Running": ["bound"],
        "status.phase!=Running": ["free"],
        "spec.schedulerName=nobody,status.phase=Pending": ["free"],
        "spec.schedulerName=other": [],
    }.items():
        assert names(api.get(pods, fieldSelector=selector)) == wanted, selector
    for selector in ("spec.colour=red", "metadata.labels=x"):
        assert api.get(pods, fieldSelector=selector).status == 400
    assert names(api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")) == ["bound"]


def test_all_namespaces(api, config_maps, unique):
    api.post(config_maps, a_config_map("a", {"only": unique}))
    assert names(api.get("/api/v1/configmaps", labelSelector=f"only={unique}")) == ["a"]


def test_versions_of_lists(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    version = api.get(config_maps).body["metadata"]["resourceVersion"]
    assert "a" in names(api.get(config_maps, resourceVersion="0"))
    newer = api.get(config_maps, resourceVersion=version, resourceVersionMatch="NotOlderThan")
    assert "a" in names(newer)
    assert int(newer.body["metadata"]["resourceVersion"]) >= int(version)
    api.post(config_maps, a_config_map("b"))
    exact = api.get(config_maps, resourceVersion=version, resourceVersionMatch="Exact")
    assert "b" not in names(exact)
    assert exact.body["metadata"]["resourceVersion"] == version
    future = api.get(config_maps, resourceVersion=str(int(version) + 10**6))
    assert (future.status, future.reason) == (504, "Timeout")
    assert "Too large resource version" in future.message
    assert api.get(config_maps, resourceVersion="abc").status == 400


def test_tables(api, pods, define, namespace):
    api.post(pods, a_pod("web"))
    table = api.get(pods, accept=TABLE).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:3] == ["web", "0/1", "Pending"]
    assert str(row["cells"][3]) == "0"
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "web"
    columns = [
        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    root = define(additionalPrinterColumns=columns)
    group_version = root.removeprefix("/apis/")
    spec, status = {"colour": "red", "size": 3}, {"conditions": [{"type": "Ready", "status": "True"}]}
    body = {"apiVersion": group_version, "kind": "Widget", "metadata": {"name": "a"}, "spec": spec, "status": status}
    assert api.post(f"{root}/namespaces/{namespace}/widgets", body).status == 201
    table = api.get(f"{root}/namespaces/{namespace}/widgets", accept=TABLE).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Colour", "Size", "Ready", "Age"]
    assert table["rows"][0]["cells"][:4] == ["a", "red", 3, "True"]


def test_metadata_alone(api, pods):
    api.post(pods, a_pod("web"))
    listed = api.get(pods, accept=PARTIAL).body
    assert listed["kind"] == "PartialObjectMetadataList"
    (item,) = listed["items"]
    assert item["metadata"]["name"] == "web"
    assert "spec" not in item


def test_delete_collection_with_a_selector(api, config_maps):
    for name, tier in {"a": "web", "b": "db", "c": "web"}.items():
        api.post(config_maps, a_config_map(name, {"tier": tier}))
    assert api.delete(config_maps, labelSelector="tier=web").status == 200
    assert [name for name in names(api.get(config_maps)) if len(name) == 1] == ["b"]


def test_token_carries_no_object(api, config_maps):
    """A token is text for a URL: nothing in it needs escaping."""
    for name in ("a", "b"):
        api.post(config_maps, a_config_map(name))
    token = api.get(config_maps, limit=1).body["metadata"]["continue"]
    assert json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["rv"] > 0
