"""`python -m workers.worker ROLE…`: a Celery worker for one or more queues. Scale out by starting more of them."""

from __future__ import annotations

import argparse
import os
import socket
from typing import NoReturn

from celery import signals

from config.celery import QUEUES
from tasks import context
from workers.celery_app import make_app
from workers.process import end_with_parent, set_up_logging, settings_or_exit, show_life, tune_garbage_collector

SOLVE_PROCESSES = 1
"""One solve runs at a time for the whole cluster; more solve workers are standby on other hosts."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Run until SIGTERM (running tasks are finished) or SIGQUIT."""
    parser = argparse.ArgumentParser(prog="python -m workers.worker", description=__doc__)
    parser.add_argument(
        "roles", nargs="+", choices=QUEUES, metavar="ROLE", help=f"queues to serve: {', '.join(QUEUES)}"
    )
    parser.add_argument("--concurrency", type=int, metavar="N", help="threads (solve: processes); default per role")
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started us is gone")
    arguments = parser.parse_args(argv)
    if "solve" in arguments.roles and len(arguments.roles) > 1:
        parser.error("solve needs a worker of its own: it is CPU-bound and runs in processes, the others in threads")
    settings = settings_or_exit()
    set_up_logging(settings)
    app = make_app(settings, queues=arguments.roles)
    context.use(settings, app)
    if arguments.exit_with_parent:
        end_with_parent()
    role = "+".join(arguments.roles)
    threads = {"window": settings.stack.window_threads, "launch": settings.stack.launch_threads}
    pool = "prefork" if role == "solve" else "threads"
    concurrency = arguments.concurrency or (
        SOLVE_PROCESSES if pool == "prefork" else sum(threads.get(name, 4) for name in arguments.roles)
    )

    @signals.worker_ready.connect(weak=False)
    def _ready(**_: object) -> None:
        if pool == "threads":
            tune_garbage_collector()
        show_life(context.make_store(settings), role)

    @signals.worker_shutting_down.connect(weak=False)
    def _stopping(**_: object) -> None:
        context.stopping.set()

    @signals.worker_process_init.connect(weak=False)
    def _forked(**_: object) -> None:
        context.use(settings, app)

    app.worker_main(
        [
            "worker",
            f"--queues={','.join(arguments.roles)}",
            f"--pool={pool}",
            f"--concurrency={concurrency}",
            f"--hostname={role}.{os.getpid()}@{socket.gethostname()}",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            f"--loglevel={settings.log.level}",
        ]
    )


if __name__ == "__main__":
    main()
