"""The periodic tasks. Each tick takes its time slot first: two beats send it, one worker runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import Task, shared_task

from tasks.context import Context, context
from wainwright.batching.retries import take_due
from wainwright.batching.ticks import record_tick, take_slot
from wainwright.cloud.errors import CloudError
from wainwright.errors import KubeError, KubeUnavailable, StoreUnavailable, ViewNotReady
from wainwright.provisioning.pool_usage import write_usage

logger = logging.getLogger(__name__)


def periodic(name: str) -> Callable[[Callable[[Context], str]], Task[[], Any]]:
    """Makes `wainwright.NAME` of a function that answers what it did (empty: nothing worth telling)."""

    def decorate(work: Callable[[Context], str]) -> Task[[], Any]:
        @shared_task(name=f"wainwright.{name}", ignore_result=True)
        def tick() -> None:
            shared = context()
            period_ms = round(getattr(shared.settings.beat, f"{name}_seconds") * 1000)
            try:
                slot = take_slot(shared.store, name, period_ms)
                if slot is None:
                    return
                began = shared.clock.monotonic_seconds()
                outcome = attempt(shared)
                took_ms = round((shared.clock.monotonic_seconds() - began) * 1000)
                record_tick(shared.store, name, slot, took_ms=took_ms, by=shared.worker, outcome=outcome)
            except StoreUnavailable as error:
                logger.warning("action=tick_put_off task=%s why=%r", name, str(error))

        def attempt(shared: Context) -> str:
            try:
                outcome = work(shared)
            except (ViewNotReady, KubeUnavailable, KubeError, CloudError) as error:
                logger.warning("action=tick_failed task=%s why=%r", name, str(error))
                return f"put off: {error}"
            if outcome:
                logger.info("action=tick task=%s did=%r", name, outcome)
            return outcome or "nothing to do"

        return tick

    return decorate


@periodic("sweep")
def sweep(shared: Context) -> str:
    """Hints whatever is due and nobody has held for a second."""
    return shared.provisioning.upkeep.sweep(shared.settings.batching.shards)


@periodic("retries")
def retries(shared: Context) -> str:
    """Brings back pods that could not be placed and are due."""
    taken = take_due(shared.store)
    if taken.batches:
        shared.hints.solve()
    return f"{taken.pods} pods due" if taken.pods else ""


@periodic("lifecycle")
def lifecycle(shared: Context) -> str:
    """Moves claims along that nobody holds: registered, ready, being deleted, gone."""
    return shared.provisioning.upkeep.lifecycle()


@periodic("pools")
def pools(shared: Context) -> str:
    """Counts what each NodePool uses."""
    written = write_usage(shared.kube, shared.store)
    return f"{written} NodePools counted anew" if written else ""


@periodic("garbage")
def garbage(shared: Context) -> str:
    """Compares the cloud's instances with the claims."""
    return shared.provisioning.garbage.collect()
