"""NodeClaims and Nodes as written, and what a NodeClaim tells when its record is lost."""

import msgspec
import pytest

from tests.unit.provisioning.fakes import START
from tests.unit.provisioning.test_attempts import BARE, an_option
from wainwright.api import names
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodeSelectorRequirement
from wainwright.api.nodes import Node, Taint
from wainwright.batching.claims import ClaimPod, ClaimRecord, Role, State, parse_record
from wainwright.cloud.port import Instance, InstanceState
from wainwright.provisioning.attempts import first_attempt
from wainwright.provisioning.objects import (
    KeptOptions,
    adoptions,
    attempts_of,
    instance_labels,
    is_planned_claim,
    kept_options,
    launched_status,
    node_body,
    node_claim_body,
    node_labels,
    node_patch,
    pods_of,
    unique_taints,
)

INSTANCE = Instance(
    id="i-1",
    provider_id="sim:///i-1",
    token="u-1",
    cluster="c",
    node_claim="c1",
    node_pool="general",
    instance_type="m.large",
    zone="a",
    capacity_type="spot",
    price=0.5,
    state=InstanceState.RUNNING,
    launched_at=START,
    node_name="c1",
    capacity={"cpu": 2000},
    allocatable={"cpu": 1900},
    labels={names.ARCH_LABEL: "arm64", "from": "cloud"},
)


def a_record(name="c1", *pods, **fields):
    fields = {
        "state": State.PLANNED,
        "plan": "p1",
        "node_pool": "general",
        "node_pool_uid": "pool-1",
        "options": (an_option(), an_option("m.xlarge")),
        "labels": {"team": "x"},
        "requests": {"cpu": 1500, "pods": 2},
        "capacity": {"cpu": 4000},
        "allocatable": {"cpu": 1900},
        **fields,
    }
    default = (ClaimPod(uid="u1", role=Role.BIND, key="default/a", node_pool="general", batch="b", entry="1-0"),)
    return ClaimRecord(name=name, pods=pods or default, **fields)


def stored(record, uid="n1", **status):
    """The NodeClaim as the API server keeps it."""
    body = node_claim_body(record, (first_attempt(BARE, record.options, ()),))
    body["metadata"]["uid"] = uid
    return msgspec.convert({**body, "status": status}, NodeClaim)


def test_a_record_can_be_made_from_its_node_claim_alone():
    record = a_record(requirements=(NodeSelectorRequirement(key="k", operator="In", values=("v",)),))
    claim = stored(record)
    [adopted] = adoptions([claim])
    again = parse_record("c1", {"state": adopted.state, **adopted.fields}, {p.uid: p.meta for p in adopted.pods})
    assert again.options == record.options
    for field in (
        "plan",
        "node_pool",
        "node_pool_uid",
        "labels",
        "requests",
        "capacity",
        "allocatable",
        "requirements",
    ):
        assert getattr(again, field) == getattr(record, field), field
    assert (again.state, again.uid, again.pods[0].key) == (State.CREATED, "n1", "default/a")
    assert adopted.fields["price"] == "1"


def test_pods_that_merely_rest_on_a_claim_are_not_written_to_it():
    resting = ClaimPod(uid="u2", role=Role.REST, key="default/b")
    own = ClaimPod(uid="u1", role=Role.BIND, key="default/a")
    assert [pod.uid for pod in pods_of(stored(a_record("c1", own, resting)))] == ["u1"]


def test_the_options_of_a_very_flexible_claim_still_fit_into_an_annotation():
    many = tuple(an_option(f"family.{number}xlarge", price=number) for number in range(5000))
    kept = KeptOptions.of(a_record(options=many)).unpack()
    assert 1000 < len(kept) < 5000
    assert kept == many[: len(kept)], "the cheapest stay"


@pytest.mark.parametrize("annotation", [names.OPTIONS_ANNOTATION, names.PODS_ANNOTATION, names.ATTEMPTS_ANNOTATION])
def test_annotations_that_somebody_broke_read_as_empty(annotation):
    body = node_claim_body(a_record(), ())
    body["metadata"]["annotations"][annotation] = '{"half'
    claim = msgspec.convert(body, NodeClaim)
    assert is_planned_claim(claim)
    found = {
        names.OPTIONS_ANNOTATION: kept_options(claim).options,
        names.PODS_ANNOTATION: pods_of(claim),
        names.ATTEMPTS_ANNOTATION: attempts_of(claim),
    }
    assert found[annotation] == ()


