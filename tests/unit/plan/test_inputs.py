"""NodePools, nodes and the running cluster in a plan."""

from datetime import UTC, datetime

import msgspec

from tests.unit.plan.builders import (
    SMALL,
    a_node,
    a_node_pool,
    a_pod,
    a_workload,
    given,
    placed,
    planned,
)
from wainwright.api.meta import Condition, ObjectMeta, OwnerReference
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Node
from wainwright.api.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from wainwright.cloud.errors import CloudUnavailable
from wainwright.provisioning.snapshots import ClusterState
from workers.plan.command import make_plan
from workers.plan.findings import Findings
from workers.plan.inputs import assemble, price_of_node
from workers.plan.manifests import sort_documents

NOW = datetime(2026, 5, 1, tzinfo=UTC)
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def warned(answer, words):
    return any(words in text for text in answer["warnings"])


# NodePools ------------------------------------------------------------------------------------------------------------


def test_without_a_node_pool_one_that_allows_everything_is_taken_and_told():
    answer = planned(a_workload(replicas=3))
    assert {claim["node_pool"] for claim in answer["new_node_claims"]} == {"default"}
    assert warned(answer, "no NodePool is given")


def test_a_node_pool_that_was_left_out_is_a_reason_and_no_default_takes_its_place():
    answer = planned(a_pod(), a_node_pool(weight=1000))
    [reasons] = answer["pod_reasons"].values()
    assert [reason["where"] for reason in reasons] == ["nodepools", "nodepool/general"]
    assert reasons[1]["code"] == "invalid"
    assert "spec.weight: 1000" in reasons[1]["message"]
    assert not warned(answer, "no NodePool is given")


def test_the_heavier_node_pool_goes_first():
    answer = planned(a_pod(), a_node_pool("light", weight=1), a_node_pool("heavy", weight=10))
    assert [claim["node_pool"] for claim in answer["new_node_claims"]] == ["heavy"]


def test_what_cannot_be_had_for_a_node_pool_is_a_reason():
    def refused(_pool):
        raise CloudUnavailable("the cloud is away")

    findings = Findings()
    from tests.unit.plan.builders import read

    manifests, _ = read(a_pod(), a_node_pool())
    found = assemble(manifests, ClusterState(epoch="", version=0, read_at=NOW), refused, findings)
    [left] = make_plan(found).unplaced
    assert left.reasons[-1].message == "the cloud is away"


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_room_on_existing_nodes_is_used_first():
    bound = a_pod("bound", cpu="3")
    bound["spec"]["nodeName"] = "node-1"
    answer = planned(a_workload(replicas=3), bound, a_node(cpu="4"), a_node_pool())
    assert answer["existing_nodes"] == {"node-1": ["web-0", "web-1"]}
    assert answer["summary"]["pods_on_new"] == 1


def test_cordoned_and_tainted_nodes_are_left_alone():
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    answer = planned(a_pod(), a_node("a", unschedulable=True), a_node("b", taints=taints), a_node_pool())
    assert answer["existing_nodes"] == {}
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    answer = planned(a_pod(tolerations=tolerations), a_node("b", taints=taints), a_node_pool())
    assert answer["existing_nodes"] == {"b": ["solo"]}


