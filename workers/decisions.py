"""`wainwright decisions`: the decision log, newest last, and followed as it grows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table

from wainwright.batching.store import LONGEST_BLOCK_SECONDS, Store, translated

WIDTHS = (12, 18, 20)
"""Columns of time, what and about; why takes the rest."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. id: in the stream; at_ms: by the Redis server's clock; about: a claim, pod, batch or plan."""

    id: str
    at_ms: int
    what: str
    about: str
    why: str
    by: str


def read_decisions(store: Store, count: int) -> list[Decision]:
    """The last `count` decisions, oldest first. Raises StoreUnavailable."""
    entries = store.read(lambda redis: redis.xrevrange(store.keys.decisions, count=count))
    return [_decision(entry, fields) for entry, fields in reversed(entries)]


def follow_decisions(store: Store, after: str) -> Iterator[Decision]:
    """Decisions made after that entry (`0` or empty: all that are kept), for ever. Raises StoreUnavailable."""
    last = after or "0"
    while True:
        with translated():
            answer: Any = store.blocking.xread({store.keys.decisions: last}, block=int(LONGEST_BLOCK_SECONDS * 1000))
        for _, entries in answer or ():
            for entry, fields in entries:
                last = entry
                yield _decision(entry, fields)


def _decision(entry: str, fields: dict[str, str]) -> Decision:
    told = {name: fields.get(name, "") for name in ("what", "about", "why", "by")}
    return Decision(id=entry, at_ms=int(entry.partition("-")[0]), **told)


def render_decision(decision: Decision, width: int) -> RenderableType:
    """One entry in columns of fixed width; long texts go on below themselves."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for each in WIDTHS:
        grid.add_column(width=each, overflow="fold")
    grid.add_column(width=max(width - sum(WIDTHS) - len(WIDTHS) - 1, 20), overflow="fold")
    moment = datetime.fromtimestamp(decision.at_ms / 1000, tz=UTC).strftime("%H:%M:%S.%f")[:12]
    by = f" ({decision.by})" if decision.by else ""
    grid.add_row(moment, decision.what, decision.about, f"{decision.why}{by}".strip())
    return grid
