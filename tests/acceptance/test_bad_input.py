"""Bad input: each gets a clear reason where people look, and the rest goes on at full speed."""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool, a_pod
from tests.acceptance.system import KINDS, ROOT
from wainwright.clock import SystemClock

FULL_SPEED_SECONDS = 15
"""Within this the pods beside the bad input must run: a second of window, one of boot, and a machine that is busy."""
EXIT_KARPENTER = 3


def condition(thing, kind):
    return next((c for c in thing.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def why_not(system, name):
    """The reasons on record for a pod that was not placed, as one text."""
    report = system.report(f"default/{name}")
    return "; ".join(f"{reason['where']}: {reason['message']}" for reason in report["reasons"])


def others_run(system, count=3):
    """Applies a Deployment beside the bad input and waits until it runs."""
    system.apply(a_deployment("others", count, cpu="1500m"))
    return system.wait_running(count, "app=others", FULL_SPEED_SECONDS)


def dead(system):
    """What is set aside, as `wainwright dead` tells it."""
    return json.loads(system.cli("dead", "--output", "json").stdout)


# NodePools ------------------------------------------------------------------------------------------------------------


def test_a_node_pool_that_contradicts_itself_is_not_ready_and_stops_no_other(system):
    arch = "kubernetes.io/arch"
    contradiction = (
        {"key": arch, "operator": "In", "values": ["amd64"]},
        {"key": arch, "operator": "In", "values": ["arm64"]},
    )
    system.apply(a_node_pool("contradictory", types=(), requirements=contradiction, weight=90), a_node_pool())
    others_run(system)

    def is_told():
        ready = condition(system.get("NodePool", "contradictory"), "Ready")
        return ready if ready.get("status") == "False" else None

    assert system.wait("it is not ready", is_told, 10)["reason"] == "NotReady"
    valid = condition(system.get("NodePool", "contradictory"), "ValidationSucceeded")
    assert (valid["status"], valid["reason"]) == ("False", "NodePoolInvalid")
    assert arch in valid["message"]
    assert any(e["reason"] == "NodePoolInvalid" for e in system.events_of("NodePool", "contradictory"))
    assert not system.claims("contradictory")
    good = condition(system.get("NodePool", "general"), "Ready")
    assert good["status"] == "True"


def test_a_missing_node_class_makes_its_node_pool_not_ready_until_it_is_there(system):
    reference = {"group": "simulated.wainwright.dev", "kind": "SimulatedNodeClass", "name": "nowhere"}
    lane = {"wainwright.dev/lane": "nowhere"}
    pool = a_node_pool("nowhere", node_class=reference, template={"metadata": {"labels": lane}})
    system.apply(pool, a_node_pool(), a_pod("waits", cpu="1500m", nodeSelector=lane))
    others_run(system)

    def is_told():
        found = condition(system.get("NodePool", "nowhere"), "NodeClassReady")
        return found if found.get("status") == "False" else None

    told = system.wait("the NodePool says so", is_told, 10)
    assert told["reason"] == "NodeClassNotReady"
    assert "there is no SimulatedNodeClass nowhere" in told["message"]
    assert condition(system.get("NodePool", "nowhere"), "Ready")["status"] == "False"
    system.apply(
        {
            "apiVersion": "simulated.wainwright.dev/v1alpha1",
            "kind": "SimulatedNodeClass",
            "metadata": {"name": "nowhere"},
            "spec": {"zones": ["us-east-1b"], "bootSeconds": 0.2},
        }
    )
    # NodeClasses are looked at every ten seconds, and after that the pod need not wait for its next try.
    system.wait("the pod runs", lambda: any(p["metadata"]["name"] == "waits" for p in system.running()), 30)
    (instance,) = [i for i in system.live_instances() if i["node_pool"] == "nowhere"]
    assert instance["zone"] == "us-east-1b"


def test_another_providers_node_class_is_served_and_a_condition_says_that_it_is_simulated(system):
    system.apply(a_node_pool())

    def is_told():
        found = condition(system.get("NodePool", "general"), "NodeClassReady")
        return found if found.get("reason") == "NodeClassSimulated" else None

    told = system.wait("the condition says so", is_told, 10)
    assert told["status"] == "True"
    assert "EC2NodeClass default" in told["message"]


# Pods -----------------------------------------------------------------------------------------------------------------


def test_pods_that_fit_nowhere_are_told_why_by_event_and_record(system):
    """Too large for every type, and a label that nobody defines: both at once, so that the rest waits for neither."""
    system.apply(
        a_node_pool(),
        a_pod("giant", cpu="200", memory="2Ti"),
        a_pod("lost", nodeSelector={"example.com/rack": "r7"}),
    )
    others_run(system)
    system.wait("both have reasons", lambda: all(why_not(system, name) for name in ("giant", "lost")), 15)
    giant, lost = why_not(system, "giant"), why_not(system, "lost")
    assert "nodepool/general: needs cpu 200" in giant
    assert "c6a.large" in giant, "the largest type that was allowed"
    assert "example.com/rack" in lost
    for name in ("giant", "lost"):
        state = system.report(f"default/{name}")["state"]
        assert state.startswith("could not be placed; tried again in")
        told = [e for e in system.events_of("Pod", name) if e["source"]["component"] == "wainwright"]
        assert any(e["type"] == "Warning" and e["reason"] == "FailedScheduling" for e in told), told
    assert len(system.live_instances()) == 3
    system.apply(a_pod("lost-no-more", nodeSelector={"example.com/rack": "r8"}))
    rack = {"example.com/rack": "r8"}
    system.apply(a_node_pool("racks", template={"metadata": {"labels": rack}}))
    system.wait("a NodePool that fits helps at once", lambda: len(system.running()) == 4, FULL_SPEED_SECONDS)


def test_odd_but_legal_quantities_are_understood(system):
    """As the API server lets them through: exponents, milli-bytes, fractions, plain numbers."""
    system.apply(
        a_node_pool(),
        a_pod("exponent", cpu="2e-1", memory="128e6"),
        a_pod("milli-bytes", cpu="0.2", memory="134217728000m"),
        a_pod("numbers", cpu="1", memory="134217728"),
    )
    system.wait_running(3, seconds=FULL_SPEED_SECONDS)
    assert len(system.claims()) == 1


def test_a_pod_deleted_in_the_middle_of_a_batch_costs_nothing(system):
    """Deleted while it is in the batch: no node is bought for it, and the others of its batch do not wait."""
    system.apply(a_node_pool(), a_pod("goes", cpu="1500m"), a_pod("stays", cpu="1500m"))
    goes = system.get("Pod", "goes")["metadata"]["uid"]
    seen = system.keys.seen
    system.wait("it is queued", lambda: system.redis(lambda redis: redis.hexists(seen, goes)), 10, pause=0.01)
    system.delete("Pod", "goes", grace_seconds=0)
    system.wait_running(1, seconds=FULL_SPEED_SECONDS)
    system.wait("nothing waits any more", lambda: not system.redis(lambda redis: redis.hexists(seen, goes)), 10)
    assert [len(system.claims()), len(system.live_instances())] == [1, 1]


def test_a_pod_deleted_after_it_was_planned_is_not_bought_for(system):
    """The claim's launch is put off (throttled) until the pod is gone: then there is nobody to launch for."""
    system.cloud("PUT", "/v1/faults", {"throttle": {"per_second": 0.5, "burst": 0}})
    system.apply(a_node_pool(), a_pod("goes", cpu="1500m"))
    system.wait("its claim is there", system.claims, 10)
    system.delete("Pod", "goes", grace_seconds=0)
    launches = system.launches()["launches"]
    system.wait("the claim is given up", lambda: not system.claims(), 90)
    assert system.launches()["launches"] == launches


# Stream entries and annotations ---------------------------------------------------------------------------------------


def test_stream_entries_that_cannot_be_read_are_set_aside_with_their_reason(system):
    system.apply(a_node_pool())
    pending = system.keys.pending("general")
    system.wait("the NodePool is in use", lambda: system.redis(lambda r: r.hget(system.keys.nodepools, "general")), 10)
    newer = system.redis(lambda redis: redis.xadd(pending, {"v": "99", "who": "a version to come"}))
    broken = system.redis(lambda redis: redis.xadd(pending, {"v": "1", "noise": "\x00\xff"}))
    others_run(system)
    found = system.wait("both are set aside", lambda: len(held := dead(system)) >= 2 and held, 10)
    assert "version" in found[f"entry/general/{newer}"]["reason"]
    assert found[f"entry/general/{broken}"]["reason"]
    for entry in (newer, broken):
        system.redis(lambda redis, entry=entry: redis.hdel(system.keys.dead, f"entry/general/{entry}"))


def test_an_annotation_that_somebody_broke_fails_its_claim_and_its_pods_are_planned_anew(system):
    """Without readable attempts nobody may ask the cloud; the reason stands on record."""
    system.cloud("PUT", "/v1/faults", {"throttle": {"per_second": 0.5, "burst": 0}})
    system.apply(a_node_pool(), a_pod("solo", cpu="1500m"))
    (claim,) = system.wait("its claim is there", system.claims, 10)
    name = claim["metadata"]["name"]
    body = {"metadata": {"annotations": {"wainwright.dev/attempts": "not json"}}}

    system.kube.merge_patch(KINDS["NodeClaim"], name, body)
    system.cloud("DELETE", "/v1/faults")
    system.wait_running(1, seconds=100)
    assert [c["metadata"]["name"] for c in system.claims()] != [name]
    told = [e for e in system.events_of("NodeClaim", name) if e["reason"] == "NodeClaimFailed"]
    assert told
    assert "wainwright.dev/attempts" in told[0]["message"]


# The cloud ------------------------------------------------------------------------------------------------------------


def test_a_cloud_call_that_hangs_holds_up_its_own_claim_only(system):
    """It ends after 25 s; the same request again finds what the hanging one has launched, or launches it."""
    system.cloud("PUT", "/v1/faults", {"hang": {"seconds": 60, "next": 1}})
    began = time.monotonic()
    system.apply(a_node_pool(), a_deployment("web", 3, cpu="1500m"))
    system.wait_running(2, "app=web", FULL_SPEED_SECONDS)
    others_run(system, 2)
    assert time.monotonic() - began < 24, "the others waited for the hanging call"
    system.wait_running(3, "app=web", 60)
    assert system.launches()["doubles"] == []
    assert len(system.live_instances()) == 5


def test_launches_refused_for_good_fall_to_the_next_node_pool_without_a_rush(system):
    """The claim tells the cloud's reason; no more than a few refused requests are made meanwhile."""
    system.cloud("PUT", "/v1/faults", {"refuse": {"node_pool": "banned", "reason": "UnauthorizedOperation"}})
    system.apply(a_node_pool("banned", weight=50), a_node_pool(), a_pod("solo", cpu="1500m"))

    def is_told():
        events = [e for e in system.list("Event") if e["involvedObject"]["kind"] == "NodeClaim"]
        return [e for e in events if e["reason"] == "NodeClaimFailed" and "banned" in e["involvedObject"]["name"]]

    told = system.wait("the claim tells why", is_told, 20)
    assert "UnauthorizedOperation" in told[0]["message"]
    time.sleep(10)
    names = {e["involvedObject"]["name"] for e in is_told()}
    assert len(names) <= 6, f"claim after claim is made and refused: {sorted(names)}"
    others_run(system)


# Karpenter ------------------------------------------------------------------------------------------------------------


def karpenter_lease(age_seconds):
    at = (SystemClock().now() - timedelta(seconds=age_seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"holderIdentity": "karpenter-7d9f_abc", "leaseDurationSeconds": 15, "renewTime": at},
    }


def watcher(system, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "workers.watcher"],
        cwd=ROOT,
        env=system.environment() | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def karpenter(system):
    """Sets how long ago Karpenter renewed its Lease."""
    yield lambda age_seconds: system.apply(karpenter_lease(age_seconds))
    system.delete("Lease", "karpenter-leader-election", "kube-system")


def test_where_karpenter_is_at_work_the_watcher_does_not_start_and_says_how_to_decide(system, karpenter):
    karpenter(age_seconds=2)
    refused = watcher(system)
    _, told = refused.communicate(timeout=20)
    assert refused.returncode == EXIT_KARPENTER
    assert "karpenter-7d9f_abc" in told
    assert "kube-system/karpenter-leader-election" in told
    assert "WAINWRIGHT_KUBE_KARPENTER=ignore" in told
    assert "kubectl scale deployment/karpenter" in told


@pytest.mark.parametrize(("age_seconds", "setting"), [(120, "refuse"), (2, "ignore")])
def test_an_old_lease_or_the_setting_lets_the_watcher_start(system, karpenter, age_seconds, setting):
    karpenter(age_seconds)
    process = watcher(system, WAINWRIGHT_KUBE_KARPENTER=setting)
    mark = f":{process.pid}"

    def shows_life():
        return any(
            name.endswith(mark) for name in system.redis(lambda redis: redis.keys(system.keys.worker("watcher@*")))
        )

    try:
        system.wait("it shows life", shows_life, 20)
    finally:
        process.terminate()
        _, told = process.communicate(timeout=20)
    assert process.returncode == os.EX_OK
    assert "not started" not in told
