"""One cluster for the whole directory, a namespace of its own for each test."""

import itertools
import shutil
import time

import pytest

from tests.contract.kube_api.cluster import Api, EmbeddedCluster, a_definition

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
def server(request):
    """What serves: every test that speaks to a cluster runs on the embedded one and on a real control plane."""
    return request.param


@pytest.fixture(scope="session")
def kubeconfig(server, request):
    if server == "real":
        yield request.getfixturevalue("real_api_server").kubeconfig
        return
    cluster = EmbeddedCluster().start()
    yield cluster.kubeconfig
    cluster.stop()
    shutil.rmtree(cluster.directory)


@pytest.fixture(scope="session")
def api(kubeconfig):
    return Api(kubeconfig)


@pytest.fixture
def unique():
    """A name that no other test uses."""
    return f"t{next(_numbers)}-{time.time_ns() % 10**9}"


@pytest.fixture
def namespace(api, unique):
    """Name of a new namespace."""
    assert api.post("/api/v1/namespaces", {"metadata": {"name": unique}}).status == 201
    yield unique
    api.delete(f"/api/v1/namespaces/{unique}")


@pytest.fixture
def pods(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def config_maps(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def deployments(namespace):
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


@pytest.fixture
def leases(namespace):
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


@pytest.fixture
def node(api, unique):
    """Name of a new node, without a kubelet."""
    assert api.post("/api/v1/nodes", {"metadata": {"name": unique}}).status == 201
    yield unique
    api.delete(f"/api/v1/nodes/{unique}")


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def defined(api, group, **options):
    """Creates a definition in the group and waits until it is served."""
    definition = a_definition(group, **options)
    answer = api.post(DEFINITIONS, definition)
    assert answer.status == 201, answer.body
    deadline = time.monotonic() + 5
    while api.get(f"/apis/{group}/v1/{definition['spec']['names']['plural']}").status != 200:
        assert time.monotonic() < deadline, "the resource is not served"
    return definition["metadata"]["name"]


@pytest.fixture
def define(api, unique):
    """define(**options of a_definition): creates a definition in a group of its own, gives the path of its group."""
    group = f"{unique}.example.com"
    created = []

    def make(**options):
        created.append(defined(api, group, **options))
        return f"/apis/{group}/v1"

    yield make
    for name in created:
        api.delete(f"{DEFINITIONS}/{name}")


@pytest.fixture(scope="session")
def lasting(api):
    """As `define`, but tests with the same options share one definition: the real server waits two seconds before the
    first object of a new one.
    """
    groups, created = {}, []

    def make(**options):
        key = repr(sorted(options.items()))
        if key not in groups:
            groups[key] = f"l{next(_numbers)}-{time.time_ns() % 10**9}.example.com"
            created.append(defined(api, groups[key], **options))
        return f"/apis/{groups[key]}/v1"

    yield make
    for name in created:
        api.delete(f"{DEFINITIONS}/{name}")


@pytest.fixture
def widgets(lasting, namespace):
    """Path of a namespaced custom resource with status and scale, and any fields in spec and status."""
    paths = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    root = lasting(subresources={"status": {}, "scale": paths})
    return f"{root}/namespaces/{namespace}/widgets"


def a_widget(group_version, name, **spec):
    return {"apiVersion": group_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def widget(widgets):
    """widget(name, **spec): the body of a custom object."""
    _, _, group, version, *_ = widgets.split("/")

    def make(name, **spec):
        return a_widget(f"{group}/{version}", name, **spec)

    return make
