"""Whoever holds something is killed with SIGKILL: another one goes on within the documented time.

Documented: holders of leases 5 s, the active watcher 10 s. What the way to a node takes by itself comes on top.
"""

import time

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool, a_pod
from tests.acceptance.invariants import faults_of, open_records

HOLDER_SECONDS = 5
WATCHER_SECONDS = 10
WAY_SECONDS = 6
"""Window, launch, boot, and the start of processes, on a busy machine."""


def watcher_at_work(system):
    holder = system.redis(lambda redis: redis.hget(system.keys.view_meta, "holder"))
    pid = int(holder.rpartition(":")[2])
    return next(child.name for child in system.stack.children.all() if child.pid == pid)


def test_a_standby_watcher_takes_over_and_new_pods_get_nodes(system):
    system.apply(a_node_pool(), a_pod("first", cpu="1500m"))
    system.wait_running(1)
    epoch = system.redis(lambda redis: redis.hget(system.keys.view_meta, "epoch"))
    active = watcher_at_work(system)
    system.kill(active)
    began = time.monotonic()
    system.apply(a_pod("second", cpu="1500m"))
    system.wait("another epoch is complete", lambda: is_complete_after(system, epoch), WATCHER_SECONDS, pause=0.05)
    system.wait_running(2, seconds=WATCHER_SECONDS + WAY_SECONDS)
    assert time.monotonic() - began < WATCHER_SECONDS + WAY_SECONDS
    assert not faults_of(system)


def is_complete_after(system, epoch):
    new, complete = system.redis(lambda redis: redis.hmget(system.keys.view_meta, "epoch", "complete"))
    return new not in (None, epoch) and complete == "1"


def test_a_window_whose_holder_is_killed_is_closed_by_the_next_one(system):
    """The lock of the shard has to run out first (2.5 s)."""
    system.apply(a_node_pool(), a_pod("first", cpu="1500m"))
    system.wait(
        "a window is open and held", lambda: is_held(system, "window:*") and open_windows(system), 10, pause=0.005
    )
    system.kill("window")
    began = time.monotonic()
    system.wait("it is closed", lambda: not open_windows(system), HOLDER_SECONDS + WAY_SECONDS, pause=0.02)
    assert time.monotonic() - began < HOLDER_SECONDS + WAY_SECONDS
    system.wait_running(1, seconds=WAY_SECONDS)
    assert not faults_of(system)


def is_held(system, lock):
    return system.redis(lambda redis: redis.keys(system.keys.lock(lock)))


def open_windows(system):
    return system.redis(lambda redis: redis.zcard(system.keys.windows))


@pytest.mark.slow
def test_a_solver_killed_in_the_middle_of_a_big_batch_is_replaced(system):
    system.apply(a_node_pool(types=("c6a.xlarge",)), a_deployment("many", 300, cpu="100m", memory="64Mi"))
    system.wait("a solve is under way", lambda: is_held(system, "solve"), 15, pause=0.002)
    system.kill("solve")
    began = time.monotonic()
    system.wait(
        "every pod has a plan or runs",
        lambda: len(system.redis(lambda redis: redis.zrange(system.keys.claims, 0, -1))) >= 8,
        HOLDER_SECONDS + WAY_SECONDS,
    )
    assert time.monotonic() - began < HOLDER_SECONDS + WAY_SECONDS
    system.wait_running(300, "app=many", 45)
    system.wait("all records are over", lambda: not open_records(system), 15)
    assert not faults_of(system)
