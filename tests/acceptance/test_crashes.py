"""Promise 1: kill launcher or solver before any of their network calls, or empty Redis: no pod lost, no node doubled.

One stack serves all of it. A launcher is killed in many lanes at once, each with a NodePool, pods and a broker of its
own; what it leaves behind is carried on by a clean worker afterwards. Leases have their real length.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool
from tests.acceptance.invariants import faults_of, open_records
from tests.acceptance.system import ROOT, System

LANES = 12
"""Launchers killed in one round. Each has a Redis database as its broker; there are 15 beside the main one."""
MOST_ROUNDS = 5
MOST_SOLVER_CALLS = 25
FEWEST_LAUNCH_CALLS, FEWEST_SOLVE_CALLS = 24, 6
"""Fewer than this many calls were counted: the trap does not see them any more."""
LOG_LINES = 60
"""A process may write so many lines while Redis is emptied once, and everything is done anew."""


class Workers:
    """Forks real workers, with and without a trap in them."""

    def __init__(self, system):
        self.system = system
        self.folder = Path(tempfile.mkdtemp(prefix="faulty-", dir=system.folder))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.faulty_worker"],
            cwd=ROOT,
            env=system.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running = {}

    def start(self, name, role, *, kill_before=0, database=0, pool=""):
        url = self.system.stack.settings.redis.url.removesuffix("/0")
        order = {
            "role": role,
            "kill_before": kill_before,
            "note": str(self.folder / f"{name}.note"),
            "log": str(self.folder / f"{name}.log"),
            "environment": {"WAINWRIGHT_REDIS_BROKER_URL": f"{url}/{database}"} if database else {},
            "pool": pool,
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.running[name] = int(self.process.stdout.readline())

    def is_alive(self, name):
        try:
            os.kill(self.running[name], 0)
        except ProcessLookupError:
            return False
        return True

    def note(self, name):
        """The call before which it died; empty while it has not."""
        file = self.folder / f"{name}.note"
        return file.read_text() if file.exists() else ""

    def log_lines(self):
        """Per worker, how many lines it has written so far."""
        return {name: (self.folder / f"{name}.log").read_bytes().count(b"\n") for name in self.running}

    def stop(self, name):
        with suppress(ProcessLookupError):
            os.killpg(self.running.pop(name), signal.SIGKILL)

    def close(self):
        for name in list(self.running):
            self.stop(name)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


@pytest.fixture(scope="module")
def crash_system(shared):
    """A stack without launch and solve workers of its own."""
    shared.stop()
    system = System({"WAINWRIGHT_BATCHING_IDLE_SECONDS": "0.3"}, launch_workers=0)
    try:
        system.start()
        system.take_out("solve")
        yield system
    finally:
        system.stop()


@pytest.fixture
def workers(crash_system):
    """What a test leaves behind is not in the others' way: each has NodePools of its own."""
    forge = Workers(crash_system)
    try:
        yield forge
    finally:
        forge.close()
        crash_system.cloud("DELETE", "/v1/faults")


def a_scenario(name, pods=4):
    """Pods of which two fit on a node; no other scenario's pods may use it."""
    lane = {"wainwright.dev/lane": name}
    pool = a_node_pool(name, template={"metadata": {"labels": lane}})
    return pool, a_deployment(name, pods, cpu="800m", nodeSelector=lane)


def planned_claims(system, pool):
    """Names of the claims with a record."""
    names = system.redis(lambda redis: redis.zrange(system.keys.claims, 0, -1))
    return [name for name in names if name.rpartition("-")[0].rpartition("-")[0] == pool]


def is_planned(system, pools):
    """Two claims for each of these NodePools."""
    return all(len(planned_claims(system, pool)) >= 2 for pool in pools)


def closed_pods(system, pool):
    """Pods of this NodePool in batches that wait to be solved."""
    names = system.redis(lambda redis: redis.zrange(system.keys.batches("closed"), 0, -1))
    records = [
        system.redis(lambda redis, name=name: redis.hmget(system.keys.batch(name), "nodepool", "size"))
        for name in names
    ]
    return sum(int(size) for node_pool, size in records if node_pool == pool)


def all_done(system, pools):
    """Everything of these scenarios runs, and every record is over."""
    running = [pod["metadata"]["labels"]["app"] for pod in system.running()]
    return all(running.count(pool) == 4 for pool in pools) and not open_records(system)


