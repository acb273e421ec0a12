"""Case f53: the broker hands a message out again and again, to several workers at once: still bought once.

Scaled down: a visibility timeout of 2 s below launches of 6 s, instead of 5 s below 20 s. Since we acknowledge a
message when it is taken, the broker has no reason to; so the test sends every message several times as well.
"""

import subprocess
import sys

import pytest

from tests.acceptance.invariants import faults_of, open_records
from tests.acceptance.system import HERE, ROOT

CASE = HERE / "field" / "message-delivered-again.yaml"
SEND = """
import os, sys, time
from config.settings import load_settings
from tasks.hints import CeleryHints
from wainwright.clock import SystemClock
from workers.celery_app import make_app
hints = CeleryHints(make_app(load_settings(os.environ)), SystemClock())
for _ in range(10):
    for claim in sys.argv[1:] * 2:
        hints.launch(claim)
    time.sleep(0.6)
"""
"""For six seconds, every claim's message twenty times: as often as a broker that has gone mad."""


@pytest.mark.slow
def test_messages_delivered_again_to_several_workers_buy_one_instance_each(own_system):
    system = own_system(
        {"WAINWRIGHT_REDIS_VISIBILITY_SECONDS": "2", "WAINWRIGHT_STACK_LAUNCH_DELAY_SECONDS": "6"}, launch_workers=3
    )
    system.apply_file(CASE)
    claims = system.wait("three claims are launching", lambda: len(c := system.claims()) == 3 and c, 20)
    names = [claim["metadata"]["name"] for claim in claims]
    subprocess.run([sys.executable, "-c", SEND, *names], cwd=ROOT, env=system.environment(), check=True, timeout=60)
    system.wait_running(3, "app=solo", 20)
    system.wait("all records are over", lambda: not open_records(system), 10)
    assert not faults_of(system)
    record = system.launches()
    assert list(record["by_claim"].values()) == [1, 1, 1]
    assert list(record["by_token"].values()) == [1, 1, 1]
    told = [(e["involvedObject"]["name"], e["reason"], e["count"]) for e in system.list("Event")]
    assert sorted(event for event in told if event[1] == "Launched") == [
        (name, "Launched", 1) for name in sorted(names)
    ]
    unacknowledged = f"{system.keys.prefix}celery:unacked"
    assert system.redis(lambda redis: redis.hlen(unacknowledged)) == 0
