"""Custom resources: lines 49 and 50 of the conformance list."""

import pytest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["colour"],
            "properties": {
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "options": {
                    "type": "object",
                    "default": {},
                    "properties": {"fast": {"type": "boolean", "default": True}},
                },
                "parts": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                    "items": {
                        "type": "object",
                        "required": ["key"],
                        "properties": {"key": {"type": "string"}, "value": {"type": "integer", "default": 1}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    },
}


@pytest.fixture
def things(lasting, namespace):
    return f"{lasting(schema=SCHEMA, subresources={'status': {}})}/namespaces/{namespace}/widgets"


@pytest.fixture
def thing(things):
    _, _, group, version, *_ = things.split("/")

    def make(called="a", **spec):
        spec = {"colour": "red", **spec}
        return {"apiVersion": f"{group}/{version}", "kind": "Widget", "metadata": {"name": called}, "spec": spec}

    return make


def test_definition_is_established_and_discovered(api, define):
    root = define(subresources={"status": {}})
    group = root.split("/")[2]
    definition = api.get(f"{DEFINITIONS}/widgets.{group}").body
    conditions = {c["type"]: c["status"] for c in definition["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert definition["status"]["acceptedNames"]["plural"] == "widgets"
    assert definition["status"]["storedVersions"] == ["v1"]
    resources = {resource["name"]: resource for resource in api.get(root).body["resources"]}
    assert resources["widgets"]["shortNames"] == ["wd"]
    assert resources["widgets"]["namespaced"] is True
    assert "widgets/status" in resources
    assert "widgets/scale" not in resources
    assert group in {entry["name"] for entry in api.get("/apis").body["groups"]}


def test_deleting_a_definition_deletes_what_it_defines(api, define, namespace):
    root = define()
    path = f"{root}/namespaces/{namespace}/widgets"
    group_version = root.removeprefix("/apis/")
    api.post(path, {"apiVersion": group_version, "kind": "Widget", "metadata": {"name": "a"}})
    watch = api.watch(path, seconds=5)
    assert next(watch)[0] == "ADDED"
    api.delete(f"{DEFINITIONS}/widgets.{group_version.split('/')[0]}")
    assert next(watch)[0] in ("DELETED", "MODIFIED")
    watch.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"names": {"kind": "Widget", "plural": "others"}}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
        ({"scope": ""}, "spec.scope"),
    ],
)
def test_definitions_that_are_none(api, unique, change, field):
    from tests.contract.kube_api.cluster import a_definition

    definition = a_definition(f"{unique}.example.com")
    definition["spec"] |= change
    refused = api.post(DEFINITIONS, definition)
    assert refused.status == 422
    assert field in refused.message


def test_defaults(api, things, thing):
    created = api.post(things, thing(parts=[{"key": "x"}]))
    assert created.status == 201, created.body
    spec = created.body["spec"]
    assert spec["size"] == 3
    assert spec["options"] == {"fast": True}
    assert spec["parts"] == [{"key": "x", "value": 1}]


def test_pruning(api, things, thing):
    created = api.post(things, thing(unknown=1, free={"kept": {"deep": 1}}, limits={"cpu": "1", "memory": 2}))
    assert created.status == 201, created.body
    spec = created.body["spec"]
    assert "unknown" not in spec
    assert spec["free"] == {"kept": {"deep": 1}}
    assert spec["limits"] == {"cpu": "1", "memory": 2}
    refused = api.post(things, thing("b", unknown=1), fieldValidation="Strict")
    assert refused.status == 400
    assert 'unknown field "spec.unknown"' in refused.message


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"colour": "green"}, "spec.colour", "FieldValueNotSupported"),
        ({"colour": 1}, "spec.colour", "FieldValueTypeInvalid"),
        ({"size": 0}, "spec.size", "FieldValueInvalid"),
        ({"size": 11}, "spec.size", "FieldValueInvalid"),
        ({"size": "big"}, "spec.size", "FieldValueTypeInvalid"),
        ({"name": "UP"}, "spec.name", "FieldValueInvalid"),
        ({"name": "toolong"}, "spec.name", "FieldValueTooLong"),
        ({"limits": {"cpu": []}}, "spec.limits.cpu", "FieldValueTypeInvalid"),
        ({"parts": [{}]}, "spec.parts[0].key", "FieldValueRequired"),
        ({"parts": [{"key": "a"}, {"key": "a"}]}, "spec.parts[1]", "FieldValueDuplicate"),
        ({"parts": [{"key": k} for k in "abcd"]}, "spec.parts", "FieldValueTooMany"),
    ],
)
def test_schema_errors(api, things, thing, spec, field, reason):
    refused = api.post(things, thing(**spec))
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
    assert (field, reason) in {(cause["field"], cause["reason"]) for cause in refused.body["details"]["causes"]}


