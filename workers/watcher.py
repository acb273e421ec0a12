"""`python -m workers.watcher`: keeps the cluster view, queues pods that wait for capacity. Run two: one stands by."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence

from config.settings import Settings
from tasks.adapters import make_cloud, make_kube
from tasks.context import make_store
from tasks.hints import CeleryHints
from wainwright.api.nodeclaims import NodeClaim
from wainwright.batching.claims import ClaimRecords
from wainwright.clock import Clock, SystemClock
from wainwright.errors import KubeError, KubeUnavailable
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder
from wainwright.kube.leases import KARPENTER_LEASE, LeaderElector, fresh_holder
from wainwright.kube.watcher import Watcher, WatchPolicy
from wainwright.podscaling.controller import new_controller
from wainwright.podscaling.metrics import KPAMetrics
from wainwright.provisioning.chores import Chores
from wainwright.provisioning.controller import Controller
from wainwright.provisioning.intake import Intake
from wainwright.provisioning.objects import adoptions
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.provisioner import Provisioner
from workers.celery_app import make_app
from workers.process import end_with_parent, set_up_logging, settings_or_exit, show_life, tune_garbage_collector

logger = logging.getLogger(__name__)

LEASE_NAME = "wainwright-watcher"
POOLS_SECONDS = 10.0
"""How often NodePools are looked at again without an event: catalogs and NodeClasses change without one."""
ASK_AGAIN_SECONDS = 2.0
EXIT_KARPENTER = 3
"""Exit status when Karpenter is at work on the same cluster."""


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the Lease is released then, so that a standby goes on at once."""
    parser = argparse.ArgumentParser(prog="python -m workers.watcher", description=__doc__)
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started us is gone")
    arguments = parser.parse_args(argv)
    settings = settings_or_exit()
    set_up_logging(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if arguments.exit_with_parent:
        end_with_parent(stopping.set)
    kube = make_kube(settings)
    if settings.kube.karpenter == "refuse":
        holder = karpenter_at_work(kube, stopping, SystemClock())
        if holder:
            sys.stderr.write(refusal(holder))
            return EXIT_KARPENTER
    run(settings, kube, stopping)
    return 0


def run(settings: Settings, kube: KubeClient, stopping: threading.Event) -> None:
    """Wires a watcher and runs it until `stopping` is set."""
    store = make_store(settings)
    holder = show_life(store, "watcher")
    clock = SystemClock()
    hints = CeleryHints(make_app(settings), clock)
    recorder = EventRecorder(kube, clock=clock)
    intake_chores, pool_chores = Chores(clock=clock), Chores(clock=clock)
    provisioner = Provisioner(
        store,
        shards=settings.batching.shards,
        hint=lambda shard: intake_chores.soon(f"hint {shard}", lambda: hints.window(shard)),
        clock=clock,
    )
    intake = Intake(store, provisioner, intake_chores, recorder, resync_seconds=settings.watcher.resync_seconds)
    controller = Controller(
        store,
        kube,
        make_cloud(settings, kube),
        provisioner,
        recorder,
        pool_chores,
        on_change=intake.pools_changed,
        clock=clock,
    )
    records, launch_policy = ClaimRecords(store), LaunchPolicy()

    def adopt(claims: Sequence[NodeClaim], epoch: str, fence: int) -> None:
        count = records.adopt(adoptions(claims), epoch=epoch, fence=str(fence), request_ms=launch_policy.request_ms)
        logger.info("action=claims_adopted epoch=%s listed=%d adopted=%d", epoch, len(claims), count)

    elector = LeaderElector(
        kube,
        name=LEASE_NAME,
        identity=holder,
        namespace=settings.watcher.namespace,
        duration_seconds=settings.watcher.lease_seconds,
        clock=clock,
    )
    watcher = Watcher(
        kube,
        store,
        elector,
        holder=holder,
        adopt=adopt,
        consumer=intake,
        policy=WatchPolicy(
            watch_seconds=settings.watcher.watch_seconds, silence_seconds=settings.watcher.stale_seconds
        ),
        clock=clock,
    )
    controller.register(watcher)
    scaling = new_controller(store, watcher, KPAMetrics(store), intake_chores, hints.reconcile)
    pool_chores.every(POOLS_SECONDS, "look at nodepools", lambda: controller.refresh() if intake.is_active else None)
    for name, work in (("chores", intake_chores.run), ("nodepools", pool_chores.run)):
        threading.Thread(target=work, name=name, daemon=True).start()

    def stop() -> None:
        stopping.wait()
        watcher.stop()

    threading.Thread(target=stop, name="stop", daemon=True).start()
    tune_garbage_collector()
    watcher.run()
    scaling.stop()
    intake_chores.stop()
    pool_chores.stop()
    store.close()


def karpenter_at_work(kube: KubeClient, stopping: threading.Event, clock: Clock) -> str:
    """Who holds Karpenter's leader Lease; empty when nobody does. Waits for the API server to answer."""
    told = False
    while not stopping.is_set():
        try:
            return fresh_holder(kube, *KARPENTER_LEASE, clock.now())
        except (KubeUnavailable, KubeError) as error:
            if not told:
                logger.warning("action=waiting_for_kubernetes server=%s error=%s", kube.config.server, error)
                told = True
            stopping.wait(ASK_AGAIN_SECONDS)
    return ""


def refusal(holder: str) -> str:
    """What whoever starts the watcher beside Karpenter must read."""
    namespace, name = KARPENTER_LEASE
    return (
        f"wainwright: not started: Karpenter is at work in this cluster (Lease {namespace}/{name}, held by {holder}).\n"
        "Two provisioners on the same NodePools buy every node twice. Decide which one it shall be:\n"
        "  - Wainwright: stop Karpenter (kubectl scale deployment/karpenter -n kube-system --replicas=0), start again\n"
        "  - both, because Karpenter looks after other NodePools only: set WAINWRIGHT_KUBE_KARPENTER=ignore\n"
        "  - Karpenter: nothing to do\n"
    )


if __name__ == "__main__":
    sys.exit(main())
