"""One embedded cluster with all controllers and a simulated cloud, as child processes; objects made through its API."""

import itertools
import shutil
import subprocess
import sys
import time

import msgspec
import pytest

from tests.contract.cloud.conftest import CloudProcess, a_request
from tests.contract.kube_api.cluster import Api, EmbeddedCluster

PATIENCE_SECONDS = 20
_numbers = itertools.count(1)


class Controllers:
    """`python -m wainwright.sim.controllers` as a child."""

    def __init__(self, kubeconfig, *options):
        self.command = [sys.executable, "-m", "wainwright.sim.controllers", "--kubeconfig", str(kubeconfig)]
        self.command += ["--exit-with-parent", *options]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command)
        return self

    def stop(self):
        self.process.terminate()
        assert self.process.wait(10) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class World:
    """The cluster as tests see it. Every node that a test makes carries a label `test` that its pods select."""

    def __init__(self, cluster, controllers, cloud):
        self.cluster, self.controllers, self.cloud = cluster, controllers, cloud
        self.api = Api(cluster.kubeconfig)

    def get(self, path):
        """The object at `path`, None if there is none."""
        answer = self.api.get(path)
        return None if answer.status == 404 else answer.body

    def wait(self, path, holds, seconds=PATIENCE_SECONDS):
        """The object at `path` once `holds` is true of it (None stands for: not there)."""
        end = time.monotonic() + seconds
        while True:
            found = self.get(path)
            if holds(found):
                return found
            if time.monotonic() > end:
                raise AssertionError(
                    f"{path} after {seconds} s:\n{msgspec.json.format(msgspec.json.encode(found)).decode()}"
                )
            time.sleep(0.05)

    def gone(self, path):
        self.wait(path, lambda found: found is None)

    def create(self, path, body):
        answer = self.api.post(path, body)
        assert answer.status == 201, answer.body
        return answer.body

    def node(self, name, *, cpu="8", pods="110", group=None, provider_id="", labels=None, taints=()):
        room = {"cpu": cpu, "memory": "32Gi", "pods": pods}
        body = {
            "metadata": {"name": name, "labels": {"test": group or name, **(labels or {})}},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {"capacity": room, "allocatable": room},
        }
        return self.create("/api/v1/nodes", body)

    def ready_node(self, name, **options):
        self.node(name, **options)
        return self.wait(f"/api/v1/nodes/{name}", lambda node: is_ready(node) and not has_taint(node, "not-ready"))


def condition(obj, kind):
    found = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}


def is_ready(obj):
    return obj is not None and condition(obj, "Ready").get("status") == "True"


def has_taint(node, name, effect=None):
    taints = node["spec"].get("taints", [])
    return any(t["key"].endswith(f"/{name}") and effect in (None, t["effect"]) for t in taints)


def a_pod(name, group, *, cpu="100m", annotations=None, labels=None, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "containers": [container],
            "nodeSelector": {"test": group},
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def a_workload(kind, name, group, *, app=None, annotations=None, pod_spec=None, api_version="apps/v1", **spec):
    template = a_pod("x", group, annotations=annotations, labels={"app": app or name}, **(pod_spec or {}))
    del template["metadata"]["name"]
    whole = {"selector": {"matchLabels": {"app": app or name}}, "template": template, **spec}
    if kind == "Job":
        del whole["selector"]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": whole}


@pytest.fixture(scope="session")
def world():
    cluster = EmbeddedCluster()
    cloud = CloudProcess("--launch-delay", "0", "--boot-delay", "0.5", "--terminate-delay", "0")
    controllers = None
    try:
        cluster.start()
        cloud.start()
        options = ("--cloud", cloud.url, "--node-monitor-grace", "5", "--lease-period", "1")
        controllers = Controllers(cluster.kubeconfig, *options).start()
        yield World(cluster, controllers, cloud)
        controllers.stop()
    finally:
        if controllers is not None and controllers.process.poll() is None:
            controllers.kill()
        cloud.close()
        cluster.stop()
        shutil.rmtree(cluster.directory)


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"n{next(_numbers)}"


@pytest.fixture
def namespace(world, name):
    """A namespace of the test's own, left to be deleted at the end."""
    world.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    world.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def pods(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def launch(world):
    """Launch an instance of the simulated cloud."""

    def launched():
        request = msgspec.to_builtins(a_request())
        status, instance, _ = world.cloud.ask("POST", "/v1/instances", {"request": request})
        assert status == 201, instance
        return instance

    return launched
