"""The window policy: when does a batch window close? Pure; the Redis scripts keep the same rules (lua/lib.lua).

Source: Karpenter v0.5.4 `batcher.go`, without its undrained idle timer, which can close a window early.
"""

from __future__ import annotations

import msgspec


class WindowPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """idle_ms: a window closes this long after its last new item; max_ms: never later than this after its first;
    max_items: at once when it holds this many, the rest waits for the next window.
    """

    idle_ms: int = 1000
    max_ms: int = 10_000
    max_items: int = 2000


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """An open window. opened_ms: its first item; due_ms: when it closes unless a new item comes."""

    opened_ms: int
    due_ms: int
    items: int


def with_item(window: Window | None, now_ms: int, policy: WindowPolicy, *, extends: bool = True) -> Window:
    """The window after one new item at now_ms; the same item seen again does not get here.

    extends: False for a retry, which joins an open window without extending it (and opens one like any other item).
    A window that is due already is not extended any more: its worker is late, and would be later still.
    """
    if window is None:
        opened_ms, items = now_ms, 1
        due_ms = now_ms + min(policy.idle_ms, policy.max_ms)
    else:
        opened_ms, items, due_ms = window.opened_ms, window.items + 1, window.due_ms
        if extends and now_ms < due_ms:
            due_ms = min(now_ms + policy.idle_ms, opened_ms + policy.max_ms)
    if items >= policy.max_items:
        due_ms = min(due_ms, now_ms)
    return Window(opened_ms=opened_ms, due_ms=due_ms, items=items)


def is_due(window: Window, now_ms: int) -> bool:
    return now_ms >= window.due_ms


def closed(window: Window, now_ms: int, policy: WindowPolicy) -> tuple[int, Window | None]:
    """How many items, the oldest, leave with the window when it closes, and the window that the rest opens, if any."""
    leaving = min(window.items, policy.max_items)
    rest = window.items - leaving
    if not rest:
        return leaving, None
    due_ms = now_ms if rest >= policy.max_items else now_ms + min(policy.idle_ms, policy.max_ms)
    return leaving, Window(opened_ms=now_ms, due_ms=due_ms, items=rest)
