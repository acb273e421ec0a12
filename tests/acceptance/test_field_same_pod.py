"""Case f40: the same pod in many events is one pod; another pod under its name is another one.

Scaled down: windows of 0.4 s idle and 3 s at most instead of 1 s and 10 s, an annotation every 0.1 s instead of 0.3 s.
"""

import time

from tests.acceptance.invariants import faults_of, pods_of
from tests.acceptance.system import HERE, KINDS

CASE = HERE / "field" / "same-pod-many-events.yaml"
ANNOTATED_SECONDS = 7


def uid_of(system, name="solo"):
    return system.get("Pod", name)["metadata"]["uid"]


def test_one_pod_annotated_all_the_time_is_one_claim_in_one_window(system):
    system.apply_file(CASE)
    uid, until, number = uid_of(system), time.monotonic() + ANNOTATED_SECONDS, 0
    while time.monotonic() < until:
        number += 1
        body = {"metadata": {"annotations": {"n": str(number)}}}
        system.kube.merge_patch(KINDS["Pod"], "solo", body, "default")
        time.sleep(0.1)
    system.wait_running(1, "app=solo", 10)
    (claim,) = system.claims()
    assert pods_of(claim) == [uid]
    assert len(system.live_instances()) == 1
    batches = system.redis(lambda redis: redis.zrange(system.keys.batches("done"), 0, -1))
    records = [system.redis(lambda redis, name=name: redis.hgetall(system.keys.batch(name))) for name in batches]
    (batch,) = [record for record in records if uid in record["items"]]
    assert batch["size"] == "1"
    assert int(batch["window_ms"]) <= 3000 + 100
    assert not faults_of(system)


def test_a_pod_recreated_under_its_name_is_new_and_takes_the_old_ones_place(system):
    """As `kubectl replace --force` does it: the node that was bought for the old one is not wasted."""
    system.apply_file(CASE)
    system.wait_running(1, "app=solo", 15)
    first = uid_of(system)
    system.delete("Pod", "solo", grace_seconds=0)
    system.apply_file(CASE)

    def runs_anew():
        return [pod for pod in system.running("app=solo") if pod["metadata"]["uid"] != first]

    system.wait("the new one runs", runs_anew, 15)
    time.sleep(1.5)
    assert len(system.claims()) == len(system.live_instances()) == 1


def test_a_pod_recreated_while_the_old_one_is_in_the_window_gets_the_only_node(system):
    system.apply_file(CASE)
    first, seen = uid_of(system), system.keys.seen
    system.wait("the old one is queued", lambda: system.redis(lambda redis: redis.hexists(seen, first)), 10, pause=0.01)
    system.delete("Pod", "solo", grace_seconds=0)
    system.apply_file(CASE)
    second = uid_of(system)
    assert second != first
    system.wait_running(1, "app=solo", 15)
    (claim,) = system.claims()
    assert pods_of(claim) == [second]
    assert not faults_of(system)
