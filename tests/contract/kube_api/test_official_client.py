"""The official Python client: types decode, leader election works, watches resume."""

from types import SimpleNamespace

import pytest

from tests.contract.kube_api.cluster import a_deployment, a_pod


@pytest.fixture(scope="module")
def client(kubeconfig):
    kubernetes = pytest.importorskip("kubernetes")
    api_client = kubernetes.config.new_client_from_config(str(kubeconfig))
    yield SimpleNamespace(
        core=kubernetes.client.CoreV1Api(api_client),
        apps=kubernetes.client.AppsV1Api(api_client),
        custom=kubernetes.client.CustomObjectsApi(api_client),
        policy=kubernetes.client.PolicyV1Api(api_client),
        coordination=kubernetes.client.CoordinationV1Api(api_client),
        module=kubernetes.client,
        watch=kubernetes.watch.Watch,
        error=kubernetes.client.exceptions.ApiException,
    )
    api_client.close()


def test_pods_decode_into_models(client, namespace, node):
    created = client.core.create_namespaced_pod(namespace, a_pod("web", schedulerName="nobody"))
    assert created.metadata.uid
    assert created.metadata.creation_timestamp.tzinfo is not None
    listed = client.core.list_namespaced_pod(namespace)
    assert [pod.metadata.name for pod in listed.items] == ["web"]
    target = client.module.V1ObjectReference(kind="Node", name=node)
    body = client.module.V1Binding(metadata=client.module.V1ObjectMeta(name="web"), target=target)
    client.core.create_namespaced_pod_binding("web", namespace, body, _preload_content=False)
    assert client.core.read_namespaced_pod("web", namespace).spec.node_name == node
    client.core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    with pytest.raises(client.error) as raised:
        client.core.read_namespaced_pod("web", namespace)
    assert raised.value.status == 404


def test_workloads_and_scale(client, namespace):
    client.apps.create_namespaced_deployment(namespace, a_deployment("web", replicas=0))
    scale = client.apps.read_namespaced_deployment_scale("web", namespace)
    scale.spec.replicas = 2
    assert client.apps.replace_namespaced_deployment_scale("web", namespace, scale).spec.replicas == 2
    patched = client.apps.patch_namespaced_deployment("web", namespace, {"spec": {"replicas": 0}})
    assert patched.spec.replicas == 0
    assert patched.metadata.generation == 3


def test_leases_carry_microseconds(client, namespace):
    from datetime import UTC, datetime

    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    spec = client.module.V1LeaseSpec(holder_identity="me", lease_duration_seconds=6, renew_time=at)
    lease = client.module.V1Lease(metadata=client.module.V1ObjectMeta(name="a"), spec=spec)
    created = client.coordination.create_namespaced_lease(namespace, lease)
    assert created.spec.renew_time == at
    created.spec.holder_identity = "you"
    client.coordination.replace_namespaced_lease("a", namespace, created)
    with pytest.raises(client.error) as raised:
        client.coordination.replace_namespaced_lease("a", namespace, created)
    assert raised.value.status == 409


def test_watch(client, namespace):
    version = client.core.list_namespaced_pod(namespace).metadata.resource_version
    client.core.create_namespaced_pod(namespace, a_pod("web", schedulerName="nobody"))
    client.core.delete_namespaced_pod("web", namespace)
    watch, found = client.watch(), []
    for event in watch.stream(client.core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=2):
        found.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert found == ["ADDED", "MODIFIED", "DELETED"]


def test_custom_objects(client, widgets, widget, namespace):
    _, _, group, version, *_ = widgets.split("/")
    place = (group, version, namespace, "widgets")
    client.custom.create_namespaced_custom_object(*place, widget("a", replicas=1))
    client.custom.patch_namespaced_custom_object(*place, "a", {"spec": {"replicas": 2}})
    assert client.custom.get_namespaced_custom_object(*place, "a")["spec"]["replicas"] == 2
    assert len(client.custom.list_namespaced_custom_object(*place)["items"]) == 1
    client.custom.delete_namespaced_custom_object(*place, "a")
