"""`solve`: all closed batches, one plan. CPU-bound, in processes; one at a time in the whole cluster."""

from __future__ import annotations

import logging

from celery import shared_task

from tasks.context import context, stopping
from wainwright.batching.locks import SOLVE_LEASE_MS, Lock
from wainwright.errors import StoreUnavailable, ViewNotReady

logger = logging.getLogger(__name__)


@shared_task(name="wainwright.solve", ignore_result=True)
def solve() -> None:
    """Solves until no batch is closed. A no-op while another worker solves."""
    shared = context()
    lock = Lock(shared.store, "solve", SOLVE_LEASE_MS)
    try:
        if lock.acquire() is None:
            return
        with lock.renewing() as renewal:
            while not stopping.is_set() and not renewal.lost:
                report = shared.solver.run(lock, renewal)
                if report.refused:
                    logger.warning("action=plan_refused why=%r batches=%d", report.refused, report.batches)
                if not report.batches:
                    break
                if report.plan:
                    logger.info(
                        "action=plan_recorded plan=%s batches=%d pods=%d claims=%d unplaced=%d ms=%s",
                        report.plan,
                        report.batches,
                        report.pods,
                        report.claims,
                        report.unplaced,
                        " ".join(f"{phase}:{spent:.0f}" for phase, spent in report.spent_ms.items()),
                    )
        lock.release()
        if shared.store.read(lambda redis: redis.zcard(shared.store.keys.batches("closed"))):
            shared.hints.solve()  # closed between our last look and the release
    except (ViewNotReady, StoreUnavailable) as error:
        logger.warning("action=solve_put_off why=%r", str(error))
    finally:
        lock.release()
