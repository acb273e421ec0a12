"""The command line as people and scripts use it: help, JSON, exit statuses, Ctrl-C."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool, a_pod
from tests.acceptance.system import QUICK, ROOT, processes_of
from tests.conftest import free_port

COMMANDS = ("up", "demo", "status", "pod", "plan", "replay", "decisions", "dead", "settings", "keys", "cluster")
OK, FAILED, USAGE = 0, 1, 2


def own_environment(**variables):
    return {k: v for k, v in os.environ.items() if not k.startswith("WAINWRIGHT_")} | variables


def started(*arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "workers.cli", *arguments],
        cwd=ROOT,
        env=own_environment(PYTHONUNBUFFERED="1", COLUMNS="200", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, seconds=30):
    """Exit status, stdout and stderr; the process is killed when it takes longer."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err


def run(*arguments, **variables):
    return ended(started(*arguments, **variables))


@pytest.fixture
def up():
    """`wainwright up` in a folder of its own, ready."""
    folder = Path(tempfile.mkdtemp(prefix="wainwright-up-"))
    process = started("up", "--dir", str(folder), **QUICK)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Redis redis://" in line:
            break
    yield process, folder, "".join(lines)
    if process.poll() is None:
        process.kill()
    process.stdout.close()
    process.stderr.close()
    process.wait(10)
    for pid in processes_of(folder):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def wait_until_none_is_left(folder, seconds):
    until = time.monotonic() + seconds
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def test_ctrl_c_stops_every_child_of_up_within_five_seconds_and_leaves_nothing(up, alone):
    process, folder, told = up
    assert process.poll() is None, process.stderr.read()
    assert "ready in" in told
    note = (folder / "settings.json").read_text()
    status, _, said = run("up", "--dir", str(folder), **QUICK)
    assert status == FAILED
    assert "is in use by a stack that runs" in " ".join(said.split())
    assert (folder / "settings.json").read_text() == note, "the first stack is left alone"
    assert f"export KUBECONFIG={folder / 'kubeconfig'}" in told
    assert len(processes_of(folder)) >= 9
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.wait(10)
    assert time.monotonic() - began < 5.0
    assert process.returncode == OK
    assert not processes_of(folder)
    assert not (folder / "settings.json").exists(), "a note about a stack that does not run any more"


def test_up_that_is_killed_takes_its_children_along(up, alone):
    """`kill -9` leaves it no time to stop them: they see for themselves that it is gone."""
    process, folder, _ = up
    process.kill()
    process.wait(10)
    assert not wait_until_none_is_left(folder, 8)


def test_every_command_has_help():
    """Started together: most of it is waiting for imports."""
    helps = {command: started(command, "--help") for command in COMMANDS} | {"": started("-h")}
    for command, process in helps.items():
        status, out, err = ended(process)
        assert status == OK, err
        assert "Usage" in out
        assert command in out
        if not command:
            assert all(each in out for each in COMMANDS)


def test_what_cannot_be_used_ends_with_status_2_and_says_what_is_likely_meant():
    started_together = {
        "misspelt": started("status", WAINWRIGHT_BATCHING_IDEL_SECONDS="2"),
        "bad value": started("status", WAINWRIGHT_BATCHING_IDLE_SECONDS="soon"),
        "no file": started("demo", "--trace", "/nonexistent/pods.csv"),
        "no argument": started("pod"),
        "no command": started("upp"),
    }
    results = {what: ended(process) for what, process in started_together.items()}
    assert {what: result[0] for what, result in results.items()} == dict.fromkeys(results, USAGE)
    misspelt, bad = results["misspelt"][2], results["bad value"][2]
    assert "WAINWRIGHT_BATCHING_IDEL_SECONDS" in misspelt
    assert "did you mean WAINWRIGHT_BATCHING_IDLE_SECONDS?" in misspelt
    assert "WAINWRIGHT_BATCHING_IDLE_SECONDS=soon" in bad
    assert "/nonexistent/pods.csv" in results["no file"][2]
    assert "Traceback" not in "".join(result[2] for result in results.values())


def test_without_redis_commands_end_with_status_1_and_name_the_setting():
    url = f"redis://127.0.0.1:{free_port()}/0"
    together = [started(*c, WAINWRIGHT_REDIS_URL=url) for c in (("status",), ("pod", "web-0"), ("dead",))]
    for process in together:
        status, _, err = ended(process)
        assert status == FAILED
        assert "WAINWRIGHT_REDIS_URL" in err
        assert "Traceback" not in err


def test_settings_and_keys_as_markdown_are_the_documents():
    documents = {"settings": "docs/settings.md", "keys": "docs/redis.md"}
    running = {path: started(command, "--markdown") for command, path in documents.items()}
    for path, process in running.items():
        status, out, err = ended(process)
        assert status == OK, err
        assert out == (ROOT / path).read_text(), f"run `make docs`: {path} is not what the code says"


