"""Patches: lines 18 to 20 of the conformance list."""

import json

import pytest

from tests.contract.kube_api.cluster import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    a_config_map,
    a_container,
    a_deployment,
    a_pod,
)


def test_merge_patch(api, config_maps):
    api.post(config_maps, a_config_map("a", labels={"x": "1", "y": "2"}, key="1", other="2"))
    patched = api.patch(f"{config_maps}/a", {"metadata": {"labels": {"x": None}}, "data": {"key": "3", "other": None}})
    assert patched.body["data"] == {"key": "3"}
    assert patched.body["metadata"]["labels"] == {"y": "2"}


def test_json_patch(api, config_maps):
    api.post(config_maps, a_config_map("a", key="1"))
    operations = [
        {"op": "test", "path": "/data/key", "value": "1"},
        {"op": "replace", "path": "/data/key", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"a.b/c": "d"}},
        {"op": "add", "path": "/metadata/labels/e~1f", "value": "g"},
        {"op": "copy", "from": "/data/key", "path": "/data/copied"},
        {"op": "move", "from": "/data/copied", "path": "/data/moved"},
    ]
    patched = api.patch(f"{config_maps}/a", operations, media=JSON_PATCH)
    assert patched.status == 200, patched.body
    assert patched.body["data"] == {"key": "2", "moved": "2"}
    assert patched.body["metadata"]["labels"] == {"a.b/c": "d", "e/f": "g"}
    failed = api.patch(f"{config_maps}/a", [{"op": "test", "path": "/data/key", "value": "9"}], media=JSON_PATCH)
    assert (failed.status, failed.reason) == (422, "Invalid")
    gone = api.patch(f"{config_maps}/a", [{"op": "remove", "path": "/data/nothing"}], media=JSON_PATCH)
    assert gone.status == 422


def test_patches_that_cannot_be_read(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    assert api.patch(f"{config_maps}/a", "{", media=MERGE).status == 400
    assert api.patch(f"{config_maps}/a", {"op": "add"}, media=JSON_PATCH).status == 400
    assert api.patch(f"{config_maps}/a", "data: {}", media="application/yaml").status == 415
    assert api.patch(f"{config_maps}/a", {"data": "none"}).status in (400, 422)


def test_stale_missing_and_idle_patches(api, config_maps):
    first = api.post(config_maps, a_config_map("a", key="1")).body["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": first}, "data": {"key": "2"}}
    assert api.patch(f"{config_maps}/a", body).status == 200
    assert api.patch(f"{config_maps}/a", body).status == 409
    before = api.get(f"{config_maps}/a").body
    assert api.patch(f"{config_maps}/a", {"data": {"key": "2"}}).body == before
    assert api.patch(f"{config_maps}/b", {"data": {}}).status == 404


