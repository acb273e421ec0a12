"""Machines behind nodes, what a kubelet reports, taints by condition, eviction by taint."""

from __future__ import annotations

import pytest

from tests.unit.sim.controllers.builders import NOW, a_node, a_pod, at
from wainwright.sim.controllers.kubelet.kubelets import AddressPool
from wainwright.sim.controllers.kubelet.machines import Instance, alive_from
from wainwright.sim.controllers.kubelet.node_status import node_report
from wainwright.sim.controllers.node_lifecycle import taint_patch, unknown_conditions, wanted_taints
from wainwright.sim.controllers.taint_eviction import seconds_tolerated

ID = "simulated:///z/i-1"


def seconds(node, instances=None, *, now=NOW, boot=0.0):
    return alive_from(node, instances, now=now, boot_delay_seconds=boot)


def an_instance(state="running", boots_at=NOW, **more):
    return {ID: Instance(provider_id=ID, state=state, boots_at=boots_at, **more)}


def test_a_node_of_no_cloud_boots_after_the_delay():
    assert seconds(a_node(), now=at(1), boot=3.0) == 2.0
    assert seconds(a_node(), now=at(9)) <= 0
    assert seconds(a_node(providerID="aws:///z/i-1"), {}, now=at(9)) <= 0


def test_a_node_of_the_cloud_runs_while_its_instance_does():
    node = a_node(providerID=ID)
    assert seconds(node, {}) is None
    assert seconds(node, an_instance("pending", at(4))) == 4.0
    assert seconds(node, an_instance(), now=at(1)) == -1.0
    assert seconds(node, an_instance(boots_at=None)) is None
    assert seconds(node, an_instance("terminating")) is None
    assert seconds(node, an_instance("terminated")) is None


def test_a_frozen_node_is_dead():
    assert seconds(a_node(annotations={"sim.wainwright.dev/frozen": "true"})) is None


def test_the_report_takes_amounts_from_the_instance_and_is_empty_once_shown():
    bare = a_node(ready="", status={"capacity": {}, "allocatable": {}})
    instance = Instance(capacity={"cpu": 2000, "memory": 2**30}, allocatable={"cpu": 1900, "memory": 2**29})
    report = node_report(bare, instance, address="172.16.0.1", now=NOW)
    assert report["capacity"] == {"cpu": "2", "memory": "1Gi"}
    assert report["allocatable"] == {"cpu": "1900m", "memory": "512Mi"}
    assert {c["type"]: c["status"] for c in report["conditions"]}["Ready"] == "True"
    assert report["addresses"][0] == {"type": "InternalIP", "address": "172.16.0.1"}
    shown = a_node(status={"addresses": [{"type": "InternalIP", "address": "172.16.0.1"}]})
    assert node_report(shown, None, address="172.16.0.1", now=NOW) is None


def test_a_node_that_says_nothing_gets_a_default_size():
    bare = a_node(ready="", status={"capacity": {}, "allocatable": {}})
    assert node_report(bare, None, address="a", now=NOW)["allocatable"]["pods"] == "110"


def taints(node):
    return [(taint.key.removeprefix("node.kubernetes.io/"), taint.effect) for taint in wanted_taints(node)]


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("ready", "wanted"),
    [
        ("", [("not-ready", "NoSchedule")]),
        ("True", []),
        ("False", [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]),
        ("Unknown", [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]),
    ],
)
def test_taints_follow_the_ready_condition(ready, wanted):
    assert taints(a_node(ready=ready, taints=[NOT_READY])) == wanted


def test_other_peoples_taints_stay_and_cordoned_nodes_get_one():
    node = a_node(taints=[{"key": "karpenter.sh/not-ready", "effect": "NoSchedule"}, NOT_READY], unschedulable=True)
    assert taints(node) == [("karpenter.sh/not-ready", "NoSchedule"), ("unschedulable", "NoSchedule")]


def test_taints_that_are_right_are_not_rewritten():
    first = a_node(ready="Unknown", taints=[NOT_READY])
    rendered = taint_patch(first, wanted_taints(first), NOW)
    assert rendered["metadata"]["resourceVersion"] == "1"
    second = a_node(ready="Unknown", taints=rendered["spec"]["taints"])
    assert wanted_taints(second) == second.spec.taints


def test_a_silent_node_is_unknown_with_the_reason_for_it():
    assert unknown_conditions(a_node(), NOW)[0]["reason"] == "NodeStatusUnknown"
    assert unknown_conditions(a_node(ready=""), NOW)[0]["reason"] == "NodeStatusNeverUpdated"


def _tolerations(*found):
    return [{"key": "k", "operator": "Exists", "effect": "NoExecute", **entry} for entry in found]


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        ([], 0.0),
        (_tolerations({}), None),
        (_tolerations({"tolerationSeconds": 300}), 300),
        (_tolerations({"tolerationSeconds": 300}, {"tolerationSeconds": 5}), 5),
        (_tolerations({"tolerationSeconds": -1}), 0),
        (_tolerations({"effect": "NoSchedule"}), 0.0),
    ],
)
def test_how_long_a_pod_may_stay_under_a_taint(tolerations, stays):
    node = a_node(taints=[{"key": "k", "effect": "NoExecute"}, {"key": "other", "effect": "NoSchedule"}])
    assert seconds_tolerated(a_pod(tolerations=tolerations), node.spec.taints) == stays


def test_addresses_are_given_once():
    pool = AddressPool("10.0.0.0/29")
    pool.used.add("10.0.0.2")
    assert [pool.take() for _ in range(3)] == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
