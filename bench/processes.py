"""What processes use: CPU seconds and memory, read from /proc (Linux)."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """MB of a process with its children. largest: resident in the largest of them; shared: of all together, what they
    share with other processes divided among these (PSS).
    """

    largest: float
    shared: float


def members() -> dict[int, list[int]]:
    """Process ids by process group; each child of a Stack leads a group of its own."""
    found: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = stat(int(entry.name))
            if fields:
                found[int(fields[2])].append(int(entry.name))
    return found


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on (state, ppid, pgrp, …); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(groups: Mapping[str, int]) -> dict[str, float]:
    """User and system time so far of each group (name → its leader), children that ended included."""
    by_group = members()
    used = {}
    for name, leader in groups.items():
        fields = [stat(pid) for pid in by_group.get(leader, ())]
        used[name] = sum(sum(map(int, one[11:15])) for one in fields if one) / TICKS
    return used


def memory(groups: Mapping[str, int]) -> dict[str, Memory]:
    """Of each group, now."""
    by_group = members()
    return {name: _sum(by_group.get(leader, [])) for name, leader in groups.items()}


def _sum(pids: list[int]) -> Memory:
    used = [_kilobytes(pid) for pid in pids]
    return Memory(max((rss for rss, _ in used), default=0) / 1000, sum(pss for _, pss in used) / 1000)


def _kilobytes(pid: int) -> tuple[int, int]:
    """RSS and PSS; zeros when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    by_name = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("Rss:", "Pss:"))}
    return by_name.get("Rss", 0), by_name.get("Pss", 0)


def busy_share(seconds: float = 1.0) -> float:
    """Share of the whole machine's CPU time that was used while we slept."""

    def read() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(numbers[:8]), numbers[3] + numbers[4]

    if not Path("/proc/stat").exists():
        return 0.0
    total, idle = read()
    time.sleep(seconds)
    total_after, idle_after = read()
    return 1 - (idle_after - idle) / max(1, total_after - total)
