"""What a kubelet does next for a pod on its node: admit, start, make ready, finish, stop. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wainwright.sim.controllers.context import rfc3339
from wainwright.sim.controllers.matching import first_untolerated, node_matches
from wainwright.sim.controllers.objects import Node, Pod
from wainwright.sim.controllers.requests import allocatable, takes

RUN_SECONDS_ANNOTATION = "sim.wainwright.dev/run-seconds"
"""How long the pod's containers run before they exit (restartPolicy Never and OnFailure)."""
EXIT_CODE_ANNOTATION = "sim.wainwright.dev/exit-code"
"""What they exit with then; default 0."""
STOP_SECONDS_ANNOTATION = "sim.wainwright.dev/stop-seconds"
"""How long the containers take to stop when the pod is deleted; never longer than the grace period."""

JOB_RUN_SECONDS = 30.0
"""A Job's pod without the annotation runs this long; any other one runs for ever."""
STOP_SECONDS = 1.0
READY_SECONDS = 1.0
"""A readiness probe without initial delay passes after this."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for now; look again after `seconds` (None: when the pod changes)."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Admit the pod and run it."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write this status (a strategic merge patch)."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """The containers have stopped: take the pod away."""


Step = Wait | Start | Report | Remove


def _seconds(pod: Pod, annotation: str) -> float | None:
    """A number of seconds from an annotation; None if missing or not a number."""
    try:
        return float(pod.metadata.annotations[annotation])
    except (KeyError, ValueError):
        return None


def run_seconds(pod: Pod) -> float | None:
    """How long the containers run before they exit; None: for ever."""
    if pod.spec.restart_policy == "Always":
        return None
    given = _seconds(pod, RUN_SECONDS_ANNOTATION)
    owner = pod.metadata.controller
    return JOB_RUN_SECONDS if given is None and owner is not None and owner.kind == "Job" else given


def ready_delay(pod: Pod) -> float:
    """Seconds from start until every readiness probe passes; 0 if there is none."""
    probes = [c.readiness_probe for c in pod.spec.containers if c.readiness_probe is not None]
    return max((probe.initial_delay_seconds or READY_SECONDS for probe in probes), default=0.0)


def next_step(pod: Pod, now: datetime) -> Step:
    """The next step for a pod bound to a node whose kubelet runs.

    - being deleted: gone after the stop time (at most the grace period), at once if it never started or is over
    - over: nothing; not started: start
    - its time is up: Succeeded, Failed, or (OnFailure and exit code not 0) restarted
    - its probes pass by now, and its conditions do not say so: Ready (unless a readiness gate is closed)
    """
    if pod.is_terminating:
        return _stop(pod, now)
    if pod.is_terminal:
        return Wait()
    started = pod.status.start_time
    if started is None or pod.status.phase != "Running":
        return Start()
    age = (now - started).total_seconds()
    due = run_seconds(pod)
    restarts = max((s.restart_count for s in pod.status.container_statuses), default=0)
    if due is not None:
        due *= restarts + 1
        if age >= due:
            return Report(_exit_status(pod, now, restarts))
    delay = ready_delay(pod)
    if age < delay:
        due = delay if due is None else min(due, delay)
    elif not _containers_ready(pod) or pod.is_ready != _gates_open(pod):
        return Report(running_status(pod, now, is_ready=True))
    return Wait(None if due is None else max(due - age, 0.05))


def _stop(pod: Pod, now: datetime) -> Step:
    deleted = pod.metadata.deletion_timestamp
    grace = pod.metadata.deletion_grace_period_seconds
    if grace == 0 and pod.metadata.finalizers:
        return Wait()  # removed as far as a kubelet can; others' finalizers hold the object
    if deleted is None or grace is None or pod.status.start_time is None or pod.is_terminal:
        return Remove()
    stop = _seconds(pod, STOP_SECONDS_ANNOTATION)
    stop_seconds = min(grace, STOP_SECONDS if stop is None else stop)
    left = (deleted - timedelta(seconds=grace - stop_seconds) - now).total_seconds()
    return Wait(left) if left > 0 else Remove()


def _condition(kind: str, status: bool, now: datetime, **more: str) -> dict[str, Any]:  # noqa: FBT001
    value = "True" if status else "False"
    return {"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": rfc3339(now), **more}


def _gates_open(pod: Pod) -> bool:
    """Every readiness gate's condition is True."""
    gates = (pod.condition(gate.condition_type) for gate in pod.spec.readiness_gates)
    return all(gate is not None and gate.status == "True" for gate in gates)


