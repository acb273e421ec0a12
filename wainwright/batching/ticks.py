"""Ticks: two beats send every tick, one worker may take its time slot, and the last one that ran is on record."""

from __future__ import annotations

from wainwright.batching.store import Store


def take_slot(store: Store, task: str, period_ms: int) -> int | None:
    """The number of the current time slot (Redis time divided by the period), or None when it was taken already."""
    slot = int(store.run("take_slot", task, period_ms))
    return None if slot < 0 else slot


def record_tick(store: Store, task: str, slot: int, *, took_ms: int, by: str, outcome: str) -> None:
    """Notes the tick as the task's last one; an older slot never replaces a newer one. by: worker; outcome: a word."""
    store.run("record_tick", task, slot, took_ms, by, outcome)
