"""`python -m wainwright.sim.controllers`: the controllers as one process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from wainwright.clock import SystemClock
from wainwright.sim.controllers.client import ApiClient, load_kubeconfig
from wainwright.sim.controllers.context import Cluster, Controller
from wainwright.sim.controllers.disruption import DisruptionBudgets
from wainwright.sim.controllers.garbage import GarbageCollector
from wainwright.sim.controllers.kubelet.kubelets import LEASE_SECONDS, Kubelets
from wainwright.sim.controllers.namespaces import Namespaces
from wainwright.sim.controllers.node_lifecycle import NodeLifecycle
from wainwright.sim.controllers.scheduler.loop import Scheduler
from wainwright.sim.controllers.taint_eviction import TaintEviction
from wainwright.sim.controllers.workloads.cronjobs import CronJobs
from wainwright.sim.controllers.workloads.daemonsets import DaemonSets
from wainwright.sim.controllers.workloads.deployments import Deployments
from wainwright.sim.controllers.workloads.jobs import Jobs
from wainwright.sim.controllers.workloads.replicasets import ReplicaSets
from wainwright.sim.controllers.workloads.statefulsets import StatefulSets

_log = logging.getLogger("wainwright.sim.controllers")


def makers(options: argparse.Namespace) -> dict[str, Callable[[Cluster], Controller]]:
    """How to make each controller, by the name that `--only` takes."""
    return {
        "kubelet": lambda cluster: Kubelets(
            cluster, cloud_url=options.cloud, boot_delay_seconds=options.boot_delay, lease_seconds=options.lease_period
        ),
        "node-lifecycle": lambda cluster: NodeLifecycle(cluster, grace_seconds=options.node_monitor_grace),
        "taint-eviction": TaintEviction,
        "scheduler": Scheduler,
        "replicaset": ReplicaSets,
        "deployment": Deployments,
        "daemonset": DaemonSets,
        "job": Jobs,
        "statefulset": StatefulSets,
        "cronjob": CronJobs,
        "disruption": DisruptionBudgets,
        "garbage-collector": GarbageCollector,
        "namespace": Namespaces,
    }


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an unknown controller's name ends it with the list of names."""
    parser = argparse.ArgumentParser(prog="wainwright.sim.controllers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the API server to work against")
    parser.add_argument("--cloud", default="", help="address of the simulated cloud; its instances carry the nodes")
    parser.add_argument(
        "--boot-delay", type=float, default=0.0, help="seconds from a node's creation until it is Ready"
    )
    parser.add_argument(
        "--lease-period", type=float, default=LEASE_SECONDS, help="seconds between two heartbeats of a node"
    )
    parser.add_argument(
        "--node-monitor-grace", type=float, default=50.0, help="seconds without heartbeat until a node is Unknown"
    )
    parser.add_argument("--only", default="", help="names of the controllers to run, with commas (default: all)")
    parser.add_argument(
        "--exit-with-parent", action="store_true", help="end when the process that started this one ends"
    )
    parser.add_argument("--log-level", default="WARNING")
    options = parser.parse_args(arguments)
    known = makers(options)
    options.only = [name for name in options.only.split(",") if name] or list(known)
    if unknown := sorted(set(options.only) - set(known)):
        parser.error(f"unknown controllers {', '.join(unknown)}; there are {', '.join(known)}")
    return options


async def _end_with_parent(parent: int, stop: asyncio.Event) -> None:
    while not stop.is_set():
        if os.getppid() != parent:
            stop.set()
        await asyncio.sleep(0.5)


async def serve(options: argparse.Namespace) -> None:
    """Run the controllers until SIGTERM, SIGINT or, where asked for, the end of the parent process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with ApiClient(load_kubeconfig(options.kubeconfig)) as client:
        cluster = Cluster(client, SystemClock())
        made = makers(options)
        controllers = [made[name](cluster) for name in options.only]
        tasks = [asyncio.create_task(cluster.run(controllers)), asyncio.create_task(stop.wait())]
        if options.exit_with_parent:
            tasks.append(asyncio.create_task(_end_with_parent(os.getppid(), stop)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in done:
            task.result()


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the process."""
    import uvloop

    options = parse(arguments)
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # Objects live long and form no cycles: collecting often costs more than a third of the CPU.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options))


if __name__ == "__main__":
    main()
