"""Launchers killed while the cloud works for them: others go on, and buy nothing twice.

Taking such claims away again waits until what the dead may have asked for cannot arrive any more (30 s); so this is the
last test of the shared stack, which ends without that.
"""

import time

from tests.acceptance.builders import a_deployment, a_node_pool
from tests.acceptance.invariants import faults_of, open_records
from tests.acceptance.test_takeover import HOLDER_SECONDS, WAY_SECONDS

LAUNCH_SECONDS = 2


def test_launchers_killed_while_the_cloud_works_are_replaced(shared):
    system = shared.system()
    system.cloud("PUT", "/v1/faults", {"hang": {"seconds": LAUNCH_SECONDS}})
    system.apply(a_node_pool(), a_deployment("web", 4, cpu="1500m"))
    system.wait("launches are under way", lambda: len(system.claims()) == 4, 15, pause=0.02)
    for name in ("launch-1", "launch-2"):
        system.kill(name)
    began = time.monotonic()
    system.wait_running(4, "app=web", HOLDER_SECONDS + WAY_SECONDS + LAUNCH_SECONDS)
    assert time.monotonic() - began < HOLDER_SECONDS + WAY_SECONDS + LAUNCH_SECONDS
    system.wait("all records are over", lambda: not open_records(system), 10)
    assert not faults_of(system)
    shared.stop()
