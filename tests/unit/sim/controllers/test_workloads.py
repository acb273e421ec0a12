"""Decisions of the workload controllers: how many, which, in which order."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.sim.controllers.builders import (
    NOW,
    a_budget,
    a_daemon_set,
    a_deployment,
    a_job,
    a_node,
    a_pod,
    a_replica_set,
    a_stateful_set,
    at,
    text,
)
from wainwright.sim.controllers import disruption
from wainwright.sim.controllers.objects import PodTemplate
from wainwright.sim.controllers.workloads import daemonsets, deployments, jobs, replicasets, statefulsets
from wainwright.sim.controllers.workloads.pods import share, template_hash

LEAVING = {"deletionTimestamp": text(NOW), "deletionGracePeriodSeconds": 30}


def up(name, **more):
    return a_pod(name, on="n", phase="Running", ready=True, **more)


# ReplicaSets ----------------------------------------------------------------------------------------------------------


def test_missing_pods_are_created_and_finished_or_leaving_ones_replaced():
    pods = [up("a"), up("b", metadata=LEAVING), a_pod("c", phase="Failed")]
    assert replicasets.pods_to_change(a_replica_set(replicas=3), pods) == (2, [])


def test_surplus_pods_go_unbound_pending_unready_and_young_first():
    old = up("old")
    young = up("young", metadata={"creationTimestamp": text(at(60))})
    unready = a_pod("unready", on="n", phase="Running", ready=False)
    starting, unbound = a_pod("starting", on="n"), a_pod("unbound")
    pods = [old, young, unready, starting, unbound]
    _, doomed = replicasets.pods_to_change(a_replica_set(replicas=1), pods)
    assert [pod.metadata.name for pod in doomed] == ["unbound", "starting", "unready", "young"]


def test_the_cheaper_pod_goes_first():
    cost = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}
    _, doomed = replicasets.pods_to_change(a_replica_set(replicas=1), [up("a"), up("z", metadata=cost)])
    assert [pod.metadata.name for pod in doomed] == ["z"]


def test_available_means_ready_for_long_enough():
    replica_set = a_replica_set(minReadySeconds=10)
    assert replicasets.status_of(replica_set, [up("a")], at(5))["availableReplicas"] == 0
    assert replicasets.status_of(replica_set, [up("a")], at(10))["availableReplicas"] == 1


# Deployments ----------------------------------------------------------------------------------------------------------


def scales(deployment, new, *old):
    return deployments.scales(deployment, new, old)


def test_a_first_rollout_grows_at_once():
    assert scales(a_deployment(replicas=4), a_replica_set("new", replicas=0)) == {"new": 4}


def test_a_rolling_update_stays_within_surge_and_availability():
    # 4 replicas, 25 %: at most 5 pods, at least 3 available
    deployment = a_deployment(replicas=4)
    old, new = a_replica_set("old", replicas=4), a_replica_set("new", replicas=0, revision=2)
    assert scales(deployment, new, old) == {"new": 1, "old": 3}
    old, new = a_replica_set("old", replicas=3), a_replica_set("new", replicas=1, available=0, revision=2)
    assert scales(deployment, new, old) == {"new": 2}
    new = a_replica_set("new", replicas=2, available=2, revision=2)
    assert scales(deployment, new, old) == {"old": 1}


def test_old_pods_that_serve_nobody_go_first():
    deployment = a_deployment(replicas=4)
    broken = a_replica_set("broken", replicas=2, available=0, revision=2)
    good = a_replica_set("good", replicas=3, revision=1)
    new = a_replica_set("new", replicas=0, revision=3)
    assert scales(deployment, new, broken, good)["broken"] == 0
    assert "good" not in scales(deployment, new, broken, good)


def test_recreate_empties_the_old_before_it_fills_the_new():
    deployment = a_deployment(replicas=2, strategy={"type": "Recreate"})
    new = a_replica_set("new", replicas=0, revision=2)
    assert scales(deployment, new, a_replica_set("old", replicas=2)) == {"old": 0}
    assert scales(deployment, new, a_replica_set("old", replicas=0, status={"replicas": 1})) == {}
    assert scales(deployment, new, a_replica_set("old", replicas=0)) == {"new": 2}


def test_a_paused_deployment_scales_but_does_not_roll():
    deployment = a_deployment(replicas=6, paused=True)
    assert scales(deployment, None, a_replica_set("old", replicas=4)) == {"old": 6}


def test_a_rollout_ends_for_any_bounds():
    for replicas in range(5):
        for surge, unavailable in ((0, 1), (1, 0), ("25%", "25%"), ("100%", 0), (0, 0)):
            bounds = {"maxSurge": surge, "maxUnavailable": unavailable}
            deployment = a_deployment(replicas=replicas, strategy={"type": "RollingUpdate", "rollingUpdate": bounds})
            sizes = {"old": replicas, "new": 0}
            for _ in range(40):
                changes = scales(
                    deployment,
                    a_replica_set("new", replicas=sizes["new"], revision=2),
                    a_replica_set("old", replicas=sizes["old"]),
                )
                if not changes:
                    break
                sizes.update(changes)
            assert sizes == {"old": 0, "new": replicas}


def test_the_status_says_complete_only_when_nothing_old_is_left():
    deployment = a_deployment(replicas=2)

    def reason(**counts):
        progress = deployments.Progress(**{"replicas": 2, "updated": 2, "ready": 2, "available": 2, **counts})
        return deployments.status_of(deployment, None, progress, NOW)["conditions"][1]["reason"]

    assert reason() == "NewReplicaSetAvailable"
    assert reason(replicas=3) == "ReplicaSetUpdated"
    assert reason(available=1) == "ReplicaSetUpdated"


def test_a_rollout_without_progress_times_out():
    since = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "lastTransitionTime": text(NOW)}
    deployment = a_deployment(replicas=1, status={"replicas": 1, "updatedReplicas": 1, "conditions": [since]})
    stuck = deployments.Progress(replicas=1, updated=1, ready=0, available=0)
    late = deployments.status_of(deployment, None, stuck, at(601))["conditions"][1]
    assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert deployments.status_of(deployment, None, stuck, at(599))["conditions"][1]["status"] == "True"


def test_a_template_is_known_by_content_not_by_order_or_nulls():
    def hashed(metadata, spec):
        return template_hash(PodTemplate(metadata=msgspec.Raw(metadata), spec=msgspec.Raw(spec)))

    assert hashed(b'{"a":1,"b":2}', b"{}") == hashed(b'{"b":2,"a":1,"creationTimestamp":null}', b"{}")
    assert hashed(b"{}", b'{"a":1}') != hashed(b"{}", b'{"a":2}')


@pytest.mark.parametrize(
    ("value", "round_up", "count"),
    [(3, True, 3), ("25%", True, 3), ("25%", False, 2), (None, True, 1), ("0%", True, 0)],
)
def test_shares(value, round_up, count):
    # 25 % of 10 = 2.5
    assert share(value, 10, default=1, round_up=round_up) == count


# DaemonSets -----------------------------------------------------------------------------------------------------------


def daemon(node_name, revision="r", **more):
    return up(node_name, labels={"controller-revision-hash": revision}, **more) if not more else a_pod(**more)


def test_a_daemon_pod_for_every_node_it_tolerates():
    nodes = [
        a_node("a"),
        a_node("b", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        a_node("c", taints=[{"key": "dedicated", "effect": "NoSchedule"}]),
        a_node("d", ready="", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
    ]
    steps = daemonsets.plan(a_daemon_set(), nodes, [], "r", NOW)
    assert steps.create_on == ("a", "b")
    assert steps.status["desiredNumberScheduled"] == 2
    selective = a_daemon_set(template_spec={"nodeSelector": {"x": "y"}, "containers": []})
    assert daemonsets.plan(selective, nodes, [], "r", NOW).create_on == ()


def test_a_daemon_pod_names_its_node_in_its_affinity():
    body = daemonsets.daemon_pod(a_daemon_set(), "a", "r")
    pod = a_pod(affinity=body["spec"]["affinity"], tolerations=body["spec"]["tolerations"])
    assert daemonsets.target_node(pod) == "a"
    assert {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"} in body["spec"][
        "tolerations"
    ]


def test_daemon_pods_under_new_taints_stay_or_go_by_effect():
    def doomed(effect):
        node = a_node("n", taints=[{"key": "k", "effect": effect}])
        return daemonsets.plan(a_daemon_set(), [node], [up("p", labels={"controller-revision-hash": "r"})], "r", NOW)

    assert doomed("NoSchedule").delete == ()
    assert doomed("NoSchedule").status["numberMisscheduled"] == 1
    assert len(doomed("NoExecute").delete) == 1


def test_daemon_pods_are_replaced_one_by_one_when_the_template_changes():
    nodes = [a_node("a"), a_node("b")]
    pods = [
        a_pod(name, on=name, phase="Running", ready=True, labels={"controller-revision-hash": "old"}) for name in "ab"
    ]
    assert len(daemonsets.plan(a_daemon_set(), nodes, pods, "new", NOW).delete) == 1
    pods[0] = a_pod("a", on="a", labels={"controller-revision-hash": "new"})
    assert daemonsets.plan(a_daemon_set(), nodes, pods, "new", NOW).delete == ()
    on_delete = a_daemon_set(updateStrategy={"type": "OnDelete"})
    assert daemonsets.plan(on_delete, nodes, pods, "newer", NOW).delete == ()


def test_finished_daemon_pods_are_deleted_before_others_take_their_place():
    steps = daemonsets.plan(a_daemon_set(), [a_node("n")], [a_pod("p", on="n", phase="Failed")], "r", NOW)
    assert (steps.create_on, len(steps.delete)) == ((), 1)


# Jobs -----------------------------------------------------------------------------------------------------------------


def ended(phase, index=None, moment=NOW):
    metadata = {"annotations": {"batch.kubernetes.io/job-completion-index": str(index)}} if index is not None else {}
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": text(moment)}
    return a_pod(phase=phase, status={"conditions": [condition]}, metadata=metadata)


def test_a_job_runs_as_many_at_once_as_it_may():
    job = a_job(parallelism=2, completions=3)
    assert len(jobs.plan(job, [], NOW).create) == 2
    assert len(jobs.plan(job, [up("a"), ended("Succeeded")], NOW).create) == 1
    assert len(jobs.plan(job, [up("a"), ended("Succeeded"), ended("Succeeded")], NOW).create) == 0


def test_a_job_is_complete_with_its_last_completion():
    steps = jobs.plan(a_job(completions=1), [ended("Succeeded")], NOW)
    assert steps.outcome[:2] == ("Complete", "CompletionsReached")
    status = jobs.status_of(a_job(), steps, NOW)
    assert [c["type"] for c in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert status["completionTime"] == text(NOW)


def test_a_job_without_completions_waits_for_those_that_run():
    job = a_job(parallelism=3)
    assert jobs.plan(job, [ended("Succeeded"), up("a")], NOW).outcome is None
    assert jobs.plan(job, [ended("Succeeded"), up("a")], NOW).create == ()
    assert jobs.plan(job, [ended("Succeeded")], NOW).outcome[0] == "Complete"


def test_a_job_fails_beyond_its_backoff_limit_and_waits_between_tries():
    job = a_job(completions=1, backoffLimit=1)
    waiting = jobs.plan(job, [ended("Failed")], NOW)
    assert (waiting.create, waiting.retry_seconds) == ((), 1.0)
    assert len(jobs.plan(job, [ended("Failed")], at(1)).create) == 1
    over = jobs.plan(job, [ended("Failed"), ended("Failed"), up("a")], at(9))
    assert (over.outcome[1], len(over.delete)) == ("BackoffLimitExceeded", 1)


def test_a_job_ends_at_its_deadline():
    job = a_job(completions=1, activeDeadlineSeconds=10, status={"startTime": text(NOW)})
    assert jobs.plan(job, [up("a")], at(4)).retry_seconds == 6.0
    assert jobs.plan(job, [up("a")], at(10)).outcome[1] == "DeadlineExceeded"


def test_indexed_jobs_fill_each_index_once():
    job = a_job(parallelism=5, completions=3, completionMode="Indexed")
    assert jobs.plan(job, [], NOW).create == (0, 1, 2)
    assert jobs.plan(job, [ended("Succeeded", 1), ended("Succeeded", 1)], NOW).create == (0, 2)


def test_a_suspended_job_has_no_pods():
    steps = jobs.plan(a_job(completions=1, suspend=True), [up("a")], NOW)
    assert (steps.create, len(steps.delete)) == ((), 1)


# StatefulSets ---------------------------------------------------------------------------------------------------------


def member(number, revision="r", *, ready=True, **more):
    return a_pod(
        f"db-{number}", on="n", phase="Running", ready=ready, labels={"controller-revision-hash": revision}, **more
    )


def stateful(pods, **spec):
    return statefulsets.plan(a_stateful_set(**spec), pods, "r", NOW)


def test_ordinals_come_up_one_after_the_other():
    assert stateful([]).create == (0,)
    assert stateful([member(0, ready=False)]).create == ()
    assert stateful([member(0)]).create == (1,)
    assert stateful([], podManagementPolicy="Parallel").create == (0, 1, 2)


def test_the_highest_ordinal_goes_first_and_alone():
    pods = [member(n) for n in range(4)]
    assert [p.metadata.name for p in stateful(pods, replicas=2).delete] == ["db-3"]
    pods[3] = member(3, metadata=LEAVING)
    assert stateful(pods, replicas=2) == statefulsets.StatefulPlan()


def test_updates_run_from_the_highest_ordinal_down_to_the_partition():
    pods = [member(0, "old"), member(1, "old"), member(2)]
    assert [p.metadata.name for p in stateful(pods).delete] == ["db-1"]
    held = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    assert stateful(pods, updateStrategy=held).delete == ()


def test_members_get_their_own_name_and_claims():
    stateful_set = a_stateful_set(
        serviceName="svc", volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {"resources": {}}}]
    )
    body = statefulsets.stateful_pod(stateful_set, 1, "r")
    assert (body["metadata"]["name"], body["spec"]["hostname"], body["spec"]["subdomain"]) == ("db-1", "db-1", "svc")
    assert body["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}]


# PodDisruptionBudgets -------------------------------------------------------------------------------------------------


def budget_status(budget, pods, replicas=None):
    return disruption.status_of(budget, pods, lambda _pod: ("top", replicas) if replicas else None, NOW)


@pytest.mark.parametrize(
    ("spec", "replicas", "allowed", "desired"),
    [
        ({"minAvailable": 2}, None, 1, 2),
        ({"minAvailable": "50%"}, 4, 1, 2),  # 50 % of the 4 wanted; 3 are healthy
        ({"maxUnavailable": 1}, 3, 1, 2),
        ({"maxUnavailable": "34%"}, 3, 2, 1),  # 34 % of 3 = 1.02, rounded up
        ({"maxUnavailable": 0}, 3, 0, 3),
    ],
)
def test_how_many_evictions_a_budget_allows(spec, replicas, allowed, desired):
    status = budget_status(a_budget(**spec), [up("a"), up("b"), up("c"), a_pod("d", phase="Failed")], replicas)
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["currentHealthy"]) == (allowed, desired, 3)


def test_an_eviction_under_way_counts_until_its_pod_goes_or_two_minutes_passed():
    budget = a_budget(minAvailable=1, status={"disruptedPods": {"a": text(NOW)}})
    pods = [up("a"), up("b")]
    assert budget_status(budget, pods)["disruptionsAllowed"] == 0
    late = disruption.status_of(budget, pods, lambda _pod: None, at(121))
    assert (late["disruptionsAllowed"], late["disruptedPods"]) == (1, None)


def test_a_reported_status_is_not_written_again():
    budget = a_budget(minAvailable=1)
    status = budget_status(budget, [up("a"), up("b")])
    assert not disruption.shows(budget, status)
    assert disruption.shows(a_budget(minAvailable=1, status={**status, "disruptedPods": {}}), status)