def test_claims_that_are_none_of_ours_are_not_adopted():
    assert adoptions([NodeClaim(metadata=stored(a_record()).metadata.__class__(name="a-users-own"))]) == []


def test_claims_that_share_a_pod_are_rivals_and_one_with_an_instance_comes_first():
    one, two, three = (
        stored(a_record("c1"), "n1"),
        stored(a_record("c2"), "n2", providerID="sim:///i-2"),
        stored(a_record("c3", ClaimPod(uid="u3", role=Role.BIND, key="default/c")), "n3"),
    )
    found = {a.name: a for a in adoptions([one, two, three])}
    assert list(found) == ["c2", "c1", "c3"]
    assert [found[n].disputed for n in ("c1", "c2", "c3")] == [True, True, False]
    assert found["c1"].fields["rivals"] == '["c2"]'
    assert found["c2"].state is State.LAUNCHED


def test_a_claim_whose_node_has_joined_is_settled():
    joined = {"type": "Registered", "status": "True"}
    [adopted] = adoptions([stored(a_record(), providerID="x", conditions=[joined])])
    assert adopted.settled


def test_requirements_with_one_value_become_labels_and_the_templates_labels_win():
    requirements = [
        NodeSelectorRequirement(key="zone", operator="In", values=("a",)),
        NodeSelectorRequirement(key="many", operator="In", values=("a", "b")),
        NodeSelectorRequirement(key="team", operator="In", values=("y",)),
    ]
    found = node_labels("general", {"team": "x"}, requirements)
    assert found == {"zone": "a", "team": "x", names.NODEPOOL_LABEL: "general"}


def test_a_new_node_has_the_pools_taints_and_ours_and_what_the_cloud_says():
    taint, startup = Taint(key="team", effect="NoSchedule", value="x"), Taint(key="cni", effect="NoExecute")
    claim = stored(a_record(taints=(taint,), startup_taints=(startup,)))
    body = node_body(claim, INSTANCE)
    assert [t["key"] for t in body["spec"]["taints"]] == ["team", "cni", names.NOT_READY_TAINT.key]
    assert body["metadata"]["labels"]["from"] == "cloud"
    assert body["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]


def a_node(**parts):
    body = node_body(stored(a_record()), INSTANCE)
    body["metadata"] |= {"uid": "node-1", "resourceVersion": "5", **parts.pop("metadata", {})}
    body["spec"] |= parts.pop("spec", {})
    return msgspec.convert(body, Node)


def test_a_node_that_lacks_nothing_is_left_alone():
    assert node_patch(stored(a_record()), INSTANCE, a_node()) is None


def test_a_kubelets_own_node_gets_what_it_lacks_and_loses_the_unregistered_taint():
    node = a_node(
        metadata={"finalizers": [], "labels": {}},
        spec={"taints": [{"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}, {"key": "own", "effect": "x"}]},
    )
    patch = node_patch(stored(a_record()), INSTANCE, node)
    assert patch["metadata"]["resourceVersion"] == "5"
    assert names.TERMINATION_FINALIZER in patch["metadata"]["finalizers"]
    assert [t["key"] for t in patch["spec"]["taints"]] == ["own", names.NOT_READY_TAINT.key]


def test_a_node_that_has_joined_before_does_not_get_its_taints_back():
    labels = {**node_body(stored(a_record()), INSTANCE)["metadata"]["labels"], names.REGISTERED_LABEL: "true"}
    assert node_patch(stored(a_record()), INSTANCE, a_node(metadata={"labels": labels}, spec={"taints": []})) is None


def test_a_launched_claim_tells_of_its_instance():
    status = launched_status(stored(a_record()), INSTANCE, START)
    assert status["providerID"] == "sim:///i-1"
    assert status["capacity"] == {"cpu": "2"}
    assert {c["type"]: c["status"] for c in status["conditions"]} == {"Launched": "True", "Ready": "Unknown"}
    assert instance_labels(INSTANCE)[names.INSTANCE_TYPE_LABEL] == "m.large"


def test_each_taint_once():
    one, two = Taint(key="k", effect="NoSchedule", value="1"), Taint(key="k", effect="NoSchedule", value="2")
    assert unique_taints([one, two, Taint(key="k", effect="NoExecute")]) == (one, Taint(key="k", effect="NoExecute"))
