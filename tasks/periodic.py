"""What periodic tasks have in common: each tick takes its time slot first, so two beats may send it and one worker runs
it; what it did is on record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import Task, shared_task

from tasks.context import Context, context
from wainwright.batching.ticks import record_tick, take_slot
from wainwright.cloud.errors import CloudError
from wainwright.errors import KubeError, KubeUnavailable, StoreUnavailable, ViewNotReady

logger = logging.getLogger(__name__)


def periodic(name: str) -> Callable[[Callable[[Context], str]], Task[[], Any]]:
    """Makes `wainwright.NAME` of a function that answers what it did (empty: nothing worth telling)."""

    def decorate(work: Callable[[Context], str]) -> Task[[], Any]:
        @shared_task(name=f"wainwright.{name}", ignore_result=True)
        def tick() -> None:
            run_tick(name, name, work, logging.INFO)

        return tick

    return decorate


def sharded(name: str) -> Callable[[Callable[[Context, int], str]], Task[[int], Any]]:
    """Makes `wainwright.NAME` with a shard as its argument; each shard has slots of its own.

    Such ticks come several times a second, so what they did is logged at level DEBUG only (`tick:NAME:SHARD` has it).
    """

    def decorate(work: Callable[[Context, int], str]) -> Task[[int], Any]:
        @shared_task(name=f"wainwright.{name}", ignore_result=True)
        def tick(shard: int) -> None:
            run_tick(name, f"{name}:{shard}", lambda shared: work(shared, shard), logging.DEBUG)

        return tick

    return decorate


def run_tick(name: str, slot_name: str, work: Callable[[Context], str], level: int) -> None:
    """Runs the work if the present slot is free. name: of the setting `beat.NAME_seconds`."""
    shared = context()
    period_ms = round(getattr(shared.settings.beat, f"{name}_seconds") * 1000)
    try:
        slot = take_slot(shared.store, slot_name, period_ms)
        if slot is None:
            return
        began = shared.clock.monotonic_seconds()
        outcome = _attempt(shared, slot_name, work, level)
        took_ms = round((shared.clock.monotonic_seconds() - began) * 1000)
        record_tick(shared.store, slot_name, slot, took_ms=took_ms, by=shared.worker, outcome=outcome)
    except StoreUnavailable as error:
        logger.warning("action=tick_put_off task=%s why=%r", slot_name, str(error))


_put_off: dict[str, str] = {}
"""Why ticks were put off last, so that each reason is told once and not every second."""


def _attempt(shared: Context, slot_name: str, work: Callable[[Context], str], level: int) -> str:
    try:
        outcome = work(shared)
    except (ViewNotReady, KubeUnavailable, KubeError, CloudError) as error:
        if _put_off.get(slot_name) != str(error):
            _put_off[slot_name] = str(error)
            logger.warning("action=tick_failed task=%s why=%r", slot_name, str(error))
        return f"put off: {error}"
    _put_off.pop(slot_name, None)
    if outcome:
        logger.log(level, "action=tick task=%s did=%r", slot_name, outcome)
    return outcome or "nothing to do"
