"""Documents of every kind: what is used, what is left out, and what is told about it."""

import pytest

from tests.unit.plan.builders import a_job, a_node_pool, a_pod, a_workload, read
from workers.plan.manifests import READ

NAMED = {"metadata": {"name": "x"}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SPECS = {
    "PersistentVolumeClaim": {"spec": CLAIM},
    "StorageClass": {"provisioner": "ebs.csi.aws.com"},
    "RuntimeClass": {"handler": "runc"},
    "PriorityClass": {"value": 5},
    "Pod": a_pod("x"),
    "Job": a_job("x"),
}
VERSIONS = {
    "PersistentVolumeClaim": "v1",
    "PersistentVolume": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "LimitRange": "v1",
    "ReplicationController": "v1",
    "Pod": "v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Job": "batch/v1",
}


def document(kind):
    if kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController"):
        made = a_workload(kind, "x")
        if kind == "ReplicationController":
            made["apiVersion"], made["spec"]["selector"] = "v1", {"app": "x"}
        return made
    return {"apiVersion": VERSIONS[kind], "kind": kind, **NAMED, **SPECS.get(kind, {})}


def texts(findings):
    return [str(fault) for fault in findings.faults]


@pytest.mark.parametrize("kind", READ)
def test_every_kind_is_read_without_a_word(kind):
    manifests, findings = read(document(kind))
    assert (findings.faults, findings.warnings) == ([], [])
    [item] = manifests.of(kind)
    assert item.name == "x"


def test_a_fault_names_file_document_field_value_and_fix():
    bad = a_workload(replicas="three")
    _, findings = read(a_pod(), bad)
    assert texts(findings) == ['test.yaml, document 2 (Deployment web): spec.replicas: "three": must be a whole number']


def test_a_broken_document_does_not_stop_the_others():
    manifests, _ = read(b"kind: [\n---\n" + b"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    assert [item.name for item in manifests.of("Namespace")] == ["a"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "Not_Good"}}, 'metadata.name: "Not_Good": must be lower-case'),
        ({"metadata": {}}, "metadata.name: null: is required"),
        ({"spec": {"containers": []}}, "spec.containers: []: is required"),
    ],
)
def test_what_the_api_server_would_refuse_is_a_fault(change, words):
    _, findings = read({**a_pod(), **change})
    assert words in texts(findings)[0]


def test_what_a_plan_can_do_without_is_only_a_warning():
    bare = a_workload()
    del bare["spec"]["selector"], bare["spec"]["template"]["spec"]["containers"][0]["image"]
    manifests, findings = read(bare)
    assert not findings.faults
    assert manifests.of("Deployment")
    assert len(findings.warnings) == 2
    assert "spec.selector: is required; taken to be the labels of the template" in findings.warnings[0]
    assert "image: is required; counted all the same" in findings.warnings[1]


def test_a_selector_that_does_not_match_is_a_fault():
    bad = a_workload()
    bad["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    _, findings = read(bad)
    assert "does not match template" in texts(findings)[0]


def test_an_old_or_missing_api_version_is_told_and_read():
    old = a_workload() | {"apiVersion": "extensions/v1beta1"}
    none = a_pod()
    del none["apiVersion"]
    manifests, findings = read(old, none)
    assert len(manifests.of("Deployment", "Pod")) == 2
    assert "read as apps/v1" in findings.warnings[0]
    assert "no apiVersion; read as v1" in findings.warnings[1]


def test_kinds_that_do_not_count_are_told_once_each():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}}
    typo = {"apiVersion": "apps/v1", "kind": "Deploymnet", "metadata": {"name": "a"}}
    _, findings = read(service, service, hpa, typo)
    assert findings.warnings == [
        "ignored: 1 Deploymnet: not a kind that is read here; did you mean Deployment?",
        "ignored: 1 HorizontalPodAutoscaler: the replicas of the manifests are what is planned",
        "ignored: 2 Service objects: does not matter for capacity",
    ]


def test_scenarios_and_catalogs_given_as_manifests_say_which_option_takes_them():
    _, findings = read(b'{"schema": "packing-scenario/v1"}\n---\n{"schema": "packing-catalog/v1"}\n---\na: 1\n')
    assert [text.rpartition(": ")[2] for text in texts(findings)] == [
        "is a packing scenario; give it with --scenario",
        "is a catalog; give it with --catalog",
        "must name what it is, as Deployment or NodePool",
    ]


def test_the_last_of_two_objects_of_one_name_counts():
    manifests, findings = read(a_workload(replicas=1), a_workload(replicas=4))
    [item] = manifests.of("Deployment")
    assert item.content["spec"]["replicas"] == 4
    assert "is there twice" in findings.warnings[0]


def test_every_fault_of_a_node_pool_is_named_and_the_pool_left_out():
    bad = a_node_pool(requirements=[{"key": "a", "operator": "Inn", "values": ["b"]}], weight=200)
    manifests, findings = read(bad, a_node_pool("good"))
    assert list(manifests.node_pools) == ["good"]
    assert "general" in manifests.refused_pools
    assert "spec.template.spec.requirements[0].operator" in texts(findings)[0]
    assert "did you mean In?" in texts(findings)[0]
    assert "spec.weight: 200" in texts(findings)[1]


def test_a_node_pool_of_an_older_version_is_refused_with_what_to_do():
    _, findings = read(a_node_pool() | {"apiVersion": "karpenter.sh/v1beta1"})
    assert "must be karpenter.sh/v1; convert" in texts(findings)[0]


def test_a_static_node_pool_gets_no_nodes_for_pending_pods():
    manifests, findings = read(a_node_pool(replicas=3))
    assert not manifests.node_pools
    assert "fixed number of replicas" in findings.warnings[0]


def test_a_time_that_cannot_be_read_is_a_fault():
    bad = a_pod()
    bad["metadata"]["creationTimestamp"] = "yesterday"
    from tests.unit.plan.builders import planned

    answer = planned(bad, a_pod("good"), a_node_pool())
    assert "metadata.creationTimestamp" in answer["warnings"][0]
    assert answer["summary"]["pods"] == 1
