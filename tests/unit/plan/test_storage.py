"""Volumes in manifests, and what is guessed where only a cluster would know."""

from tests.unit.plan.builders import a_node_pool, a_pod, a_workload, placed, planned

ZONE = "topology.kubernetes.io/zone"


def a_claim(name="data", **spec):
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}


def a_volume(name="vol-1", zone="zone-b", **spec):
    affinity = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}
    csi = {"driver": "ebs.csi.aws.com", "volumeHandle": name}
    meta = {"name": name}
    spec = {"csi": csi, "nodeAffinity": {"required": affinity}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def a_class(name="fast", mode="WaitForFirstConsumer", **more):
    meta = {"name": name, **more.pop("meta", {})}
    base = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta}
    return base | {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": mode, **more}


def with_volume(claim="data"):
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def zone(answer):
    [claim] = answer["new_node_claims"]
    return claim["cheapest"]["zone"]


def test_a_bound_claim_pulls_its_pod_to_the_zone_of_its_volume():
    answer = planned(a_pod(volumes=with_volume()), a_claim(volumeName="vol-1"), a_volume(), a_node_pool())
    assert zone(answer) == "zone-b"


def test_a_volume_that_is_reserved_for_a_claim_binds_it():
    volume = a_volume(claimRef={"namespace": "default", "name": "data"})
    assert zone(planned(a_pod(volumes=with_volume()), a_claim(), volume, a_node_pool())) == "zone-b"


def test_allowed_topologies_of_a_class_narrow_the_zones():
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]
    answer = planned(
        a_pod(volumes=with_volume()),
        a_claim(storageClassName="fast"),
        a_class(allowedTopologies=topologies),
        a_node_pool(),
    )
    assert zone(answer) == "zone-b"
    assert not any("StorageClass" in text for text in answer["warnings"])


def test_a_class_that_is_not_given_is_taken_to_fit_any_zone():
    answer = planned(a_pod(volumes=with_volume()), a_claim(storageClassName="gp3"), a_node_pool())
    assert placed(answer) == ["solo"]
    assert "StorageClass gp3 is not given; its volumes are taken to fit any zone" in answer["warnings"]


def test_a_claim_without_a_class_takes_the_default_one_given_or_guessed():
    annotations = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    known = planned(a_pod(volumes=with_volume()), a_claim(), a_class(meta=annotations), a_node_pool())
    guessed = planned(a_pod(volumes=with_volume()), a_claim(), a_node_pool())
    assert placed(known) == placed(guessed) == ["solo"]
    assert not any("StorageClass" in text for text in known["warnings"])
    assert any("no default StorageClass is given" in text for text in guessed["warnings"])


def test_a_class_that_binds_immediately_is_told():
    answer = planned(
        a_pod(volumes=with_volume()), a_claim(storageClassName="old"), a_class("old", "Immediate"), a_node_pool()
    )
    assert placed(answer) == ["solo"]
    assert any("StorageClass old binds immediately" in text for text in answer["warnings"])


def test_a_claim_that_does_not_exist_keeps_its_pod_out():
    answer = planned(a_pod(volumes=with_volume("gone")), a_node_pool())
    assert "PersistentVolumeClaim default/gone does not exist" in answer["pod_errors"]["solo"]


def test_stateful_sets_bring_their_claims():
    template = {"metadata": {"name": "data"}, "spec": a_claim(storageClassName="fast")["spec"]}
    more = {"volumeClaimTemplates": [template]}
    answer = planned(a_workload("StatefulSet", "db", replicas=2, more=more), a_class(), a_node_pool())
    assert placed(answer) == ["db-0", "db-1"]
