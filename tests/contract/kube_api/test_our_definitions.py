"""Our own CustomResourceDefinitions: they install, and their rules refuse what they should, on both servers alike."""

import time
from copy import deepcopy

import pytest

from workers.stack import manifests

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
DOCUMENTS = list(manifests("crd"))
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


@pytest.fixture(scope="session")
def definitions(api):
    """All of config/crd, served. They stay: on a shared cluster other tests use them too."""
    for document in DOCUMENTS:
        answer = api.post(DEFINITIONS, document, fieldValidation="Strict")
        assert answer.status in (201, 409), answer.body
    for document in DOCUMENTS:
        spec = document["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        deadline = time.monotonic() + 10
        while api.get(path).status != 200:
            assert time.monotonic() < deadline, f"{path} is not served"
    return DOCUMENTS


def a_pool(name, *, labels=None, requirements=(), **spec):
    template = {"metadata": {"labels": labels or {}}, "spec": {"nodeClassRef": NODE_CLASS}}
    template["spec"]["requirements"] = list(requirements)
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    return body | {"spec": {"template": template, **spec}}


def a_claim(name, requirements=(), **spec):
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name}}
    return body | {"spec": {"nodeClassRef": NODE_CLASS, "requirements": list(requirements), **spec}}


def demand(key="example.com/size", operator="In", values=("a",), **fields):
    return {"key": key, "operator": operator, "values": list(values), **fields}


def rules_of(kind):
    """Every message of a CEL rule in the definition of a kind."""
    found = set()

    def walk(node):
        if isinstance(node, dict):
            found.update(rule["message"] for rule in node.get("x-kubernetes-validations", ()))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    (definition,) = (d for d in DOCUMENTS if d["spec"]["names"]["kind"] == kind)
    walk(definition["spec"]["versions"][0]["schema"])
    return found


NOT_FREE = "labels below kubernetes.io are not free; use a domain of your own"
NOT_FREE_EITHER = "labels below k8s.io are not free; use a domain of your own"
OURS = "labels below karpenter.sh are set by us, all but karpenter.sh/capacity-type"
HOST = "the host name cannot be chosen; use another label"
ONE_NUMBER = "Gt, Lt, Gte and Lte take exactly one whole number, 0 or more"

BAD_DEMANDS = (
    (demand(values=[]), "In needs at least one value"),
    (demand(operator="Exists"), "Exists and DoesNotExist take no values; did you mean In?"),
    (demand(operator="Gt", values=["1", "2"]), ONE_NUMBER),
    (demand(operator="Lte", values=["1.5"]), ONE_NUMBER),
    (demand(values=["a"], minValues=2), "minValues is more than the values listed"),
    (demand(operator="DoesNotExist", values=[], minValues=1), "a label that must not exist has no values"),
    (demand("kubernetes.io/hostname"), HOST),
    (demand("kubernetes.io/name"), NOT_FREE),
    (demand("app.kubernetes.io/name"), NOT_FREE),
    (demand("x.k8s.io/a"), NOT_FREE_EITHER),
    (demand("karpenter.sh/initialized"), OURS),
)
BAD_POOLS = (
    *((a_pool("bad", requirements=[bad]), told) for bad, told in BAD_DEMANDS),
    (a_pool("bad", requirements=[demand("karpenter.sh/nodepool")]), OURS),
    (a_pool("bad", labels={"kubernetes.io/hostname": "a"}), HOST),
    (a_pool("bad", labels={"team": "x", "app.kubernetes.io/name": "a"}), NOT_FREE),
    (a_pool("bad", labels={"x.k8s.io/a": "a"}), NOT_FREE_EITHER),
    (a_pool("bad", labels={"karpenter.sh/nodepool": "a"}), OURS),
    (a_pool("bad", replicas=2, weight=1), "a pool with replicas has no weight"),
    (a_pool("bad", replicas=2, limits={"cpu": "1"}), "a pool with replicas can be limited by nodes only"),
    (
        a_pool("bad", disruption={"budgets": [{"nodes": "1", "duration": "1h"}]}),
        "schedule and duration come together",
    ),
)
BAD_CLAIMS = tuple((a_claim("bad", [bad]), told) for bad, told in BAD_DEMANDS)
OUT_OF_BOUNDS = (
    (a_pool("bad", weight=0), "spec.weight"),
    (a_pool("bad", weight=101), "spec.weight"),
    (a_pool("bad", requirements=[demand(operator="in")]), "spec.template.spec.requirements[0].operator"),
    (a_pool("bad", limits={"cpu": "much"}), "spec.limits"),
)


