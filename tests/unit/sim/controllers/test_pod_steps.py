"""What a kubelet does next for a pod."""

from __future__ import annotations

import pytest

from tests.unit.sim.controllers.builders import NOW, a_node, a_pod, at, text
from wainwright.sim.controllers.kubelet.pod_steps import (
    Remove,
    Report,
    Start,
    Wait,
    admission_failure,
    next_step,
    start_status,
)
from wainwright.sim.controllers.requests import pod_requests, takes

RUN = "sim.wainwright.dev/run-seconds"
EXIT = "sim.wainwright.dev/exit-code"


def running(*, ready=True, annotations=None, metadata=None, restarts=0, **more):
    conditions = [
        {"type": kind, "status": str(ready), "lastTransitionTime": text(NOW)} for kind in ("Ready", "ContainersReady")
    ]
    status = {
        "startTime": text(NOW),
        "conditions": conditions,
        "containerStatuses": [{"name": "c", "restartCount": restarts}],
    }
    meta = {"annotations": annotations or {}, **(metadata or {})}
    return a_pod(on="node", phase="Running", status=status, metadata=meta, **more)


def leaving(grace, **more):
    return {"deletionTimestamp": text(at(grace)), "deletionGracePeriodSeconds": grace, **more}


def conditions_of(status):
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def test_a_bound_pod_is_started():
    assert next_step(a_pod(on="node"), NOW) == Start()


def test_a_started_pod_without_probe_is_running_and_ready_at_once():
    status = start_status(a_pod(on="node"), NOW, pod_ip="10.64.0.1", node_ip="172.16.0.1")
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.64.0.1", "172.16.0.1")
    assert set(conditions_of(status).values()) == {"True"}
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": text(NOW)}}


def test_a_running_pod_that_never_ends_waits_for_a_change():
    assert next_step(running(), at(10_000)) == Wait()


def test_a_readiness_probe_passes_after_its_initial_delay():
    containers = [{"name": "c", "readinessProbe": {"initialDelaySeconds": 5}}]
    pod = running(ready=False, containers=containers)
    assert conditions_of(start_status(pod, NOW, pod_ip="", node_ip=""))["Ready"] == "False"
    assert next_step(pod, at(2)) == Wait(3.0)
    step = next_step(pod, at(5))
    assert isinstance(step, Report)
    assert conditions_of(step.status)["Ready"] == "True"


def test_a_closed_readiness_gate_holds_back_the_pod_but_not_its_containers():
    pod = running(ready=False, readinessGates=[{"conditionType": "gate"}])
    step = next_step(pod, at(1))
    assert isinstance(step, Report)
    assert conditions_of(step.status) | {"Ready": "", "ContainersReady": ""} == conditions_of(step.status) | {
        "Ready": "",
        "ContainersReady": "",
    }
    assert (conditions_of(step.status)["Ready"], conditions_of(step.status)["ContainersReady"]) == ("False", "True")


@pytest.mark.parametrize(
    ("policy", "annotations", "owner", "ends_after"),
    [
        ("Never", {RUN: "5"}, None, 5),
        ("OnFailure", {RUN: "0.5"}, None, 0.5),
        ("Never", {}, ("Job", "u"), 30),
        ("Never", {}, None, None),
        ("Never", {RUN: "soon"}, None, None),
        ("Always", {RUN: "5"}, None, None),
    ],
)
def test_how_long_a_pod_runs(policy, annotations, owner, ends_after):
    pod = running(annotations=annotations, owner=owner, restartPolicy=policy)
    step = next_step(pod, at(60))
    assert isinstance(step, Report) is (ends_after is not None)
    if ends_after is not None:
        assert step.status["phase"] == "Succeeded"
        assert next_step(pod, NOW) == Wait(ends_after)


def test_an_exit_code_fails_the_pod_or_restarts_it():
    annotations = {RUN: "5", EXIT: "3"}
    never = next_step(running(annotations=annotations, restartPolicy="Never"), at(5))
    assert never.status["phase"] == "Failed"
    assert never.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    again = next_step(running(annotations=annotations, restartPolicy="OnFailure"), at(5))
    assert again.status["phase"] == "Running"
    assert again.status["containerStatuses"][0]["restartCount"] == 1
    once = running(annotations=annotations, restartPolicy="OnFailure", restarts=1)
    assert next_step(once, at(5)) == Wait(5.0)


def test_a_deleted_pod_stops_after_a_second_or_its_own_time_but_within_its_grace():
    assert next_step(running(metadata=leaving(30)), NOW) == Wait(1.0)
    assert next_step(running(metadata=leaving(30)), at(1)) == Remove()
    slow = {"sim.wainwright.dev/stop-seconds": "10"}
    assert next_step(running(metadata=leaving(30), annotations=None), at(1)) == Remove()
    assert next_step(running(metadata=leaving(30, annotations=slow)), at(4)) == Wait(6.0)
    assert next_step(running(metadata=leaving(5, annotations=slow)), at(5)) == Remove()


def test_a_deleted_pod_that_never_started_or_is_over_goes_at_once():
    assert next_step(a_pod(on="node", metadata=leaving(30)), NOW) == Remove()
    assert next_step(a_pod(on="node", phase="Failed", metadata=leaving(30)), NOW) == Remove()


def test_a_stopped_pod_held_by_a_finalizer_is_left_alone():
    held = running(metadata=leaving(0, finalizers=["example.com/hold"]))
    assert next_step(held, at(5)) == Wait()


def test_admission_repeats_what_the_scheduler_should_have_seen():
    node = a_node(cpu="1", pods="2")
    pod = a_pod(cpu="600m", on="node")
    assert admission_failure(pod, node, []) is None
    refused = admission_failure(pod, node, [takes(pod.spec)])
    assert refused == {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 600, capacity: 1000",
    }
    small = a_pod(on="node")
    assert admission_failure(small, node, [takes(small.spec)] * 2)["reason"] == "OutOfpods"
    assert admission_failure(a_pod(nodeSelector={"a": "b"}), node, [])["reason"] == "NodeAffinity"


def test_admission_heeds_no_execute_taints_only():
    no_schedule = a_node(taints=[{"key": "karpenter.sh/not-ready", "effect": "NoSchedule"}])
    no_execute = a_node(taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}])
    assert admission_failure(a_pod(), no_schedule, []) is None
    assert admission_failure(a_pod(), no_execute, [])["reason"] == "TaintToleration"


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        # two containers: 100 + 200
        ({"containers": [("100m", {}), ("200m", {})]}, 300),
        # an init container's peak counts where it is larger: max(100, 500)
        ({"containers": [("100m", {})], "initContainers": [("500m", {})]}, 500),
        # a sidecar runs beside both: max(100 + 50, 50 + 300)
        ({"containers": [("100m", {})], "initContainers": [("50m", {"restartPolicy": "Always"}), ("300m", {})]}, 350),
        # overhead comes on top
        ({"containers": [("100m", {})], "overhead": {"cpu": "25m"}}, 125),
        # pod-level requests replace the sum
        ({"containers": [("100m", {})], "resources": {"requests": {"cpu": "1"}}}, 1000),
    ],
)
def test_requests_of_a_pod(spec, cpu):
    def container(request, more):
        return {"name": "c", "resources": {"requests": {"cpu": request}}, **more}

    whole = {
        key: [container(*entry) for entry in value] if "ontainers" in key else value for key, value in spec.items()
    }
    assert pod_requests(a_pod(**whole).spec)["cpu"] == cpu