def _containers_ready(pod: Pod) -> bool:
    condition = pod.condition("ContainersReady")
    return condition is not None and condition.status == "True"


def running_status(pod: Pod, now: datetime, *, is_ready: bool) -> dict[str, Any]:
    """Conditions and containers of a running pod (readiness gates hold back the pod's own Ready)."""
    gates_open = _gates_open(pod)
    why_not: dict[str, str] = {}
    if not is_ready:
        names = " ".join(container.name for container in pod.spec.containers)
        why_not = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}
    elif not gates_open:
        why_not = {"reason": "ReadinessGatesNotReady", "message": "corresponding condition of pod readiness gate"}
    started = rfc3339(pod.status.start_time or now)
    restarts = {status.name: status.restart_count for status in pod.status.container_statuses}
    uid = pod.metadata.uid
    return {
        "phase": "Running",
        "conditions": [
            _condition("PodReadyToStartContainers", True, now),
            _condition("Initialized", True, now),
            _condition("Ready", is_ready and gates_open, now, **why_not),
            _condition("ContainersReady", is_ready, now, **(why_not if not is_ready else {})),
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": f"simulated://{container.image}",
                "containerID": f"simulated://{uid}/{container.name}",
                "ready": is_ready,
                "started": True,
                "restartCount": restarts.get(container.name, 0),
                "state": {"running": {"startedAt": started}},
            }
            for container in pod.spec.containers
        ],
    }


def _exit_status(pod: Pod, now: datetime, restarts: int) -> dict[str, Any]:
    """The run time is over: restart (OnFailure and failed), else Succeeded or Failed by exit code."""
    code = int(_seconds(pod, EXIT_CODE_ANNOTATION) or 0)
    started, finished = rfc3339(pod.status.start_time or now), rfc3339(now)
    reason = "Completed" if code == 0 else "Error"
    terminated = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": finished}
    if code and pod.spec.restart_policy == "OnFailure":
        status = running_status(pod, now, is_ready=True)
        for container in status["containerStatuses"]:
            container["restartCount"] = restarts + 1
            container["lastState"] = {"terminated": terminated}
        return status
    outcome = {"reason": "PodCompleted"} if code == 0 else {"reason": "PodFailed"}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": [
            _condition("PodReadyToStartContainers", False, now),
            _condition("Initialized", True, now, **({"reason": "PodCompleted"} if code == 0 else {})),
            _condition("Ready", False, now, **outcome),
            _condition("ContainersReady", False, now, **outcome),
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": f"simulated://{container.image}",
                "ready": False,
                "started": False,
                "restartCount": restarts,
                # a strategic merge keeps other keys of `state`: take the running one away
                "state": {"running": None, "terminated": terminated},
            }
            for container in pod.spec.containers
        ],
    }


def start_status(pod: Pod, now: datetime, *, pod_ip: str, node_ip: str) -> dict[str, Any]:
    """Status of a pod that has just been started; Ready at once if it has no readiness probe."""
    return {
        **running_status(pod, now, is_ready=ready_delay(pod) == 0),
        "startTime": rfc3339(now),
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
    }


def admission_failure(pod: Pod, node: Node, admitted: Iterable[Mapping[str, int]]) -> dict[str, Any] | None:
    """The Failed status of a pod that the kubelet refuses, None if it may run.

    admitted: what each pod that runs on the node takes. Checked in the kubelet's order: resources, node affinity,
    NoExecute taints.
    """
    room = allocatable(node)
    used: dict[str, int] = {}
    for taken in admitted:
        for name, amount in taken.items():
            used[name] = used.get(name, 0) + amount
    for name, amount in takes(pod.spec).items():
        if used.get(name, 0) + amount > room.get(name, 0):
            numbers = f"requested: {amount}, used: {used.get(name, 0)}, capacity: {room.get(name, 0)}"
            return _refused(f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}")
    if not node_matches(pod.spec, node):
        return _refused(
            "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    taint = first_untolerated(node.spec.taints, pod.spec.tolerations, ("NoExecute",))
    if taint is not None:
        reason = f"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate: {taint.key}"
        return _refused("TaintToleration", reason)
    return None


def _refused(reason: str, message: str) -> dict[str, Any]:
    return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
