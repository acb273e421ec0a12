"""Recorded loads as traces: `kpa-trace/1` files, and CSV with the columns time, value[, source][, ready]. Pure."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from wainwright.autoscaling.replay import TRACE_SCHEMA, Initial, Trace
from wainwright.podscaling.samples import believable

MOST_FAULTS: Final = 20
COLUMNS: Final = ("time", "value", "source", "ready")


class TraceError(Exception):
    """The file cannot be replayed; one line per fault, naming line, column and value."""


def read_json(text: bytes) -> Trace:
    """Raises TraceError."""
    try:
        trace = msgspec.json.decode(text, type=Trace)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"is no {TRACE_SCHEMA}: {error}") from error
    if trace.schema != TRACE_SCHEMA:
        raise TraceError(f"schema {trace.schema!r} is not {TRACE_SCHEMA!r}")
    if not any(event[:1] == ["d"] for event in trace.events):
        raise TraceError("there is no decision (event d) in it")
    return trace


def read_csv(lines: Iterable[str], *, name: str, tick_s: float, ready: int) -> tuple[Trace, bool]:
    """The trace, and whether pod counts were recorded with it.

    time: seconds (unix, or from any zero), or ISO 8601. Samples of one second and source replace each other, those of
    different sources add up. A decision every tick_s seconds from the first sample on. ready: pods at the start, where
    no column says. Raises TraceError with every fault.
    """
    reader = csv.DictReader(lines)
    found = reader.fieldnames or []
    missing = [column for column in COLUMNS[:2] if column not in found]
    if missing:
        raise TraceError(f"columns missing: {', '.join(missing)}; found: {', '.join(found) or 'none'}")
    loads: dict[tuple[int, str], float] = {}
    counts: dict[int, int] = {}
    faults: list[str] = []
    zero: int | None = None
    for number, row in enumerate(reader, start=2):
        try:
            at = _time(row["time"])
            zero = math.floor(at) if zero is None else min(zero, math.floor(at))
            loads[math.floor(at), row.get("source") or ""] = _value(row["value"])
            if row.get("ready"):
                counts[math.floor(at)] = _ready(row["ready"])
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    if faults:
        more = [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
        raise TraceError("\n".join(faults[:MOST_FAULTS] + more))
    if zero is None:
        raise TraceError("there is no sample in it")
    events = _events(loads, counts, zero, tick_s, ready)
    first = counts.get(min(counts), ready) if counts else ready
    return Trace(name=name, t0_unix=zero, initial=Initial(ready_pods=first), events=events), bool(counts)


def _events(
    loads: Mapping[tuple[int, str], float], counts: Mapping[int, int], zero: int, tick_s: float, ready: int
) -> list[list[Any]]:
    by_second: defaultdict[int, float] = defaultdict(float)
    for (second, _), value in loads.items():
        by_second[second] += value
    events: list[tuple[float, int, list[Any]]] = [
        (second - zero, 0, ["s", second - zero, value]) for second, value in by_second.items()
    ]
    last = max(by_second) - zero
    tick = 1
    while tick * tick_s <= last:
        at = round(tick * tick_s, 3)
        known = [second for second in counts if second - zero <= at]
        events.append((at, 1, ["d", at, counts[max(known)] if known else ready]))
        tick += 1
    if tick == 1:
        raise TraceError(f"it is over before the first decision, after {tick_s:g} s")
    return [event for *_, event in sorted(events, key=lambda one: one[:2])]


def _time(text: str | None) -> float:
    text = (text or "").strip()
    try:
        at = float(text)
    except ValueError:
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"time={text!r} is neither a number of seconds nor ISO 8601") from None
        at = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    if not 0 <= at < 1e11:
        raise ValueError(f"time={text!r} is out of range")
    return at


def _value(text: str | None) -> float:
    try:
        return believable(float(text or ""))
    except ValueError as error:
        raise ValueError(f"value={text!r} is no load: {error}") from None


def _ready(text: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise ValueError(f"ready={text!r} is not a number of pods")
    return int(text)


def with_settings(
    trace: Trace, config: Mapping[str, str], annotations: Mapping[str, str], container_concurrency: int | None
) -> Trace:
    """The trace under other settings; keys that are not given stay as they are."""
    return msgspec.structs.replace(
        trace,
        config={**trace.config, **config},
        annotations={**trace.annotations, **annotations},
        container_concurrency=(trace.container_concurrency if container_concurrency is None else container_concurrency),
    )


def load_by_second(trace: Trace) -> dict[int, float]:
    """Load recorded for each second after the start."""
    loads: defaultdict[int, float] = defaultdict(float)
    for event in trace.events:
        match event:
            case ["s", t, value]:
                loads[math.floor(t)] += value
            case ["x", _, t, value, proxied]:
                loads[math.floor(t)] += value - proxied
            case _:
                continue
    return dict(sorted(loads.items()))
