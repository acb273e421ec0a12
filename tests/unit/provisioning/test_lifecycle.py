"""What is to be done about claims and nodes, decided from what is seen."""

from datetime import timedelta

import msgspec
import pytest

from tests.unit.provisioning.fakes import START
from tests.unit.provisioning.test_objects import INSTANCE, a_record, stored
from wainwright.api import names
from wainwright.api.meta import Condition, ObjectMeta, OwnerReference
from wainwright.api.nodes import Node, NodeSpec, NodeStatus, Taint
from wainwright.api.pods import Pod, PodSpec, PodStatus, Toleration
from wainwright.batching.claims import State, Surveyed
from wainwright.provisioning.durations import parse_duration
from wainwright.provisioning.garbage import orphaned_nodes, orphans, without_instance
from wainwright.provisioning.lifecycle import (
    AdoptLate,
    DeleteClaim,
    Missing,
    NodeMissing,
    Ready,
    Upset,
    decide,
    not_initialized,
)
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.termination import must_leave, tolerates

READY = Condition(type="Ready", status="True")
STATUS = {"providerID": "sim:///i-1", "nodeName": "c1"}


def a_claim(deleted=False, **status):
    claim = stored(a_record(), **{**STATUS, **status})
    if deleted:
        claim = msgspec.structs.replace(
            claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=START)
        )
    return claim


def surveyed(state=State.DONE, uid="n1", launched_ago=timedelta(minutes=1)):
    launched_ms = int((START - launched_ago).timestamp() * 1000)
    return Surveyed(name="c1", state=state, uid=uid, node="c1", launched_ms=launched_ms, is_held=False)


def a_node(*taints, ready=True, labels=None, deleted=False, allocatable=None):
    return Node(
        metadata=ObjectMeta(
            name="c1",
            uid="node-1",
            resource_version="7",
            labels=labels or {},
            deletion_timestamp=START if deleted else None,
        ),
        spec=NodeSpec(provider_id="sim:///i-1", taints=taints),
        status=NodeStatus(conditions=(READY,) if ready else (), allocatable=allocatable or {"cpu": "2", "pods": "110"}),
    )


def decided(*claims, nodes=(), records=()):
    return decide(claims, nodes, records, START, LaunchPolicy())


