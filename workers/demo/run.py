"""Runs the demo on a stack of its own and gives the verdict."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from config.settings import Settings
from wainwright.errors import AlreadyExists
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import DAEMON_SETS, DEPLOYMENTS, JOBS, NODE_POOLS, PODS, Resource
from workers.demo import workload
from workers.demo.burst import Burst
from workers.demo.observer import Observer
from workers.demo.trace import TracedPod
from workers.demo.verdict import Verdict, judge
from workers.stack import Stack, StackOptions

KINDS: dict[str, Resource] = {"Deployment": DEPLOYMENTS, "Job": JOBS, "DaemonSet": DAEMON_SETS, "NodePool": NODE_POOLS}
GIVE_UP_SECONDS = 120.0
"""Without progress for this long, the demo ends with what it has."""
MOST_CREATES = 8
VICTIM = "launch-1"

Report = Callable[[str], None]


class DemoOptions:
    """keep: leave the folder (logs, kubeconfig) behind. kill: `kill -9` a launch worker halfway."""

    def __init__(self, *, folder: Path | None = None, kill: bool = True) -> None:
        self.folder = folder
        self.kill = kill


def run_demo(settings: Settings, options: DemoOptions, report: Report) -> Verdict:
    """The thousand pods of `workload`, and beside them a burst of load on one Deployment."""

    def drive(stack: Stack, kube: KubeClient, observer: Observer) -> Verdict:
        started = time.monotonic()
        report("applying two NodePools, a DaemonSet, Deployments and Jobs: 1,000 pods")
        burst = Burst(kube, stack.store, report)
        _apply(kube, [*workload.node_pools(), workload.daemon_set(), *workload.workloads()])
        killer = _Killer(stack, enabled=options.kill, at_bound=workload.PLACEABLE // 2, report=report)
        burst.start()
        try:
            _follow(stack, observer, workload.PLACEABLE, killer, report)
            scaled = burst.finish()
        finally:
            burst.stop()
        return judge(
            kube,
            stack.store,
            stack.settings.cloud.url,
            observer,
            burst=scaled,
            unplaceable=[workload.UNPLACEABLE],
            expected=workload.PODS,
            took_seconds=time.monotonic() - started,
            restarts={child.name: child.restarts for child in stack.children.all()},
        )

    return _with_stack(settings, options, report, drive)


def run_trace(
    settings: Settings, options: DemoOptions, pods: Sequence[TracedPod], speedup: float, report: Report
) -> Verdict:
    """A trace: each pod appears at its time divided by speedup, lives as long as it did divided by speedup."""

    def drive(stack: Stack, kube: KubeClient, observer: Observer) -> Verdict:
        started = time.monotonic()
        _apply(kube, workload.node_pools(gpus=True))
        feeder = threading.Thread(target=_feed, args=(kube, pods, speedup), name="feeder", daemon=True)
        feeder.start()
        killer = _Killer(stack, enabled=options.kill, at_bound=len(pods) // 2, report=report)
        _follow(stack, observer, len(pods), killer, report)
        return judge(
            kube,
            stack.store,
            stack.settings.cloud.url,
            observer,
            unplaceable=[],
            expected=len(pods),
            took_seconds=time.monotonic() - started,
            restarts={child.name: child.restarts for child in stack.children.all()},
        )

    return _with_stack(settings, options, report, drive)


def _with_stack(
    settings: Settings,
    options: DemoOptions,
    report: Report,
    drive: Callable[[Stack, KubeClient, Observer], Verdict],
) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="wainwright-demo-") as room:
        folder = options.folder or Path(room)
        stack = Stack(settings, StackOptions(folder=folder, watchers=2, launch_workers=2, beats=2))
        try:
            began = time.monotonic()
            stack.start(report)
            report(f"stack ready in {time.monotonic() - began:.1f} s; logs in {folder / 'logs'}")
            kube = stack.kube
            observer = Observer(stack.kube)
            try:
                return drive(stack, kube, observer)
            finally:
                observer.stop()
        finally:
            stack.stop()


def _apply(kube: KubeClient, manifests: Sequence[dict[str, Any]]) -> None:
    for manifest in manifests:
        kube.create(KINDS[manifest["kind"]], manifest)


def _feed(kube: KubeClient, pods: Sequence[TracedPod], speedup: float) -> None:
    began = time.monotonic()
    first = pods[0].created_s
    with ThreadPoolExecutor(MOST_CREATES) as pool:
        for pod in pods:
            due = (pod.created_s - first) / speedup
            time.sleep(max(0.0, began + due - time.monotonic()))
            pool.submit(_create_pod, kube, pod, max(5.0, pod.lives_s / speedup))


def _create_pod(kube: KubeClient, pod: TracedPod, run_seconds: float) -> None:
    try:
        kube.create(PODS, pod.manifest(run_seconds))
    except AlreadyExists:
        return


class _Killer:
    """`kill -9` to one launch worker once half of the pods are bound or being bound."""

    def __init__(self, stack: Stack, *, enabled: bool, at_bound: int, report: Report) -> None:
        self._stack = stack
        self._armed = enabled
        self._at_bound = at_bound
        self._report = report

    def look(self, counts: dict[str, int]) -> None:
        launching = self._stack.store.read(lambda redis: redis.zcard(self._stack.store.keys.claims_due))
        if self._armed and (counts["bound"] >= self._at_bound or (launching and counts["bound"] > 0)):
            self._armed = False
            victim = self._stack.children[VICTIM]
            self._report(f"kill -9 {VICTIM} (pid {victim.pid}) with {launching} claims under way")
            victim.signal(signal.SIGKILL)


def _follow(stack: Stack, observer: Observer, placeable: int, killer: _Killer, report: Report) -> None:
    """Until everything placeable ran, or nothing moved for GIVE_UP_SECONDS."""
    last: dict[str, int] = {}
    moved = time.monotonic()
    told = 0.0
    while True:
        counts = observer.count()
        now = time.monotonic()
        if counts != last:
            moved, last = now, counts
        if now - told > 1.0:
            told = now
            claims = stack.store.read(lambda redis: redis.zcard(stack.store.keys.claims))
            report(
                f"pods: {counts['seen']} seen, {counts['pending']} pending, {counts['bound']} bound, "
                f"{counts['running']} running; {claims} claims"
            )
        killer.look(counts)
        if counts["running"] >= placeable or now - moved > GIVE_UP_SECONDS:
            return
        stack.check()
        time.sleep(0.1)
