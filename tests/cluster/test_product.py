"""Wainwright with a real scheduler and real controllers: both ways of binding, and what must never happen."""

import threading

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool, a_pod
from tests.acceptance.invariants import faults_of, open_records
from tests.contract.kube_api.cluster import Api
from tests.control_plane.plugin import PRODUCT
from wainwright.api.names import ZONE_LABEL as ZONE
from wainwright.api.quantities import parse_resources
from workers.demo import workload

pytestmark = pytest.mark.cluster

SHARE = 5
"""The demo's workload, with one pod in so many."""


def smaller(manifest):
    """The workload with its pods divided by SHARE; how many are left."""
    spec = manifest["spec"]
    for field in ("replicas", "parallelism", "completions"):
        if field in spec:
            spec[field] = max(1, spec[field] // SHARE)
    return spec.get("replicas") or spec["parallelism"]


def overfull(system):
    """Nodes whose pods ask for more than there is, and pods that a kubelet turned away."""
    taken = {}
    faults = []
    for pod in system.list("Pod"):
        node, phase = pod["spec"].get("nodeName"), pod["status"].get("phase")
        if phase == "Failed":
            faults.append(f"pod {pod['metadata']['name']} on {node}: {pod['status'].get('reason')}")
        if node and phase not in ("Failed", "Succeeded"):
            sums = taken.setdefault(node, {"pods": 0})
            sums["pods"] += 1
            for container in pod["spec"]["containers"]:
                for name, amount in parse_resources(container["resources"].get("requests", {})).items():
                    sums[name] = sums.get(name, 0) + amount
    for node in system.list("Node"):
        name = node["metadata"]["name"]
        room = parse_resources(node["status"].get("allocatable", {}), round_up=False)
        for resource, amount in taken.get(name, {}).items():
            if room and amount > room.get(resource, 0):
                faults.append(f"node {name}: {amount} of {room.get(resource, 0)} {resource} are taken")
    return faults


def all_over(system):
    """No record is open any more, but those of pods that cannot be placed."""
    return not {what for what in open_records(system) if what != "seen"}


@pytest.mark.parametrize("binding", ["direct", "scheduler"])
def test_the_demos_workload_runs(system, binding):
    parts = list(workload.workloads())
    pods = {part["metadata"]["name"]: smaller(part) for part in parts}
    placeable = sum(count for name, count in pods.items() if name != workload.UNPLACEABLE)
    system.apply(*workload.node_pools(), workload.daemon_set(), *parts)
    running = system.wait_running(placeable, "demo=wainwright", seconds=90, namespace="default")
    assert len(running) == placeable
    system.wait("nothing is under way", lambda: all_over(system), 30)
    assert overfull(system) == []
    left_out = system.pods(f"app={workload.UNPLACEABLE}")
    assert len(left_out) == pods[workload.UNPLACEABLE]
    assert system.report(left_out[0]["metadata"]["name"])["reasons"]
    # A pod may be planned twice, when kube-scheduler gave the room to another one: that is a figure, not a fault. So
    # are agents for whose room it took other pods: they came too early, before their node said what it has.
    agents = [pod for pod in system.pods("app=node-agent") if not pod["spec"].get("nodeName")]
    allowed = {f"pod {pod['metadata']['name']} is not bound" for pod in (*left_out, *agents)}
    faults = [fault for fault in faults_of(system) if fault not in allowed]
    planned_twice = [fault for fault in faults if "NodeClaims are for pod" in fault]
    assert [fault for fault in faults if fault not in planned_twice] == []
    plans = system.redis(lambda redis: redis.zcard(system.keys.plans))
    price = sum(i["price"] for i in system.live_instances())
    nodes = len(system.list("Node"))
    print(
        f"binding {binding}: {placeable} pods on {nodes} nodes for {price:.3f} $/h, {plans} plans, "
        f"{len(planned_twice)} pods planned twice, {len(agents)} agents without room"
    )


def test_no_request_of_it_is_refused(system):
    """It runs with the service account of config/rbac: what that lacks, the API server's audit log shows."""
    asked = system.cluster.processes.requests_of(PRODUCT)
    assert {event["verb"] for event in asked} >= {"create", "get", "list", "watch", "patch"}
    refused = [event for event in asked if event["responseStatus"].get("code") in (401, 403)]
    assert refused == []


GREEDY = [{"operator": "Exists"}]
"""Tolerates everything, our taint included: kube-scheduler may put such a pod on a node that we are still filling."""


@pytest.mark.parametrize("eager", [False, True], ids=["", "tolerating everything"])
def test_no_pod_lands_on_room_that_the_scheduler_filled_meanwhile(system, eager):
    """Waves of Deployments whose pods fill their nodes to the brim, and others that the scheduler may put anywhere."""
    system.apply(a_node_pool("full", types=("general-4-amd64", "general-8-amd64")))
    count = 0
    for wave in range(3):
        tolerations = {"tolerations": GREEDY} if eager else {}
        ours = a_deployment(f"ours-{wave}", 12, cpu="900m")
        theirs = a_deployment(f"theirs-{wave}", 8, cpu="650m", **tolerations)
        system.apply(theirs, ours)
        count += 20
        system.wait_running(count // 2, seconds=60, namespace="default")
        assert overfull(system) == []
    system.wait_running(count, seconds=60, namespace="default")
    system.wait("nothing is under way", lambda: all_over(system), 30)
    assert overfull(system) == []
    assert faults_of(system) == []


PROVISIONER = "volumes.wainwright.dev"


class Provisioner(threading.Thread):
    """A CSI driver's provisioner, simulated: makes a volume in the zone of the node that the scheduler selected."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self._api = api
        self._over = threading.Event()

    def run(self):
        while not self._over.wait(0.2):
            for claim in self._api.get("/api/v1/persistentvolumeclaims").body["items"]:
                node = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
                if node and not claim["spec"].get("volumeName"):
                    self._provide(claim, self._api.get(f"/api/v1/nodes/{node}").body)

    def _provide(self, claim, node):
        meta = claim["metadata"]
        place = {"key": ZONE, "operator": "In", "values": [node["metadata"]["labels"][ZONE]]}
        spec = {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": PROVISIONER, "volumeHandle": meta["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
            "claimRef": {field: meta[field] for field in ("namespace", "name", "uid")},
        }
        self._api.post("/api/v1/persistentvolumes", {"metadata": {"name": f"pvc-{meta['uid']}"}, "spec": spec})

    def stop(self):
        self._over.set()
        self.join()


@pytest.fixture
def provisioner(system):
    api = Api(system.cluster.kubeconfig)
    storage = {"metadata": {"name": "waiting"}, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
    classes, claims = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/namespaces/default/persistentvolumeclaims"
    assert api.post(classes, storage).status in (201, 409)
    thread = Provisioner(api)
    thread.start()
    yield api
    thread.stop()
    for path in (claims, "/api/v1/persistentvolumes", "/api/v1/namespaces/default/pods"):
        api.delete(path, {"gracePeriodSeconds": 0})
    api.delete(f"{classes}/waiting")


def test_pods_whose_volumes_wait_for_them_are_left_to_the_scheduler(system, provisioner):
    """They get both a node and a volume; others of the same plan are bound by us all the same."""
    system.apply(a_node_pool("data", types=("general-4-amd64",)))
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    for number in range(4):
        spec = {"storageClassName": "waiting", "accessModes": ["ReadWriteOnce"]}
        spec["resources"] = {"requests": {"storage": "1Gi"}}
        assert provisioner.post(claims, {"metadata": {"name": f"data-{number}"}, "spec": spec}).status == 201
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        system.apply(a_pod(f"stateful-{number}", cpu="1", volumes=[volume]))
        system.apply(a_pod(f"plain-{number}", cpu="500m"))
    system.wait_running(8, seconds=60, namespace="default")
    system.wait("nothing is under way", lambda: all_over(system), 40)
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in system.list("Node")}
    volumes = {v["spec"]["claimRef"]["name"]: v for v in provisioner.get("/api/v1/persistentvolumes").body["items"]}
    bound_by_us = binders(system)
    for number in range(4):
        (term,) = volumes[f"data-{number}"]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        zones = term["matchExpressions"][0]["values"]
        assert nodes[system.get("Pod", f"stateful-{number}")["spec"]["nodeName"]][ZONE] in zones
        assert f"stateful-{number}" not in bound_by_us
        assert f"plain-{number}" in bound_by_us
    assert overfull(system) == []


def binders(system):
    """Names of the pods that were bound by us."""
    return {
        event["objectRef"]["name"]
        for event in system.cluster.processes.requests_of(PRODUCT)
        if event["objectRef"].get("subresource") == "binding" and event["responseStatus"]["code"] == 201
    }
