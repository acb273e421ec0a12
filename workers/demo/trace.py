"""A CSV trace of pods as a timed list of Pod manifests. Pure.

Columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli, qos, creation_time_s, deletion_time_s (those of Alibaba's
cluster-trace-gpu-v2023; docs/demo.md). A share of a GPU counts as one GPU.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time_s", "deletion_time_s")
_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")


class TraceError(Exception):
    """The file cannot be replayed; one line per fault, naming row, column and value."""


class TracedPod(NamedTuple):
    """One pod of the trace. created_s, lives_s: seconds of the trace's own time."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    created_s: float
    lives_s: float

    def manifest(self, run_seconds: float) -> dict[str, Any]:
        """The Pod; it ends by itself after run_seconds."""
        requests: dict[str, str] = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        resources: dict[str, Any] = {"requests": requests}
        if self.gpus:
            requests["nvidia.com/gpu"] = str(self.gpus)
            resources["limits"] = {"nvidia.com/gpu": str(self.gpus)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "labels": {"demo": "wainwright"},
                "annotations": {"sim.wainwright.dev/run-seconds": f"{run_seconds:.1f}"},
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "app", "image": "registry.example/app:1", "resources": resources}],
            },
        }


def read_trace(lines: Iterable[str], *, limit: int | None = None) -> list[TracedPod]:
    """The pods of a CSV file, by creation time; the first `limit` of them. Raises TraceError with every fault."""
    reader = csv.DictReader(lines)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or [])]
    if missing:
        raise TraceError(f"columns missing: {', '.join(missing)}; found: {', '.join(reader.fieldnames or ['none'])}")
    pods: list[TracedPod] = []
    faults: list[str] = []
    for number, row in enumerate(reader, start=2):
        try:
            pods.append(_pod(row))
        except (ValueError, TypeError) as error:
            faults.append(f"line {number}: {error}")
    if faults:
        raise TraceError("\n".join(faults[:20] + ([f"and {len(faults) - 20} more"] if len(faults) > 20 else [])))
    pods.sort(key=lambda pod: (pod.created_s, pod.name))
    return pods[:limit]


def _pod(row: dict[str, str]) -> TracedPod:
    def number(column: str) -> float:
        try:
            value = float(row[column])
        except (ValueError, TypeError):
            raise ValueError(f"{column}={row[column]!r} is not a number") from None
        if not 0 <= value < 1e12:
            raise ValueError(f"{column}={row[column]!r} is out of range")
        return value

    if not _NAME.match(row["name"] or ""):
        raise ValueError(f"name={row['name']!r} is not a valid pod name (lower-case letters, digits, - and .)")
    created, deleted = number("creation_time_s"), number("deletion_time_s")
    return TracedPod(
        name=row["name"],
        cpu_milli=round(number("cpu_milli")),
        memory_mib=round(number("memory_mib")),
        gpus=round(number("num_gpu")),
        created_s=created,
        lives_s=max(0.0, deleted - created),
    )


def natural_speedup(pods: Sequence[TracedPod], seconds: float = 30.0) -> float:
    """The factor by which the trace's arrivals take `seconds`."""
    span = pods[-1].created_s - pods[0].created_s if pods else 0.0
    return max(1.0, span / seconds)