def test_a_ready_node_is_opened_and_told_of_in_one_patch_each():
    [step] = decided(a_claim(), nodes=[a_node(names.NOT_READY_TAINT)], records=[surveyed()])
    assert isinstance(step, Ready)
    assert step.opens
    assert step.node_patch["spec"]["taints"] == ()
    assert step.node_patch["metadata"]["labels"] == {names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"}
    assert step.node_patch["metadata"]["resourceVersion"] == "7"
    told = {c["type"]: c["status"] for c in step.status_patch["status"]["conditions"]}
    assert told == {"Registered": "True", "Initialized": "True", "Ready": "True"}


def test_a_node_that_was_opened_and_told_of_is_left_alone():
    conditions = [
        {"type": t, "status": "True", "reason": r} for t, r in (("Initialized", "Initialized"), ("Ready", "Ready"))
    ]
    joined = {"type": "Registered", "status": "True", "reason": "Registered", "message": "node c1 has joined"}
    claim = a_claim(conditions=[joined, *conditions])
    labels = {names.REGISTERED_LABEL: "true", names.INITIALIZED_LABEL: "true"}
    assert decided(claim, nodes=[a_node(labels=labels)], records=[surveyed()]) == []


@pytest.mark.parametrize("state", [State.PLANNED, State.CREATED, State.LAUNCHED, State.FAILING])
def test_the_taint_stays_until_the_planned_binds_are_over(state):
    assert decided(a_claim(), nodes=[a_node(names.NOT_READY_TAINT)], records=[surveyed(state)]) == []


def test_the_taint_stays_until_the_scheduler_has_heard_of_the_binds():
    """kube-scheduler saw a node open before it saw the pods on it, and put four more there than it had room for."""
    node = a_node(names.NOT_READY_TAINT)

    def decided_after(ago_ms, binding="direct"):
        record = msgspec.structs.replace(surveyed(), bound_ago_ms=ago_ms)
        return decide([a_claim()], [node], [record], START, LaunchPolicy(binding=binding))

    assert decided_after(999) == []
    assert len(decided_after(1000)) == 1
    assert len(decided_after(0, binding="scheduler")) == 1  # we bind nothing there


def test_a_node_that_is_not_ready_is_waited_for_until_its_time_is_over():
    node = a_node(names.NOT_READY_TAINT, ready=False)
    assert decided(a_claim(), nodes=[node], records=[surveyed(launched_ago=timedelta(minutes=14))]) == []
    [step] = decided(a_claim(), nodes=[node], records=[surveyed(launched_ago=timedelta(minutes=16))])
    assert isinstance(step, DeleteClaim)
    assert step.reason == "NodeNotReady"


def test_a_node_that_was_ready_once_is_not_judged_by_its_launch():
    claim = a_claim(conditions=[{"type": "Registered", "status": "True"}])
    assert decided(claim, nodes=[a_node(ready=False)], records=[surveyed(launched_ago=timedelta(hours=2))]) == []


def test_a_node_that_never_joined_goes_too_though_nobody_finished_its_launch():
    [step] = decided(a_claim(), records=[surveyed(State.LAUNCHED, launched_ago=timedelta(minutes=16))])
    assert isinstance(step, DeleteClaim)


def test_what_is_being_deleted_becomes_failing_once_it_was_done():
    [step] = decided(a_claim(deleted=True), nodes=[a_node()], records=[surveyed()])
    assert isinstance(step, Upset)
    assert decided(a_claim(deleted=True), records=[surveyed(State.FAILING)]) == []


def test_a_deleted_node_takes_its_claim_along_and_a_missing_one_is_asked_for():
    [step] = decided(a_claim(), nodes=[a_node(deleted=True)], records=[surveyed()])
    assert isinstance(step, DeleteClaim)
    [step] = decided(a_claim(), records=[surveyed()])
    assert isinstance(step, NodeMissing)


def test_claims_without_a_record_and_records_without_a_claim_are_found():
    [step] = decided(a_claim())
    assert isinstance(step, AdoptLate)
    [step] = decided(records=[surveyed()])
    assert isinstance(step, Missing)
    assert decided(records=[surveyed(State.PLANNED, uid="")]) == []


def test_a_claim_of_somebody_else_is_none_of_our_business():
    other = msgspec.structs.replace(a_claim(), metadata=ObjectMeta(name="users-own", uid="x"))
    assert decided(other) == []


def test_a_claim_that_only_somebody_elses_finalizer_holds_is_over():
    claim = a_claim(deleted=True)
    meta = msgspec.structs.replace(claim.metadata, finalizers=("example.com/mine",))
    assert decided(msgspec.structs.replace(claim, metadata=meta)) == []
    [step] = decided(claim)
    assert isinstance(step, AdoptLate)


def test_why_a_node_is_not_initialized():
    claim = stored(a_record(startup_taints=(Taint(key="cni", effect="NoSchedule"),), requests={"gpu": 1}))
    cni, unreachable = Taint(key="cni", effect="NoSchedule"), Taint(key=names.NODE_UNREACHABLE_KEY, effect="NoExecute")
    node = a_node()
    assert "cni" in not_initialized(claim, node, (cni,))
    assert "unreachable" in not_initialized(claim, node, (unreachable,))
    assert not_initialized(claim, node, ()) == "the node does not report any gpu yet"
    assert not_initialized(claim, a_node(allocatable={"gpu": "1"}), ()) == ""


# Going ---------------------------------------------------------------------------------------------------------------


def a_pod(*, owner="", deleted_ago=None, phase="Running", tolerations=()):
    return Pod(
        metadata=ObjectMeta(
            name="p",
            owner_references=(OwnerReference(kind=owner),) if owner else (),
            deletion_timestamp=None if deleted_ago is None else START - deleted_ago,
        ),
        spec=PodSpec(node_name="n", tolerations=tolerations),
        status=PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("pod", "answer"),
    [
        (a_pod(), True),
        (a_pod(owner="ReplicaSet"), True),
        (a_pod(owner="DaemonSet"), False),
        (a_pod(owner="Node"), False),
        (a_pod(phase="Succeeded"), False),
        (a_pod(deleted_ago=timedelta(seconds=10)), True),
        (a_pod(deleted_ago=timedelta(seconds=61)), False),
        (a_pod(tolerations=(Toleration(operator="Exists"),)), False),
        (a_pod(tolerations=(Toleration(key="karpenter.sh/disrupted", operator="Exists"),)), False),
        (a_pod(tolerations=(Toleration(key="other", operator="Exists"),)), True),
    ],
)
def test_whom_a_node_that_goes_waits_for(pod, answer):
    assert must_leave(pod, START) is answer


def test_tolerations():
    taint = Taint(key="k", effect="NoSchedule", value="v")
    assert tolerates(Toleration(key="k", value="v"), taint)
    assert not tolerates(Toleration(key="k", value="w"), taint)
    assert not tolerates(Toleration(key="k", operator="Exists", effect="NoExecute"), taint)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("0s", 0)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "Never", "10", "h", "1h x", "-1s"])
def test_what_is_no_duration(text):
    assert parse_duration(text) is None


def test_orphans_are_old_and_belong_to_no_claim_by_name_and_uid():
    later = START + timedelta(seconds=31)
    claim = a_claim()
    replace = msgspec.structs.replace
    mine = replace(INSTANCE, token="n1-1")
    other_uid, other = replace(mine, id="i-2", token="n0-1"), replace(mine, id="i-3", provider_id="sim:///i-3")
    assert orphans([mine, other_uid, other], [claim], later) == [other_uid, other]
    assert orphans([other_uid], [claim], START + timedelta(seconds=29)) == []
    assert orphans([other], [stored(a_record())], later) == [], "a claim that knows no instance yet may get this one"


def test_claims_without_an_instance_and_nodes_without_a_claim():
    assert without_instance([a_claim()], [INSTANCE]) == []
    assert len(without_instance([a_claim()], [])) == 1
    assert without_instance([a_claim(deleted=True)], []) == []
    owner = OwnerReference(kind="NodeClaim", name="c1", uid="n1")
    meta = ObjectMeta(name="c1", finalizers=(names.TERMINATION_FINALIZER,), owner_references=(owner,))
    node = Node(metadata=meta)
    assert orphaned_nodes([node], [a_claim()]) == []
    assert orphaned_nodes([node, Node(metadata=ObjectMeta(name="else"))], []) == [node]
