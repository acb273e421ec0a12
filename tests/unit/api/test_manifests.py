"""The YAML in config/ says the same as the code: what the code writes is kept, what it refuses is refused."""

import typing
from pathlib import Path

import msgspec
import pytest
import yaml

from wainwright.api import validation
from wainwright.api.base import Resource
from wainwright.api.meta import Condition
from wainwright.api.nodeclaims import NodeClaim, NodeClaimSpec
from wainwright.api.nodepools import Disruption, NodePool, TemplateSpec
from wainwright.api.podautoscalers import SOURCE_TYPES, PodAutoscaler, PodsSource, ScaleTargetRef
from wainwright.cloud.simulated.node_class import NODE_CLASS_KIND, SimulatedNodeClass

CONFIG = Path(__file__).parents[3] / "config"


def documents(folder):
    return [
        document
        for file in sorted((CONFIG / folder).glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document
    ]


CRDS = {document["spec"]["names"]["kind"]: document for document in documents("crd")}


def schema(kind, *path):
    found = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in path:
        found = found["items"] if step == "[]" else found["properties"][step]
    return found


TEMPLATE = ("spec", "template", "spec")
REQUIREMENT = (*TEMPLATE, "requirements", "[]")


@pytest.mark.parametrize("kind", CRDS)
def test_a_definition_is_named_after_what_it_defines(kind):
    document = CRDS[kind]
    spec = document["spec"]
    assert document["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert spec["scope"] == ("Namespaced" if kind == "PodAutoscaler" else "Cluster")
    assert "status" in spec["versions"][0]["subresources"]
    columns = [column["name"] for column in spec["versions"][0]["additionalPrinterColumns"]]
    assert {"Ready", "Age"} <= set(columns)


def test_the_simulated_node_class_is_the_providers_own_kind():
    assert CRDS[NODE_CLASS_KIND.kind]["spec"]["group"] == NODE_CLASS_KIND.group


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ((*REQUIREMENT, "operator"), validation.OPERATORS),
        ((*TEMPLATE, "taints", "[]", "effect"), validation.TAINT_EFFECTS),
        ((*TEMPLATE, "startupTaints", "[]", "effect"), validation.TAINT_EFFECTS),
        (("spec", "disruption", "consolidationPolicy"), validation.CONSOLIDATION_POLICIES),
        (("spec", "disruption", "budgets", "[]", "reasons", "[]"), validation.DISRUPTION_REASONS),
    ],
)
def test_schema_and_validation_know_the_same_words(path, words):
    assert tuple(schema("NodePool", *path)["enum"]) == tuple(words)


def test_every_source_of_load_is_in_the_schema_with_its_defaults():
    source = ("spec", "metrics", "[]")
    assert tuple(schema("PodAutoscaler", *source, "type")["enum"]) == SOURCE_TYPES
    assert set(SOURCE_TYPES) < set(schema("PodAutoscaler", *source)["properties"])
    for field in msgspec.structs.fields(PodsSource):
        assert schema("PodAutoscaler", *source, "pods", field.encode_name)["default"] == field.default
    for field in ("apiVersion", "kind"):
        default = getattr(ScaleTargetRef(), "api_version" if field == "apiVersion" else field)
        assert schema("PodAutoscaler", "spec", "scaleTargetRef", field)["default"] == default


def test_schema_and_validation_have_the_same_bounds():
    assert schema("NodePool", *TEMPLATE, "requirements")["maxItems"] == validation.MAX_REQUIREMENTS
    assert schema("NodePool", *REQUIREMENT, "minValues")["maximum"] == validation.MAX_MIN_VALUES
    assert schema("NodePool", "spec", "template", "metadata", "labels")["maxProperties"] == validation.MAX_LABELS
    assert schema("NodePool", "spec", "disruption", "budgets")["maxItems"] == validation.MAX_BUDGETS
    assert schema("NodePool", "spec", "weight")["maximum"] == validation.MAX_WEIGHT


def test_the_schema_fills_in_what_the_structs_leave_out():
    """Defaults are left out on the wire: were they others there, a written object would come back changed."""
    assert schema("NodePool", *TEMPLATE, "expireAfter")["default"] == TemplateSpec().expire_after
    assert schema("NodeClaim", "spec", "expireAfter")["default"] == NodeClaimSpec().expire_after
    assert schema("NodePool", "spec", "disruption", "consolidateAfter")["default"] == Disruption().consolidate_after
    assert (
        schema("NodePool", "spec", "disruption", "consolidationPolicy")["default"] == Disruption().consolidation_policy
    )
    budgets = schema("NodePool", "spec", "disruption", "budgets")["default"]
    assert msgspec.convert(budgets, typing.get_type_hints(Disruption)["budgets"]) == Disruption().budgets
    for kind in ("NodePool", "NodeClaim", "SimulatedNodeClass", "PodAutoscaler"):
        for field in ("status", "reason", "message"):
            condition = schema(kind, "status", "conditions", "[]")
            assert condition["required"] == ["type"]
            assert condition["properties"][field]["default"] == getattr(Condition(type="x"), field)


def pruned(struct, found, path=""):
    """Fields of the struct that the API server would drop."""
    for field in msgspec.structs.fields(struct):
        at = f"{path}.{field.encode_name}"
        if at == ".metadata" or "properties" not in found:
            continue
        inner = found["properties"].get(field.encode_name)
        if inner is None:
            yield at
            continue
        for kind in (field.type, *typing.get_args(field.type)):
            if isinstance(kind, type) and issubclass(kind, Resource):
                yield from pruned(kind, inner.get("items", inner), at)


@pytest.mark.parametrize("struct", [NodePool, NodeClaim, SimulatedNodeClass, PodAutoscaler])
def test_nothing_that_the_code_writes_is_dropped_by_the_api_server(struct):
    assert list(pruned(struct, schema(struct.__name__))) == []


def test_the_roles_name_the_service_account_that_they_are_bound_to():
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents("rbac")}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        binding = found[kind, "wainwright"]
        (subject,) = binding["subjects"]
        account = found["ServiceAccount", subject["name"]]
        assert subject["namespace"] == account["metadata"]["namespace"]
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in found


def test_the_roles_grant_nothing_by_star():
    for document in documents("rbac"):
        for rule in document.get("rules", []):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
