"""Scheduler, kubelets, node lifecycle and eviction, as a client of the API sees them."""

import contextlib
import subprocess
import time

import pytest
import urllib3

from tests.contract.sim_controllers.conftest import a_pod, a_workload, condition, has_taint, is_ready


def is_running(pod):
    return pod is not None and pod["status"]["phase"] == "Running" and is_ready(pod)


def test_a_pod_that_fits_nowhere_says_so_until_a_node_comes(world, pods, name):
    world.create(pods, a_pod("p", name))
    told = world.wait(f"{pods}/p", lambda pod: condition(pod, "PodScheduled"))
    verdict = condition(told, "PodScheduled")
    assert (verdict["status"], verdict["reason"]) == ("False", "Unschedulable")
    assert "nodes available to schedule pods" in verdict["message"] or "nodes are available: " in verdict["message"]
    world.node(name)
    bound = world.wait(f"{pods}/p", is_running)
    assert bound["spec"]["nodeName"] == name
    assert condition(bound, "PodScheduled")["status"] == "True"
    assert bound["status"]["podIP"].startswith("10.")
    assert bound["status"]["startTime"]
    namespace = bound["metadata"]["namespace"]
    events = f"/api/v1/namespaces/{namespace}/events"
    wanted = {"FailedScheduling", "Scheduled"}
    world.wait(events, lambda found: wanted <= {event["reason"] for event in found["items"]})


def test_pods_of_another_scheduler_are_left_alone(world, pods, name):
    world.ready_node(name)
    world.create(pods, a_pod("other", name, schedulerName="custom"))
    world.create(pods, a_pod("mine", name))
    world.wait(f"{pods}/mine", is_running)
    other = world.get(f"{pods}/other")
    assert "nodeName" not in other["spec"]
    assert not other["status"].get("conditions")


def test_a_new_node_becomes_ready_with_lease_addresses_and_no_taint(world, name):
    node = world.ready_node(name)
    assert {address["type"] for address in node["status"]["addresses"]} == {"InternalIP", "Hostname"}
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    first = world.wait(lease, bool)["spec"]["renewTime"]
    world.wait(lease, lambda found: found["spec"]["renewTime"] > first)
    world.api.delete(f"/api/v1/nodes/{name}")
    world.gone(lease)


def test_many_pods_spread_over_nodes_without_overcommitting(world, pods, name):
    for number in range(3):
        world.node(f"{name}-{number}", group=name, cpu="5")
    for number in range(150):
        world.create(pods, a_pod(f"p{number}", name))
    found = world.wait(pods, lambda listed: all(map(is_running, listed["items"])))["items"]
    nodes = [pod["spec"]["nodeName"] for pod in found]
    assert {nodes.count(f"{name}-{number}") for number in range(3)} == {50}


def test_a_kubelet_refuses_what_does_not_fit(world, pods, name):
    world.ready_node(name, cpu="1")
    for pod in ("first", "second"):
        world.create(pods, a_pod(pod, name, cpu="600m", schedulerName="none"))
        target = {"target": {"kind": "Node", "name": name}}
        world.create(f"{pods}/{pod}/binding", {"metadata": {"name": pod}, **target})
        world.wait(f"{pods}/{pod}", lambda found: found["status"]["phase"] != "Pending")
    assert is_running(world.get(f"{pods}/first"))
    refused = world.get(f"{pods}/second")["status"]
    assert (refused["phase"], refused["reason"]) == ("Failed", "OutOfcpu")


def test_a_pod_that_ends_is_over_and_a_deleted_one_is_gone_after_its_stop(world, pods, name):
    world.ready_node(name)
    world.create(pods, a_pod("ends", name, restartPolicy="Never", annotations={"sim.wainwright.dev/run-seconds": "1"}))
    world.create(pods, a_pod("stops", name))
    over = world.wait(f"{pods}/ends", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert "running" not in over["status"]["containerStatuses"][0]["state"]
    world.wait(f"{pods}/stops", is_running)
    world.api.delete(f"{pods}/stops")
    assert world.get(f"{pods}/stops")["metadata"]["deletionGracePeriodSeconds"] == 1
    world.gone(f"{pods}/stops")


def test_a_no_execute_taint_evicts_who_does_not_tolerate_it(world, pods, name):
    world.ready_node(name)
    tolerations = [{"key": "example.com/away", "operator": "Exists", "effect": "NoExecute"}]
    world.create(pods, a_pod("stays", name, tolerations=tolerations))
    world.create(pods, a_pod("goes", name))
    for pod in ("stays", "goes"):
        world.wait(f"{pods}/{pod}", is_running)
    world.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [{"key": "example.com/away", "effect": "NoExecute"}]}})
    world.gone(f"{pods}/goes")
    assert is_running(world.get(f"{pods}/stays"))


