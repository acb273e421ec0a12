"""Case f57: FLUSHALL, or DEL of a stream, under load: everything flows again within seconds, quietly, nothing twice."""

import time

import pytest

from tests.acceptance.builders import a_deployment
from tests.acceptance.invariants import faults_of, open_records
from tests.acceptance.system import HERE

CASE = HERE / "field" / "redis-emptied.yaml"
FLOWS_AGAIN_SECONDS = 5
MACHINE_SECONDS = 10
"""What bringing thirty pods to their nodes takes by itself, on a busy machine."""
LOG_LINES = 60
CPU_SHARE = 0.8
"""Of one core, for all processes of a stack that has come to rest."""


@pytest.mark.parametrize("moment", ["in the window", "while they are launched"])
def test_everything_flows_again_after_flushall_under_load(system, moment):
    system.apply_file(CASE)
    waits_for = system.keys.seen if moment == "in the window" else system.keys.planned
    system.wait(f"pods are {moment}", lambda: system.redis(lambda r: r.hlen(waits_for)), 10, pause=0.005)
    before = system.log_lines()
    system.redis(lambda redis: redis.flushall())
    began = time.monotonic()
    system.apply(a_deployment("between", 6, cpu="300m"))
    system.wait(
        "the view is complete again",
        lambda: system.redis(lambda redis: redis.hget(system.keys.view_meta, "complete")) == "1",
        FLOWS_AGAIN_SECONDS + 3,
        pause=0.05,
    )
    system.wait_running(36, seconds=FLOWS_AGAIN_SECONDS + MACHINE_SECONDS)
    took = time.monotonic() - began
    system.wait("all records are over", lambda: not open_records(system), 15)
    assert not faults_of(system), f"after {took:.1f} s"
    written = {name: count - before[name] for name, count in system.log_lines().items()}
    assert max(written.values()) <= LOG_LINES, written
    used, at = system.cpu_seconds(), time.monotonic()
    time.sleep(3)
    share = (system.cpu_seconds() - used) / (time.monotonic() - at)
    assert share < CPU_SHARE, "something spins"


def test_pods_of_a_stream_that_was_deleted_by_hand_are_found_by_the_resync(system):
    """Scaled down: a resync every 5 s instead of 30 s."""
    system.apply_file(CASE)
    pending = system.keys.pending("general")
    system.wait("pods wait in the stream", lambda: system.redis(lambda redis: redis.xlen(pending)), 10, pause=0.002)
    system.redis(lambda redis: redis.delete(pending))
    system.wait_running(30, seconds=5 + FLOWS_AGAIN_SECONDS + MACHINE_SECONDS)
    system.wait("all records are over", lambda: not open_records(system), 10)
    assert not faults_of(system)
