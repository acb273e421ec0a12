"""The golden data of Knative's own autoscaler: where it lies and how it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kpa"
TRACES = sorted(GOLDEN.glob("trace_*.json"))
FIELD_TRACE = GOLDEN / "f41-panic-takes-the-larger.json"


def vector_rows(name: str) -> list[Any]:
    rows: list[Any] = json.loads((GOLDEN / f"vectors_{name}.json").read_text())["rows"]
    assert rows
    return rows
