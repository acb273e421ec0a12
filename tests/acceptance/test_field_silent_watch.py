"""Case f60: the API server falls silent with all connections open, or its answers are lost on the way.

Scaled down: watches that end after 3 s and count as silent after 6 s, instead of 10 s and 15 s; so 10 s of silence show
what 90 s do with the defaults. Nothing is restarted by anybody.
"""

import json
import re
import signal
import time

import pytest

from tests.acceptance.builders import a_pod
from tests.acceptance.invariants import faults_of, open_records
from tests.acceptance.proxy import OneWayProxy
from tests.acceptance.system import HERE

CASE = HERE / "field" / "silent-watch.yaml"
SILENT_SECONDS = 10
NODES_SECONDS = 15 + 10
"""Documented (docs/operations.md): a watch is cut after 15 s at most and resumed; then a window, a launch, a boot."""
LOG_LINES = 80


def pids(system):
    return {child.name: child.pid for child in system.stack.children.all()}


def stale_watches(system):
    answer = system.cli("status", "--output", "json")
    return answer.returncode, [watch["kind"] for watch in json.loads(answer.stdout)["watches"] if watch["stale"]]


@pytest.mark.slow
def test_pods_before_and_after_a_silent_api_server_get_nodes_and_status_calls_it_stale(system):
    before, lines = pids(system), system.log_lines()
    system.apply_file(CASE)
    system.kill("api-server", signal.SIGSTOP)
    try:
        time.sleep(SILENT_SECONDS)
        status, stale = stale_watches(system)
        text = system.cli("status").stdout
    finally:
        system.kill("api-server", signal.SIGCONT)
    assert status == 1
    assert {"pods", "nodes", "nodeclaims", "nodepools"} <= set(stale)
    assert "cluster view: STALE" in text
    began = time.monotonic()
    system.apply(a_pod("right-after", cpu="1500m"))
    system.wait_running(4, seconds=NODES_SECONDS)
    took = time.monotonic() - began
    system.wait("the view is fresh", lambda: stale_watches(system) == (0, []), 15)
    system.wait("all records are over", lambda: not open_records(system), 15)
    assert not faults_of(system), f"after {took:.1f} s"
    assert pids(system) == before, "something was restarted"
    written = {name: count - lines[name] for name, count in system.log_lines().items()}
    assert max(written.values()) <= LOG_LINES, written


@pytest.fixture
def behind_proxy(system):
    """The shared stack with one watcher, which sees the API server through a proxy."""
    config = system.stack.kubeconfig.read_text()
    (port,) = set(re.findall(r"https://127\.0\.0\.1:(\d+)", config))
    proxy = OneWayProxy(int(port))
    file = system.folder / "kubeconfig-proxied"
    file.write_text(config.replace(f"127.0.0.1:{port}", f"127.0.0.1:{proxy.port}"))
    for name in ("watcher-1", "watcher-2"):
        system.take_out(name)
    environment = system.environment() | {"WAINWRIGHT_KUBE_KUBECONFIG": str(file)}
    command = system.child("beat-1").command
    watcher = [command[0], "-m", "workers.watcher", "--exit-with-parent"]
    system.stack.children.start("watcher-proxied", watcher, environment)
    yield proxy
    system.take_out("watcher-proxied")
    proxy.close()
    for name in ("watcher-1", "watcher-2"):
        system.stack.children.start(name, watcher, system.environment())


@pytest.mark.slow
def test_answers_lost_on_the_way_are_noticed_and_the_watch_resumes(system, behind_proxy):
    def has_taken_over():
        return "watcher-proxied" in pids(system) and holder_pid(system) == pids(system)["watcher-proxied"]

    system.wait("the watcher behind the proxy leads", has_taken_over, 20)
    system.wait("the view is fresh", lambda: stale_watches(system) == (0, []), 20)
    before = pids(system)
    behind_proxy.deaf.set()
    system.apply_file(CASE)
    time.sleep(SILENT_SECONDS)
    status, stale = stale_watches(system)
    behind_proxy.deaf.clear()
    assert behind_proxy.lost_bytes > 0
    assert (status, "pods" in stale) == (1, True)
    system.wait_running(3, "app=web", NODES_SECONDS)
    system.wait("the view is fresh again", lambda: stale_watches(system) == (0, []), 15)
    assert not faults_of(system)
    assert pids(system) == before, "something was restarted"


def holder_pid(system):
    """Of the watcher that writes the view."""
    holder = system.redis(lambda redis: redis.hget(system.keys.view_meta, "holder")) or ":0"
    return int(holder.rpartition(":")[2])