def test_required_at_the_top(api, things, thing):
    body = thing()
    del body["spec"]
    refused = api.post(things, body)
    assert refused.status == 422
    assert "spec: Required value" in refused.message


def test_kind_must_be_said(api, things, thing):
    body = thing()
    del body["kind"]
    assert api.post(things, body).status == 400


def test_status_and_generation(api, things, thing):
    body = thing()
    body["status"] = {"ready": True}
    created = api.post(things, body).body
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    status = api.patch(f"{things}/a/status", {"status": {"ready": True}, "spec": {"size": 5}}).body
    assert status["status"] == {"ready": True}
    assert status["spec"]["size"] == 3
    assert status["metadata"]["generation"] == 1
    changed = api.patch(f"{things}/a", {"spec": {"size": 5}, "status": {"ready": False}}).body
    assert changed["metadata"]["generation"] == 2
    assert changed["status"] == {"ready": True}
    labelled = api.patch(f"{things}/a", {"metadata": {"labels": {"a": "b"}}}).body
    assert labelled["metadata"]["generation"] == 2
    assert api.patch(f"{things}/a/status", {"status": {"ready": "yes"}}).status == 422


def test_put_needs_a_version(api, things, thing):
    created = api.post(things, thing()).body
    assert api.put(f"{things}/a", thing(size=4)).status == 422
    assert api.put(f"{things}/a", {**created, "spec": {"colour": "blue"}}).status == 200


def test_watch(api, things, thing):
    version = api.get(things).body["metadata"]["resourceVersion"]
    watch = api.watch(things, seconds=5, resourceVersion=version)
    api.post(things, thing())
    api.patch(f"{things}/a", {"spec": {"size": 4}})
    api.delete(f"{things}/a")
    assert [type_ for type_, _ in watch.take(3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_cluster_scope(api, define):
    root = define(scope="Cluster")
    body = {"apiVersion": root.removeprefix("/apis/"), "kind": "Widget", "metadata": {"name": "a"}}
    assert api.post(f"{root}/widgets", body).status == 201
    assert api.get(f"{root}/widgets/a").body["metadata"].get("namespace") is None
    assert api.get(f"{root}/namespaces/default/widgets").status == 404


def test_finalizers_hold_custom_objects(api, things, thing):
    body = thing()
    body["metadata"]["finalizers"] = ["example.com/keep"]
    api.post(things, body)
    held = api.delete(f"{things}/a").body
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["generation"] == 2
    api.patch(f"{things}/a", {"metadata": {"finalizers": []}})
    assert api.get(f"{things}/a").status == 404


RULES = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.replicas) || !has(self.weight)", "message": "choose one of them"},
                {"rule": "has(self.replicas) == has(oldSelf.replicas)", "message": "cannot switch"},
            ],
            "properties": {
                "replicas": {"type": "integer"},
                "weight": {"type": "integer"},
                "key": {
                    "type": "string",
                    "maxLength": 63,
                    "x-kubernetes-validations": [
                        {"rule": "self.matches('^[a-z]+$')"},
                        {"rule": "self == oldSelf", "message": "fixed"},
                    ],
                },
                "labels": {
                    "type": "object",
                    "maxProperties": 10,
                    "additionalProperties": {"type": "string", "maxLength": 63},
                    "x-kubernetes-validations": [{"rule": "self.all(k, k != 'no')", "message": "not this one"}],
                },
            },
        }
    },
}


@pytest.fixture
def ruled(define, namespace):
    return f"{define(schema=RULES)}/namespaces/{namespace}/widgets"


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"replicas": 1, "weight": 2}, "spec", "choose one of them"),
        ({"key": "UP"}, "spec.key", "failed rule: self.matches('^[a-z]+$')"),
        ({"labels": {"no": "x"}}, "spec.labels", "not this one"),
    ],
)
def test_rules(api, ruled, spec, field, message):
    _, _, group, version, *_ = ruled.split("/")
    body = {"apiVersion": f"{group}/{version}", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}
    refused = api.post(ruled, body)
    assert (refused.status, refused.reason) == (422, "Invalid")
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == field
    assert message in cause["message"]


def test_rules_about_changes(api, ruled):
    _, _, group, version, *_ = ruled.split("/")
    spec = {"key": "a", "replicas": 1}
    body = {"apiVersion": f"{group}/{version}", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}
    assert api.post(ruled, body).status == 201
    assert api.patch(f"{ruled}/a", {"spec": {"replicas": 2}}).status == 200
    assert "fixed" in api.patch(f"{ruled}/a", {"spec": {"key": "b"}}).message
    assert "cannot switch" in api.patch(f"{ruled}/a", {"spec": {"replicas": None}}).message