MOMENTS = {
    "while the window is open": lambda system, name: system.redis(lambda redis: redis.zcard(system.keys.windows)),
    "when claims are planned": planned_claims,
    "when the first NodeClaim is there": lambda system, name: system.claims(name),
    "when the first instance is there": lambda system, name: any(
        instance["node_pool"] == name for instance in system.live_instances()
    ),
    "when the first pods are bound": lambda system, name: any(
        pod["spec"].get("nodeName") for pod in system.pods(f"app={name}")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_redis_emptied_in_the_middle_of_launches(crash_system, workers, moment):
    """FLUSHALL: claims, nodes and pods are listed anew; what was bought is used, and nothing is bought again."""
    system, name = crash_system, f"flushed-{list(MOMENTS).index(moment)}"
    workers.start("solver", "solve")
    workers.start("launcher", "launch")
    system.cloud("PUT", "/v1/faults", {"hang": {"seconds": 0.7}})
    system.apply(*a_scenario(name, pods=12))
    system.wait(moment, lambda: MOMENTS[moment](system, name), 20, pause=0.01)
    before = system.log_lines() | workers.log_lines()
    system.redis(lambda redis: redis.flushall())
    system.wait("all pods run", lambda: len(system.running(f"app={name}")) == 12, 60)
    system.wait("all records are over", lambda: not open_records(system), 20)
    assert not faults_of(system, {name})
    assert len(system.claims(name)) == 6, "a node was bought beside those that the pods need"
    after = system.log_lines() | workers.log_lines()
    written = {name: count - before[name] for name, count in after.items()}
    assert max(written.values()) <= LOG_LINES, written


@pytest.mark.slow
@pytest.mark.unsettled
def test_solver_killed_before_any_of_its_network_calls(crash_system, workers):
    system, notes, pools = crash_system, [], ["solve-0"]
    workers.start("launcher", "launch")
    # Whatever the server learns only once (scripts) is learnt here, so that a number means the same call every time.
    workers.start("first", "solve")
    system.apply(*a_scenario("solve-0"))
    system.wait("planned undisturbed", lambda: is_planned(system, pools), 20)
    workers.stop("first")
    for call in range(1, MOST_SOLVER_CALLS + 1):
        pool = f"solve-{call}"
        pools.append(pool)
        system.redis(lambda redis: redis.pexpire(system.keys.lock("solve"), 1))
        system.apply(*a_scenario(pool))
        # Only now is a solver started: one that looks before there is work makes calls that count too.
        system.wait("its batch is closed", lambda pool=pool: closed_pods(system, pool) == 4, 15, pause=0.03)
        workers.start(f"faulty-{call}", "solve", kill_before=call)

        def died_or_planned(call=call, pool=pool):
            return not workers.is_alive(f"faulty-{call}") or is_planned(system, [pool])

        system.wait(f"the solver dies before call {call}, or plans", died_or_planned, 20)
        if workers.is_alive(f"faulty-{call}"):
            time.sleep(0.5)  # it has planned; what is left of its calls is made now
        notes.append(workers.note(f"faulty-{call}"))
        workers.stop(f"faulty-{call}")
        # Its lock would end by itself within four seconds (tests of takeovers wait for that).
        system.redis(lambda redis: redis.pexpire(system.keys.lock("solve"), 1))
        workers.start(f"clean-{call}", "solve")
        system.wait(f"planned after {notes}", lambda pool=pool: is_planned(system, [pool]), 20)
        workers.stop(f"clean-{call}")
        if not notes[-1]:
            break
    workers.start("solver", "solve")
    system.wait(f"all is done after {notes}", lambda: all_done(system, pools), 40)
    assert not faults_of(system, set(pools)), notes
    assert not notes[-1], "a solver makes more calls than were tried"
    assert len(notes) > FEWEST_SOLVE_CALLS, notes
    for part in ("script solve_take", "cloud GET /v1/catalog", "script record", "redis LPUSH"):
        assert any(part in note for note in notes), f"no solver was killed before a {part}: {notes}"
    dead = system.redis(lambda redis: redis.hlen(system.keys.dead))
    assert not dead, "a batch whose solver died once is no suspect"


@pytest.mark.slow
def test_launcher_killed_before_any_of_its_network_calls(crash_system, workers):
    system, notes, survived = crash_system, {}, []
    workers.start("solver", "solve")
    for number in range(MOST_ROUNDS):
        calls = range(number * LANES + 1, (number + 1) * LANES + 1)
        lanes = {f"lane-{call}": call for call in calls}
        for database, (lane, call) in enumerate(lanes.items(), start=1):
            workers.start(lane, "launch", kill_before=call, database=database, pool=lane)
        system.apply(*(manifest for lane in lanes for manifest in a_scenario(lane)))
        system.wait("two claims are planned in each lane", lambda lanes=lanes: is_planned(system, lanes), 30)

        def all_died_or_finished(lanes=lanes):
            return all(not workers.is_alive(lane) or all_done_in(system, lane) for lane in lanes)

        system.wait("every lane's launcher died or came to the end", all_died_or_finished, 25)
        for lane in lanes:
            notes[lane] = workers.note(lane)
            workers.stop(lane)
        survived = [lane for lane in lanes if not notes[lane]]
        workers.start(f"clean-{number}", "launch")
        system.wait(f"all is done after {notes}", lambda lanes=lanes: all_done(system, lanes), 40)
        assert not faults_of(system, set(lanes)), notes
        workers.stop(f"clean-{number}")
        if len(survived) >= 2:
            break
    assert len(survived) >= 2, f"a launcher makes more than {MOST_ROUNDS * LANES} calls? {notes}"
    killed = [note for note in notes.values() if note]
    assert len(killed) >= FEWEST_LAUNCH_CALLS, killed
    for part in ("redis script claim_check", "/pods/", "cloud POST /v1/instances", "redis script claim_done"):
        assert any(part in note for note in killed), f"no launcher was killed before a {part}: {killed}"


def all_done_in(system, lane):
    claims = planned_claims(system, lane)
    states = [system.redis(lambda redis, name=name: redis.hget(system.keys.claim(name), "state")) for name in claims]
    return len(states) >= 2 and set(states) == {"done"}