@pytest.mark.parametrize(("pool", "told"), BAD_POOLS)
def test_bad_node_pools_are_refused(api, definitions, pool, told):
    refused = api.post(POOLS, pool)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
    assert told in refused.message


@pytest.mark.parametrize(("claim", "told"), BAD_CLAIMS)
def test_bad_node_claims_are_refused(api, definitions, claim, told):
    refused = api.post(CLAIMS, claim)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
    assert told in refused.message


@pytest.mark.parametrize(("pool", "field"), OUT_OF_BOUNDS)
def test_what_the_schema_refuses(api, definitions, pool, field):
    refused = api.post(POOLS, pool)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
    assert any(cause["field"].startswith(field) for cause in refused.body["details"]["causes"]), refused.message


CHANGES = (
    (
        {},
        lambda spec: spec["template"]["spec"]["nodeClassRef"].update(group="example.com"),
        "the group cannot change; make another NodePool",
    ),
    (
        {},
        lambda spec: spec["template"]["spec"]["nodeClassRef"].update(kind="Other"),
        "the kind cannot change; make another NodePool",
    ),
    ({}, lambda spec: spec.update(replicas=1), "replicas cannot be added or removed later; make another NodePool"),
    (
        {"replicas": 1},
        lambda spec: spec.pop("replicas"),
        "replicas cannot be added or removed later; make another NodePool",
    ),
)


@pytest.mark.parametrize(("spec", "change", "told"), CHANGES)
def test_what_cannot_change_in_a_node_pool(api, definitions, unique, spec, change, told):
    stored = api.post(POOLS, a_pool(unique, **spec)).body
    try:
        other = deepcopy(stored)
        change(other["spec"])
        refused = api.put(f"{POOLS}/{unique}", other)
        assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
        assert told in refused.message
        allowed = api.patch(f"{POOLS}/{unique}", {"metadata": {"labels": {"team": "x"}}})
        assert allowed.status == 200, allowed.body
    finally:
        api.delete(f"{POOLS}/{unique}")


def test_what_a_node_claim_asks_for_cannot_change(api, definitions, unique):
    assert api.post(CLAIMS, a_claim(unique, [demand()])).status == 201
    try:
        refused = api.patch(f"{CLAIMS}/{unique}", {"spec": {"expireAfter": "1h"}})
        assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
        assert "what a NodeClaim asks for cannot change" in refused.message
        status = {"providerID": "simulated:///a", "conditions": [{"type": "Launched", "status": "True"}]}
        assert api.patch(f"{CLAIMS}/{unique}/status", {"status": status}).status == 200
    finally:
        api.delete(f"{CLAIMS}/{unique}")


@pytest.mark.parametrize(
    "demands",
    [
        [demand(operator="NotIn", values=[]), demand("kubernetes.io/arch", values=["amd64"])],
        [demand(operator="Exists", values=[], minValues=50), demand("topology.kubernetes.io/zone")],
        [demand("karpenter.sh/capacity-type", values=["spot", "reserved"]), demand("kops.k8s.io/instancegroup")],
        [demand("node-restriction.kubernetes.io/team"), demand(operator="Gt", values=["0"])],
    ],
)
def test_sound_node_pools_and_claims_are_taken(api, definitions, unique, demands):
    limits = {"cpu": 1000, "memory": "1000Gi", "nodes": 10}
    for path, body in (
        (POOLS, a_pool(unique, requirements=demands, limits=limits)),
        (CLAIMS, a_claim(unique, demands)),
    ):
        answer = api.post(path, body, dryRun="All", fieldValidation="Strict")
        assert answer.status == 201, answer.body


def test_every_rule_has_a_case():
    pools = {told for _, told in BAD_POOLS} | {told for *_, told in CHANGES}
    assert rules_of("NodePool") <= pools
    claims = {told for _, told in BAD_CLAIMS} | {"what a NodeClaim asks for cannot change"}
    assert rules_of("NodeClaim") <= claims