def test_a_cordoned_node_is_tainted_and_takes_nothing(world, pods, name):
    world.ready_node(name)
    world.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    world.wait(f"/api/v1/nodes/{name}", lambda node: has_taint(node, "unschedulable"))
    world.create(pods, a_pod("p", name))
    told = world.wait(f"{pods}/p", lambda pod: condition(pod, "PodScheduled"))
    assert "1 node(s) were unschedulable" in condition(told, "PodScheduled")["message"]


def test_a_node_lives_with_its_instance(world, pods, name, launch):
    """Not ready before the instance has booted; Unknown, tainted and emptied after it was taken away."""
    instance = launch()
    node = instance["node_name"]
    world.node(node, group=name, provider_id=instance["provider_id"])
    gone_soon = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("unreachable", "not-ready")
    ]
    world.create(pods, a_pod("p", name, tolerations=gone_soon, schedulerName="none"))
    target = {"target": {"kind": "Node", "name": node}}
    world.create(f"{pods}/p/binding", {"metadata": {"name": "p"}, **target})
    world.wait(f"{pods}/p", is_running)
    assert is_ready(world.get(f"/api/v1/nodes/{node}"))
    world.cloud.ask("POST", f"/v1/instances/{instance['id']}/interrupt")
    lost = world.wait(f"/api/v1/nodes/{node}", lambda found: has_taint(found, "unreachable", "NoExecute"))
    assert condition(lost, "Ready")["status"] == "Unknown"
    evicted = world.wait(f"{pods}/p", lambda pod: "deletionTimestamp" in pod["metadata"])
    assert condition(evicted, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    assert condition(evicted, "Ready")["status"] == "False"
    world.api.delete(f"/api/v1/nodes/{node}")
    world.gone(f"{pods}/p")


def test_a_frozen_node_comes_back_when_thawed(world, name):
    path = f"/api/v1/nodes/{name}"
    world.ready_node(name)
    world.api.patch(path, {"metadata": {"annotations": {"sim.wainwright.dev/frozen": "true"}}})
    world.wait(path, lambda node: condition(node, "Ready")["status"] == "Unknown")
    world.api.patch(path, {"metadata": {"annotations": {"sim.wainwright.dev/frozen": None}}})
    world.wait(path, lambda node: is_ready(node) and not has_taint(node, "unreachable"))


@pytest.mark.parametrize("fault", ["cut-watches", "compact", "restart"])
def test_controllers_go_on_after_a_fault_of_the_server(world, pods, name, fault):
    world.ready_node(name)
    world.create(pods, a_pod("before", name))
    world.wait(f"{pods}/before", is_running)
    assert world.api.post(f"/_wainwright/{fault}", {}).status in (200, 202)
    if fault == "compact":
        world.api.post("/_wainwright/cut-watches", {})
    if fault == "restart":
        _wait_for_answers(world)
    world.create(pods, a_pod("after", name))
    world.wait(f"{pods}/after", is_running)


def test_work_is_done_although_a_fifth_of_all_requests_fails(world, namespace, name):
    pods, deployments = f"/api/v1/namespaces/{namespace}/pods", f"/apis/apps/v1/namespaces/{namespace}/deployments"
    world.ready_node(name)
    world.create(deployments, a_workload("Deployment", "web", name, replicas=10))
    rules = [
        {
            "verbs": ["create", "patch", "delete"],
            "resources": ["pods", "pods/status", "pods/binding"],
            "rate": 0.07,
            **how,
        }
        for how in ({"status": 500}, {"status": 409}, {"status": 429})
    ]
    assert world.api.put("/_wainwright/faults", rules).status == 200
    try:
        world.wait(pods, lambda found: len(found["items"]) == 10 and all(map(is_running, found["items"])))
        world.api.patch(f"{deployments}/web", {"spec": {"replicas": 2}})
        world.wait(pods, lambda found: len(found["items"]) == 2)
    finally:
        world.api.delete("/_wainwright/faults")


def _wait_for_answers(world):
    time.sleep(0.3)
    for _ in range(100):
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            world.api.get("/readyz")
            return
        time.sleep(0.1)


def test_new_controllers_take_over_from_killed_ones(world, pods, name):
    world.ready_node(name)
    world.create(pods, a_pod("first", name))
    world.wait(f"{pods}/first", is_running)
    world.controllers.kill()
    world.create(pods, a_pod("second", name))
    world.api.delete(f"{pods}/first")
    world.controllers.start()
    world.wait(f"{pods}/second", is_running)
    world.gone(f"{pods}/first")


def test_an_unknown_controller_is_refused_with_the_names_there_are(world):
    command = [*world.controllers.command, "--only", "kubelet,nonsense"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert "unknown controllers nonsense" in ended.stderr
    assert "scheduler" in ended.stderr
