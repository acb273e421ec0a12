"""The demo's pod autoscaling: a Deployment gets a burst of load, and must grow, panic, and go back to zero."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.pods import Pod
from wainwright.api.workloads import Workload
from wainwright.batching.store import Store, translated
from wainwright.errors import WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODE_CLAIMS, POD_AUTOSCALERS, PODS
from wainwright.podscaling.inbox import Push, push
from wainwright.podscaling.records import decode_record

Manifest = dict[str, Any]

NAME: Final = "burst"
KEY: Final = f"default/{NAME}"
CALM_LOAD: Final = 8.0
BURST_LOAD: Final = 120.0
A_POD: Final = 10
"""Load that one pod is to bear."""
PODS_WANTED: Final = 12
CALM_SECONDS: Final = 4.0
LONGEST_BURST_SECONDS: Final = 25.0
"""The burst ends when all pods are ready, and then at the latest."""
GIVE_UP_SECONDS: Final = 55.0
STEP_SECONDS: Final = 0.5


class BurstVerdict(msgspec.Struct, kw_only=True):
    """What happened, in seconds after the burst began; None: it did not. most_desired: largest wish. nodes: NodeClaims
    made for its pods. acts: scaling acts, oldest first.
    """

    most_desired: int = 0
    panic_after: float | None = None
    pods_ready_after: float | None = None
    zero_after: float | None = None
    nodes: int = 0
    acts: list[str] = []
    faults: list[str] = []


def manifests() -> list[tuple[Any, Manifest]]:
    """Short windows and a short grace period, so that all of it fits into a minute."""
    domain = "autoscaling.knative.dev/"
    knobs = {"window": "6s", "target": str(A_POD), "target-utilization-percentage": "100", "max-scale": "20"}
    pod = {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": _requests("3", "6Gi")}]}
    return [
        (
            CONFIG_MAPS,
            {
                "metadata": {"name": "config-autoscaler", "namespace": "kube-system"},
                "data": {"scale-to-zero-grace-period": "2s"},
            },
        ),
        (
            DEPLOYMENTS,
            {
                "metadata": {"name": NAME, "namespace": "default"},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"app": NAME}},
                    "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
                },
            },
        ),
        (
            POD_AUTOSCALERS,
            {
                "metadata": {
                    "name": NAME,
                    "namespace": "default",
                    "annotations": {domain + key: value for key, value in knobs.items()},
                },
                "spec": {"scaleTargetRef": {"name": NAME}, "metrics": [{"type": "push"}]},
            },
        ),
    ]


def _requests(cpu: str, memory: str) -> Manifest:
    return {"requests": {"cpu": cpu, "memory": memory}}


class Burst:
    """Drives and watches it from a thread of its own, from `start` to its end; `finish` waits for that."""

    def __init__(self, kube: KubeClient, store: Store, report: Callable[[str], None]) -> None:
        self._kube = kube
        self._store = store
        self._report = report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="burst", daemon=True)
        self._pods: set[str] = set()
        self._began = 0.0
        self._burst_at: float | None = None
        self.verdict = BurstVerdict()

    def start(self) -> None:
        for resource, manifest in manifests():
            self._kube.create(resource, manifest)
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def finish(self) -> BurstVerdict:
        """Waits for its end, at most until GIVE_UP_SECONDS after the start."""
        self._thread.join(max(0.0, self._began + GIVE_UP_SECONDS + 5.0 - time.monotonic()))
        self._judge()
        return self.verdict

    def _run(self) -> None:
        while not self._stop.wait(STEP_SECONDS) and self.verdict.zero_after is None:
            if time.monotonic() - self._began > GIVE_UP_SECONDS:
                return
            try:
                self._step()
            except WainwrightError:
                continue

    def _step(self) -> None:
        now = time.monotonic()
        if self._burst_at is None and self._pods and now - self._began >= CALM_SECONDS:
            self._burst_at = now
            self._report(f"burst: load {CALM_LOAD:g} becomes {BURST_LOAD:g}, {A_POD} a pod")
        push(self._store, [Push(pa=KEY, value=self._load(now))])
        ready = self._look_at_pods()
        record = self._record()
        if self._burst_at is None or record is None:
            return
        verdict, after = self.verdict, round(now - self._burst_at, 1)
        if record.state.desired > verdict.most_desired:
            verdict.most_desired = record.state.desired
            self._report(f"burst: {record.state.desired} pods wished")
        if verdict.panic_after is None and record.state.panic_since_ms is not None:
            verdict.panic_after = after
            self._report(f"burst: panic {after} s after it began")
        if verdict.pods_ready_after is None and ready >= PODS_WANTED:
            verdict.pods_ready_after = after
            self._report(f"burst: {ready} pods ready after {after} s; the load goes")
        if verdict.pods_ready_after is not None and self._replicas() == 0:
            verdict.zero_after = after
            self._report(f"burst: at zero again after {after} s")

    def _load(self, now: float) -> float:
        if self._burst_at is None:
            return CALM_LOAD
        is_over = self.verdict.pods_ready_after is not None or now - self._burst_at > LONGEST_BURST_SECONDS
        return 0.0 if is_over else BURST_LOAD

    def _look_at_pods(self) -> int:
        """How many are ready."""
        pods, _ = self._kube.list(PODS, Pod, namespace="default", label_selector=f"app={NAME}")
        self._pods.update(pod.uid for pod in pods)
        return sum(pod.is_ready for pod in pods)

    def _replicas(self) -> int:
        return self._kube.get(DEPLOYMENTS, NAME, "default", as_type=Workload).wanted_replicas

    def _record(self) -> Any:
        with translated():
            text: Any = self._store.raw.get(self._store.keys.kpa_state(KEY))
        return decode_record(text)

    def _judge(self) -> None:
        verdict = self.verdict
        claims, _ = self._kube.list(NODE_CLAIMS, NodeClaim)
        for claim in claims:
            listed = json.loads(claim.metadata.annotations.get("wainwright.dev/pods", "[]"))
            if any((one if isinstance(one, str) else one[0]) in self._pods for one in listed):
                verdict.nodes += 1
        acts: Any = self._store.read(lambda redis: redis.xrange(self._store.keys.kpa_log(KEY)))
        verdict.acts = [f"{fields['from']} to {fields['to']} ({fields['reason']})" for _, fields in acts]
        if verdict.most_desired < PODS_WANTED:
            wanted = f"{PODS_WANTED} pods for load {BURST_LOAD:g}"
            verdict.faults.append(f"burst: {wanted} were never wished, {verdict.most_desired} at most")
        if verdict.panic_after is None:
            verdict.faults.append("burst: it did not panic")
        if verdict.pods_ready_after is None:
            verdict.faults.append(f"burst: {PODS_WANTED} pods were never ready")
        if verdict.zero_after is None:
            verdict.faults.append("burst: it did not go back to zero")


def render_burst(verdict: BurstVerdict) -> str:
    """One line."""

    def at(seconds: float | None) -> str:
        return "never" if seconds is None else f"after {seconds:.1f} s"

    return (
        f"burst: panic {at(verdict.panic_after)}, {PODS_WANTED} pods ready {at(verdict.pods_ready_after)} on "
        f"{verdict.nodes} nodes bought for them, zero {at(verdict.zero_after)}; scaled {', '.join(verdict.acts)}"
    )