def test_status_tells_the_state_as_json(system):
    system.apply(a_node_pool(), a_deployment(replicas=3, cpu="1500m"))
    system.wait_running(3, "app=web")
    answer = system.cli("status", "--output", "json")
    assert answer.returncode == OK, answer.stderr
    state = json.loads(answer.stdout)
    assert state["view_complete"]
    assert not any(watch["stale"] for watch in state["watches"])
    assert {watch["kind"] for watch in state["watches"]} >= {"pods", "nodes", "nodeclaims", "nodepools"}
    (pool,) = state["pools"]
    assert (pool["name"], pool["nodes"]) == ("general", 3)
    assert pool["price"] == pytest.approx(3 * 0.0765)
    assert state["claims"] == {"done": 3}
    assert {name.split("@")[0] for name in state["workers"]} >= {"watcher", "window", "solve", "launch", "beat"}
    plan = state["plans"][0]
    assert (plan["pods"], plan["claims"], plan["unplaced"]) == (3, 3, 0)


def test_pod_tells_what_was_decided_when_and_why(system):
    system.apply(a_node_pool(), a_pod("solo", cpu="1500m"))
    system.wait_running(1)
    report = system.report("default/solo")
    assert report["state"].startswith("Running on node general-")
    assert [decision["what"] for decision in report["decisions"]][-2:] == ["planned", "bound"]
    assert report["decisions"] == sorted(report["decisions"], key=lambda decision: decision["at_ms"])
    assert report["claim"]["instance_type"] == "c6a.large"
    assert float(report["claim"]["price"]) == 0.0765
    short = system.cli("pod", "solo")
    assert short.returncode == OK
    assert "Running on node" in short.stdout


def test_plan_beside_the_running_cluster_counts_what_it_has_and_what_waits(system):
    """solo (1.5 cores) runs on a c6a.large (1.93): 300m more fit beside it, 1.5 cores need a node of their own."""
    system.apply(a_node_pool(), a_pod("solo", cpu="1500m"))
    system.wait_running(1)
    [node] = system.list("Node")
    manifests = system.folder / "planned.yaml"
    manifests.write_text(
        json.dumps({"kind": "List", "items": [a_pod("beside", cpu="300m"), a_pod("own", cpu="1500m")]})
    )
    answer = system.cli("plan", "--cluster", "current", "-f", str(manifests), "--output", "json")
    assert answer.returncode == OK, answer.stderr
    plan = json.loads(answer.stdout)
    assert plan["existing_nodes"] == {node["metadata"]["name"]: ["beside"]}
    assert [claim["pods"] for claim in plan["new_node_claims"]] == [["own"]]
    assert plan["summary"]["total_price"] == pytest.approx(0.0765)
    assert not system.get("Pod", "beside"), "it only tells"


def test_a_recorded_plan_is_replayed_and_its_decision_is_in_the_log(system):
    system.apply(a_node_pool(), a_pod("solo", cpu="1500m"))
    system.wait_running(1)
    plan = system.report("default/solo")["decisions"][-1]["plan"]
    answer = system.cli("replay", plan, "--output", "json")
    assert answer.returncode == OK, answer.stdout + answer.stderr
    assert json.loads(answer.stdout)["same"]
    log = json.loads(system.cli("decisions", "--count", "500", "--output", "json").stdout)
    assert ("plan recorded", plan) in {(each["what"], each["about"]) for each in log}


def test_a_pod_that_nobody_knows_is_status_1(system):
    answer = system.cli("pod", "nobody/knows-it")
    assert answer.returncode == FAILED
    assert "nobody/knows-it" in answer.stderr
    assert not answer.stdout


def test_nothing_set_aside_is_an_empty_list(system):
    answer = system.cli("dead", "--output", "json")
    assert answer.returncode == OK
    assert json.loads(answer.stdout) == {}
    unknown = system.cli("dead", "--retry", "pod/no-such-uid")
    assert unknown.returncode == FAILED
    assert "pod/no-such-uid" in unknown.stderr


def test_status_watch_ends_quietly_with_ctrl_c(system):
    """On a terminal of its own, since a live display shows nothing elsewhere."""
    mine, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.cli", "status", "--watch"],
        cwd=ROOT,
        env=system.environment() | {"TERM": "xterm", "COLUMNS": "100", "LINES": "60"},
        stdin=its,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    seen, until = b"", time.monotonic() + 20
    while b"processes:" not in seen and time.monotonic() < until:
        if select.select([mine], [], [], 1.0)[0]:
            seen += os.read(mine, 65536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal's end, once nobody writes to it any more
        while select.select([mine], [], [], 10.0)[0] and (more := os.read(mine, 65536)):
            seen += more
    os.close(mine)
    assert process.wait(10) == OK
    assert b"NodePools" in seen
    assert b"Traceback" not in seen
