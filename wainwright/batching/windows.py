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


def with_item(window: Window | None, now_ms: int, policy: WindowPolicy) -> Window:
    """The window after one new item at now_ms; the same item seen again does not get here."""
    opened_ms = now_ms if window is None else window.opened_ms
    items = 1 if window is None else window.items + 1
    due_ms = min(now_ms + policy.idle_ms, opened_ms + policy.max_ms)
    return Window(opened_ms=opened_ms, due_ms=now_ms if items >= policy.max_items else due_ms, items=items)


def is_due(window: Window, now_ms: int, policy: WindowPolicy) -> bool:
    return now_ms >= window.due_ms or window.items >= policy.max_items
