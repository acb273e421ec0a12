"""CronJobs are not run here, and each one is told so."""

from __future__ import annotations

import asyncio

from wainwright.sim.controllers.context import Cluster
from wainwright.sim.controllers.objects import CRON_JOBS, CronJob


class CronJobs:
    """Writes a Warning event on every CronJob: nothing will start its jobs."""

    name = "cronjob"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.informer(CRON_JOBS).on_change(self._on_cron_job)

    async def run(self) -> None:
        await asyncio.Event().wait()

    def _on_cron_job(self, old: CronJob | None, new: CronJob | None) -> None:
        if new is not None and old is None:
            self._cluster.events.tell(
                CRON_JOBS,
                new,
                reason="CronJobsNotRun",
                message="CronJobs are not run here; start one by hand: kubectl create job --from=cronjob/NAME JOB",
                component="cronjob-controller",
                kind="Warning",
            )