def test_strategic_merge_of_conditions_by_type(api, pods):
    api.post(pods, a_pod("web"))
    status = f"{pods}/web/status"
    ready, scheduled = ({"type": name, "status": "False"} for name in ("Ready", "PodScheduled"))
    api.patch(status, {"status": {"conditions": [ready, scheduled]}}, media=STRATEGIC)
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    conditions = api.patch(status, body, media=STRATEGIC).body["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"Ready": "True", "PodScheduled": "False"}


def test_strategic_merge_of_containers_by_name(api, deployments):
    deployment = a_deployment("web", replicas=0)
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    deployment["spec"]["template"]["spec"]["containers"] = [a_container("a", env=variables), a_container("b")]
    api.post(deployments, deployment)

    def template(*containers):
        return {"spec": {"template": {"spec": {"containers": list(containers)}}}}

    def patched(body):
        answer = api.patch(f"{deployments}/web", body, media=STRATEGIC)
        assert answer.status == 200, answer.message
        return {c["name"]: c for c in answer.body["spec"]["template"]["spec"]["containers"]}

    found = patched(template({"name": "a", "env": [{"name": "B", "value": "3"}]}))
    assert set(found) == {"a", "b"}
    assert {v["name"]: v["value"] for v in found["a"]["env"]} == {"A": "1", "B": "3"}
    assert set(patched(template({"name": "b", "$patch": "delete"}))) == {"a"}
    found = patched(template({"name": "a", "env": [{"name": "A", "$patch": "delete"}]}))
    assert found["a"]["env"] == [{"name": "B", "value": "3"}]


def test_strategic_merge_keeps_only_the_keys_of_a_strategy_that_are_retained(api, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    body = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    answer = api.patch(f"{deployments}/web", body, media=STRATEGIC)
    assert answer.status == 200
    assert answer.body["spec"]["strategy"] == {"type": "Recreate"}


def test_strategic_merge_adds_finalizers(api, config_maps):
    api.post(config_maps, a_config_map("a"))
    for name in ("example.com/a", "example.com/b"):
        api.patch(f"{config_maps}/a", {"metadata": {"finalizers": [name]}}, media=STRATEGIC)
    assert api.get(f"{config_maps}/a").body["metadata"]["finalizers"] == ["example.com/b", "example.com/a"]
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}
    assert "finalizers" not in api.patch(f"{config_maps}/a", body, media=STRATEGIC).body["metadata"]


def test_no_strategic_merge_of_custom_resources(api, widgets, widget):
    api.post(widgets, widget("a"))
    refused = api.patch(f"{widgets}/a", {"spec": {"x": 1}}, media=STRATEGIC)
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")


class TestServerSideApply:
    @staticmethod
    def apply(api, path, body, manager="me", **options):
        return api.patch(path, json.dumps(body), media=APPLY, fieldManager=manager, **options)

    def test_creates_and_notes_the_manager(self, api, config_maps):
        answer = self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"))
        assert answer.status == 201, answer.body
        (entry,) = answer.body["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("me", "Apply", "v1")
        assert entry["fieldsType"] == "FieldsV1"
        assert entry["fieldsV1"] == {"f:data": {"f:key": {}}}

    def test_conflict_names_owner_and_field_and_force_takes_over(self, api, config_maps):
        self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"))
        answer = self.apply(api, f"{config_maps}/a", a_config_map("a", key="2"), "other")
        assert (answer.status, answer.reason) == (409, "Conflict")
        (cause,) = answer.body["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.key")
        assert 'conflict with "me"' in cause["message"]
        forced = self.apply(api, f"{config_maps}/a", a_config_map("a", key="2"), "other", force="true")
        assert forced.status == 200
        assert forced.body["data"] == {"key": "2"}
        assert {entry["manager"] for entry in forced.body["metadata"]["managedFields"]} == {"other"}

    def test_two_may_own_what_they_agree_on(self, api, config_maps):
        self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"))
        assert self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"), "other").status == 200
        kept = self.apply(api, f"{config_maps}/a", a_config_map("a"), "other").body
        assert kept["data"] == {"key": "1"}

    def test_what_is_left_out_goes(self, api, config_maps):
        self.apply(api, f"{config_maps}/a", a_config_map("a", labels={"x": "1"}, key="1", other="2"))
        answer = self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"))
        assert answer.body["data"] == {"key": "1"}
        assert "labels" not in answer.body["metadata"]

    def test_items_of_lists_are_owned_one_by_one(self, api, deployments):
        deployment = a_deployment("web", replicas=0)
        deployment["spec"]["template"]["spec"]["containers"] = [a_container("a"), a_container("b")]
        assert self.apply(api, f"{deployments}/web", deployment).status == 201
        sidecar = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"containers": [a_container("sidecar")]}}},
        }
        answer = self.apply(api, f"{deployments}/web", sidecar, "injector")
        assert answer.status == 200, answer.message
        deployment["spec"]["template"]["spec"]["containers"] = [a_container("a")]
        answer = self.apply(api, f"{deployments}/web", deployment)
        assert answer.status == 200, answer.message
        names = {c["name"] for c in answer.body["spec"]["template"]["spec"]["containers"]}
        assert names == {"a", "sidecar"}

    def test_who_patches_an_applied_field_owns_it(self, api, config_maps):
        self.apply(api, f"{config_maps}/a", a_config_map("a", key="1"))
        api.patch(f"{config_maps}/a", {"data": {"key": "2"}}, fieldManager="hand")
        answer = self.apply(api, f"{config_maps}/a", a_config_map("a", key="3"))
        assert answer.status == 409
        assert 'conflict with "hand" using v1' in answer.message

    def test_an_object_that_was_created_has_owners_too(self, api, config_maps):
        api.post(config_maps, a_config_map("a", key="1"))
        answer = self.apply(api, f"{config_maps}/a", a_config_map("a", key="2"))
        assert (answer.status, answer.reason) == (409, "Conflict")

    def test_applying_again_writes_nothing(self, api, config_maps):
        first = self.apply(api, f"{config_maps}/a", a_config_map("a", key="1")).body
        again = self.apply(api, f"{config_maps}/a", a_config_map("a", key="1")).body
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    def test_a_manager_must_be_named(self, api, config_maps):
        answer = api.patch(f"{config_maps}/a", json.dumps(a_config_map("a")), media=APPLY)
        assert answer.status in (400, 422)

    def test_custom_resources(self, api, widgets, widget):
        answer = self.apply(api, f"{widgets}/a", widget("a", colour="red", size=1))
        assert answer.status == 201
        assert self.apply(api, f"{widgets}/a", widget("a", colour="blue"), "other").status == 409
        answer = self.apply(api, f"{widgets}/a", widget("a", colour="red"))
        assert answer.body["spec"] == {"colour": "red"}


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
def test_status_patch_leaves_the_spec(api, pods, media):
    api.post(pods, a_pod("web"))
    body = {"spec": {"restartPolicy": "Never"}, "status": {"phase": "Running"}}
    patched = api.patch(f"{pods}/web/status", body, media=media).body
    assert patched["status"]["phase"] == "Running"
    assert patched["spec"]["restartPolicy"] == "Always"