def test_a_node_without_allocatable_takes_capacity_or_the_size_of_its_type():
    of_capacity = a_node("a") | {"status": {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"}}}
    of_type = a_node("b", labels={INSTANCE_TYPE: "s2"}, allocatable={})
    unknown = a_node("c", allocatable={})
    answer = planned(a_workload(replicas=8), of_capacity, of_type, unknown, a_node_pool())
    assert {name: len(pods) for name, pods in answer["existing_nodes"].items()} == {"a": 2, "b": 4}
    assert warned(answer, "Node b: has no status.allocatable and no capacity; taken from the catalog's s2")
    assert warned(answer, "Node c: has no status.allocatable, no capacity and no known instance type")


def test_pods_on_nodes_that_are_not_given_are_told():
    stray = a_pod("stray")
    stray["spec"]["nodeName"] = "elsewhere"
    answer = planned(stray, a_pod(), a_node_pool())
    assert placed(answer) == ["solo"]
    assert warned(answer, "1 pods are bound to nodes that are not given (elsewhere)")


def test_nodes_of_a_node_pool_count_against_its_limits():
    labels = {"karpenter.sh/nodepool": "general"}
    full = planned(a_pod(cpu="1500m"), a_node(cpu="1", labels=labels), a_node_pool(limits={"cpu": "2"}))
    assert full["pod_error_classes"]["solo"][0] == "limits"


def test_the_price_of_a_node_is_that_of_its_offering():
    zone, how = {"topology.kubernetes.io/zone": "zone-a"}, {"karpenter.sh/capacity-type": "on-demand"}
    labels = {INSTANCE_TYPE: "s2", "karpenter.sh/nodepool": "general", **zone, **how}
    assert price_of_node(labels, {"general": SMALL}) == 0.1
    assert price_of_node({**labels, INSTANCE_TYPE: "s9"}, {"general": SMALL}) is None
    assert price_of_node({}, {"general": SMALL}) is None


def test_nothing_to_place_is_told():
    assert warned(planned(a_node_pool()), "there is no pod to place")


# The running cluster --------------------------------------------------------------------------------------------------


def a_running_pod(name, *, node="", owner=None, cpu="500m"):
    status = PodStatus(phase="Running") if node else None
    waiting = PodStatus(
        phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),)
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"real-{name}",
            labels={"app": "web", "pod-template-hash": "abc"},
            owner_references=(owner,) if owner else (),
            creation_timestamp=NOW,
        ),
        spec=PodSpec(node_name=node, containers=(Container(resources=ResourceRequirements(requests={"cpu": cpu})),)),
        status=status or waiting,
    )


def a_cluster(*pods, planned=(), pools=("general",)):
    sizes = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    node = msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": sizes, "capacity": sizes}}, Node)
    return ClusterState(
        epoch="e",
        version=3,
        read_at=NOW,
        pods=pods,
        nodes=(node,),
        node_pools=tuple(msgspec.convert(a_node_pool(name), NodePool) for name in pools),
        planned=dict(planned),
    )


def test_manifests_are_planned_beside_what_runs_and_waits():
    cluster = a_cluster(a_running_pod("old", node="n1", cpu="1500m"), a_running_pod("waits"))
    answer = planned(a_pod(cpu="1"), cluster=cluster, guess=False)
    assert placed(answer) == ["solo", "waits"]
    assert answer["existing_nodes"] == {"n1": ["waits"]}
    assert warned(answer, "1 pods that wait in the cluster now are planned too")


def test_pods_of_live_plans_keep_their_room_and_are_not_planned_again():
    waits = a_running_pod("waits", cpu="1500m")
    cluster = a_cluster(waits, planned={waits.uid: "node/n1"})
    answer = planned(a_pod(cpu="1"), cluster=cluster, guess=False)
    assert placed(answer) == ["solo"]
    assert answer["existing_nodes"] == {}


def test_a_workload_that_runs_already_gets_only_what_it_lacks():
    owner = OwnerReference(kind="ReplicaSet", name="web-abc", controller=True)
    cluster = a_cluster(a_running_pod("web-abc-1", node="n1", owner=owner))
    answer = planned(a_workload(replicas=3), cluster=cluster, guess=False)
    assert placed(answer) == ["web-0", "web-1"]


def test_a_pod_of_the_manifests_that_is_in_the_cluster_is_not_planned_twice():
    answer = planned(a_pod("old"), cluster=a_cluster(a_running_pod("old", node="n1")), guess=False)
    assert answer["summary"]["pods"] == 0
    assert warned(answer, "Pod old is in the cluster already")


def test_node_pools_of_the_manifests_take_the_place_of_the_clusters():
    replaced = planned(a_pod(cpu="3"), a_node_pool(limits={"cpu": "1"}), cluster=a_cluster(), guess=False)
    assert replaced["pod_error_classes"]["solo"][0] == "limits"
    added = planned(a_pod(cpu="3"), a_node_pool("extra", weight=9), cluster=a_cluster(), guess=False)
    assert added["new_node_claims"][0]["node_pool"] == "extra"


def test_a_cluster_without_node_pools_gets_none_made_up():
    answer = planned(a_pod(cpu="3"), cluster=a_cluster(pools=()), guess=False)
    assert answer["pod_error_classes"]["solo"][0] == "no-node-pools"


def test_the_same_manifests_give_the_same_answer_on_any_day():
    objects = (a_workload(replicas=7), a_pod(), a_node_pool())
    assert planned(*objects) == planned(*objects)
    assert given(*objects).snapshot.taken_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_sorting_no_documents_is_no_manifests():
    assert sort_documents([], Findings()).of("Pod") == []
