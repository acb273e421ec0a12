"""`wainwright demo` as a user runs it, and the same with a trace of real pods."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.acceptance.system import ROOT, processes_of

TRACE_VARIABLE = "WAINWRIGHT_TEST_TRACE"
TRACE_PODS = 1000


def demo(*arguments, seconds):
    """The demo, run to its end: exit status, what it says on stdout, seconds it took. It must leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="wainwright-demo-test-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WAINWRIGHT_")}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "workers.cli", "demo", "--dir", str(folder), "--output", "json", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        took = time.monotonic() - began
        assert not processes_of(folder), "processes of the demo run on after its end"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), took, done.stderr


@pytest.mark.slow
def test_demo_runs_a_thousand_pods_survives_a_kill_and_gives_its_verdict(alone):
    status, verdict, took, told = demo(seconds=120)
    assert verdict["faults"] == [], told
    assert status == 0
    assert took < 90
    assert verdict["pods"] == 1000
    assert verdict["running"] == verdict["placeable"] == 994
    assert verdict["launches"] == sum(line["count"] for line in verdict["nodes"]), "a node was bought and not used"
    assert verdict["restarts"] == {"launch-1": 1}, "the worker that is killed halfway, and no other process"
    assert "kill -9 launch-1" in told
    assert verdict["largest_plan"]
    assert verdict["replay_same"]
    assert {line["node_pool"] for line in verdict["nodes"]} == {"batch", "general"}
    assert all(line["price"] > 0 for line in verdict["nodes"])
    assert sum(batch["pods"] for batch in verdict["batches"]) >= 1000
    assert all(batch["window_ms"] <= 10_500 for batch in verdict["batches"])
    assert len(verdict["not_placed"]) == 6
    assert all("needs cpu 900" in why for why in verdict["not_placed"].values())
    assert 0 < verdict["bound_p50_seconds"] <= verdict["bound_p99_seconds"]


def trace_file():
    named = os.environ.get(TRACE_VARIABLE)
    return Path(named) if named else ROOT.parent / "shared" / "data" / "openb_pods.csv"


@pytest.mark.slow
@pytest.mark.skipif(
    not trace_file().exists(), reason=f"no trace of pods at hand ({trace_file()}); {TRACE_VARIABLE} names one"
)
def test_demo_replays_the_first_thousand_pods_of_a_production_trace(alone):
    """GPU pods included; each ends when it did in the trace."""
    status, verdict, took, told = demo("--trace", str(trace_file()), "--limit", str(TRACE_PODS), seconds=150)
    assert verdict["faults"] == [], told
    assert status == 0
    assert took < 120
    assert verdict["pods"] == verdict["placeable"] == verdict["running"] == TRACE_PODS
    assert verdict["not_placed"] == {}
    assert verdict["launches"] > 0
    assert any("gpu" in line["instance_type"] for line in verdict["nodes"])
    assert verdict["replay_same"]
