"""Pods of workloads: how many, how they are called, and which are there already."""

from tests.unit.plan.builders import a_job, a_node, a_node_pool, a_pod, a_workload, given, placed, planned


def names(found):
    return [pod.key for pod in found.pods]


def test_pods_are_named_after_their_workload_in_the_order_of_the_manifests():
    found = given(
        a_workload(name="web", replicas=2),
        a_pod(),
        a_workload("StatefulSet", "db", replicas=2, namespace="shop"),
        a_job(spec={"parallelism": 2, "completions": 5}),
        a_workload("ReplicaSet", "rs"),
        a_node_pool(),
    )
    assert names(found) == [
        "default/web-0",
        "default/web-1",
        "default/solo",
        "shop/db-0",
        "shop/db-1",
        "default/batch-0",
        "default/batch-1",
        "default/rs-0",
    ]
    ages = [pod.metadata.creation_timestamp for pod in found.pods]
    assert ages == sorted(ages)


def test_replicas_left_out_are_one_and_zero_is_none():
    one = a_workload(name="one")
    del one["spec"]["replicas"]
    assert names(given(one, a_workload(name="none", replicas=0))) == ["default/one-0"]


def test_jobs_run_as_many_pods_as_are_left():
    def pods(status=None, **spec):
        return len(given(a_job(spec=spec) | {"status": status or {}}).pods)

    assert pods() == 1
    assert pods(parallelism=3) == 3
    assert pods(parallelism=3, completions=2) == 2
    assert pods({"succeeded": 4}, parallelism=3, completions=5) == 1
    assert pods(suspend=True) == 0
    assert pods({"conditions": [{"type": "Complete", "status": "True"}]}) == 0


def test_a_stateful_set_counts_from_its_first_ordinal_and_brings_its_claims():
    template = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    more = {"ordinals": {"start": 3}, "volumeClaimTemplates": [template]}
    found = given(a_workload("StatefulSet", "db", replicas=2, more=more), a_node_pool())
    assert names(found) == ["default/db-3", "default/db-4"]
    assert [claim.metadata.name for claim in found.snapshot.persistent_volume_claims] == ["data-db-3", "data-db-4"]
    [volume] = found.pods[1].spec.volumes
    assert volume.persistent_volume_claim.claim_name == "data-db-4"


def test_pods_that_are_there_already_are_not_made_again():
    """A dump of a cluster: the Deployment, its ReplicaSet, and two of its four pods, one of them bound."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    replica_set = a_workload("ReplicaSet", "web-5d4f", replicas=4)
    replica_set["metadata"]["ownerReferences"] = [owner]
    replica_set["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    replica_set["spec"]["template"]["metadata"]["labels"] = {"app": "web"}
    pods = []
    for name in ("web-5d4f-aaaaa", "web-5d4f-bbbbb"):
        pod = a_pod(name, labels={"app": "web", "pod-template-hash": "5d4f"})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "r", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
        pods.append(pod)
    pods[0]["spec"]["nodeName"] = "node-1"
    found = given(a_workload(name="web", replicas=4), replica_set, *pods, a_node(), a_node_pool())
    assert sorted(names(found)) == ["default/web-0", "default/web-1", "default/web-5d4f-bbbbb"]
    assert [pod.key for pod in found.snapshot.nodes[0].pods] == ["default/web-5d4f-aaaaa"]
    assert "Deployment web: 2 of its 4 pods are there already" in found.warnings


def test_a_name_that_is_taken_is_not_given_again():
    found = given(a_pod("web-0"), a_workload(name="web", replicas=2))
    assert names(found) == ["default/web-0", "default/web-1", "default/web-2"]


def test_pods_that_are_over_or_leaving_are_left_out_and_told():
    over = a_pod("over") | {"status": {"phase": "Succeeded"}}
    leaving = a_pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    daemon = a_pod("daemon")
    daemon["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
    found = given(over, leaving, daemon, a_pod("stays"))
    assert names(found) == ["default/stays"]
    assert "ignored: 1 pod that is over" in found.warnings
    assert "ignored: 1 pod that is being deleted" in found.warnings
    assert any("owned by a DaemonSet" in text for text in found.warnings)


def test_more_replicas_than_a_cluster_holds_are_a_fault():
    found = given(a_workload(replicas=10_000_000), a_pod())
    assert names(found) == ["default/solo"]
    assert "spec.replicas: 10000000: more pods than a cluster holds" in found.warnings[0]


def test_daemon_sets_take_room_on_each_new_node():
    """s2 has 2 cores: 1.5 for the pod and 0.6 for the daemon are too many, so s4 it is."""
    without = planned(a_workload(cpu="1500m"), a_node_pool())
    daemon = a_workload("DaemonSet", "agent", cpu="600m", namespace="kube-system")
    beside = planned(a_workload(cpu="1500m"), daemon, a_node_pool())
    assert without["new_node_claims"][0]["cheapest"]["instance_type"] == "s2"
    assert beside["new_node_claims"][0]["cheapest"]["instance_type"] == "s4"
    assert beside["new_node_claims"][0]["requests"]["cpu"] == "2100m"
    assert placed(beside) == ["web-0"]


def test_revisions_of_deployments_can_be_told_apart_by_match_label_keys():
    first, second = a_workload(name="a", cpu="100m"), a_workload(name="a2", cpu="200m")
    labels = [pod.metadata.labels["pod-template-hash"] for pod in given(first, second).pods]
    assert len(set(labels)) == 2
    assert labels == [pod.metadata.labels["pod-template-hash"] for pod in given(first, second).pods]


def test_doubtful_pods_are_told_once_per_workload():
    spread = [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
    spread[0]["labelSelector"] = {"matchLabels": {"app": "other"}}
    found = given(
        a_workload(name="tiny", replicas=3, memory="400m"),
        a_workload(name="huge", cpu="500000"),
        a_workload(name="nothing", cpu="", memory=""),
        a_workload(name="uneven", topologySpreadConstraints=spread),
        a_workload(name="gated", schedulingGates=[{"name": "wait"}], schedulerName="other"),
    )
    told = "\n".join(found.warnings)
    assert told.count("Deployment tiny: container app asks for memory 400m, which is 1 byte; did you mean 400Mi?") == 1
    assert "Deployment huge: container app asks for cpu 500000, which is 500000 cores; did you mean 500000m?" in told
    assert "Deployment nothing: asks for nothing" in told
    assert "Deployment uneven: the topology spread by z does not select the pod's own labels" in told
    assert "Deployment gated: has scheduling gates (wait)" in told
    assert "Deployment gated: names scheduler 'other'" in told
