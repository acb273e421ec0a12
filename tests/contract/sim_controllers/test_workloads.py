"""Workload controllers, garbage collection, budgets, namespaces, as a client of the API sees them."""

from tests.contract.sim_controllers.conftest import a_pod, a_workload, condition, has_taint, is_ready


def apps(namespace, plural):
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}"


def is_complete(replicas):
    def holds(found):
        status = found["status"]
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == replicas
            and status.get("replicas", 0) == replicas
        )

    return holds


def test_a_deployment_rolls_out_scales_and_keeps_its_history(world, namespace, name):
    world.ready_node(name)
    path = f"{apps(namespace, 'deployments')}/web"
    world.create(apps(namespace, "deployments"), a_workload("Deployment", "web", name, replicas=3))
    done = world.wait(path, is_complete(3))
    assert condition(done, "Progressing")["reason"] == "NewReplicaSetAvailable"
    assert done["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    world.api.patch(path, {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    done = world.wait(path, is_complete(3))
    assert done["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    sizes = [s["spec"]["replicas"] for s in world.get(apps(namespace, "replicasets"))["items"]]
    assert sorted(sizes) == [0, 3]
    scale = world.get(f"{path}/scale")
    world.api.put(f"{path}/scale", {**scale, "spec": {"replicas": 1}})
    world.wait(path, is_complete(1))
    world.wait(f"/api/v1/namespaces/{namespace}/pods", lambda found: len(found["items"]) == 1)


def test_a_deleted_deployment_takes_everything_with_it(world, namespace, name):
    world.ready_node(name)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for policy in ("Background", "Foreground"):
        world.create(apps(namespace, "deployments"), a_workload("Deployment", "web", name, replicas=2))
        path = f"{apps(namespace, 'deployments')}/web"
        world.wait(path, is_complete(2))
        world.api.delete(path, propagationPolicy=policy)
        world.gone(path)
        world.wait(pods, lambda found: not found["items"])
        world.wait(apps(namespace, "replicasets"), lambda found: not found["items"])


def test_orphans_stay_without_an_owner(world, namespace, name):
    world.create(apps(namespace, "deployments"), a_workload("Deployment", "web", name, replicas=0))
    world.wait(apps(namespace, "replicasets"), lambda found: found["items"])
    world.api.delete(f"{apps(namespace, 'deployments')}/web", propagationPolicy="Orphan")
    world.gone(f"{apps(namespace, 'deployments')}/web")
    (left,) = world.get(apps(namespace, "replicasets"))["items"]
    assert "ownerReferences" not in left["metadata"]


def test_an_object_whose_owner_never_was_is_removed(world, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}
    world.create(path, {"metadata": {"name": "lost", "ownerReferences": [owner]}})
    world.gone(f"{path}/lost")


def test_a_daemon_set_follows_the_nodes(world, namespace, name):
    path = f"{apps(namespace, 'daemonsets')}/agent"
    world.create(apps(namespace, "daemonsets"), a_workload("DaemonSet", "agent", name))
    world.ready_node(f"{name}-a", group=name)
    world.ready_node(f"{name}-b", group=name, taints=[{"key": "example.com/only", "effect": "NoSchedule"}])
    world.wait(path, lambda found: found["status"].get("numberAvailable") == 1)
    taints = {"spec": {"taints": None}}
    world.api.patch(f"/api/v1/nodes/{name}-b", taints)
    done = world.wait(path, lambda found: found["status"].get("numberAvailable") == 2)
    assert done["status"]["desiredNumberScheduled"] == done["status"]["updatedNumberScheduled"] == 2
    pods = world.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"{name}-a", f"{name}-b"}


def test_a_stateful_set_comes_up_in_order_with_its_claims(world, namespace, name):
    world.ready_node(name)
    path = f"{apps(namespace, 'statefulsets')}/db"
    world.create(apps(namespace, "statefulsets"), a_workload("StatefulSet", "db", name, replicas=2, serviceName="db"))
    done = world.wait(path, lambda found: found["status"].get("readyReplicas") == 2)
    first, second = (world.get(f"/api/v1/namespaces/{namespace}/pods/db-{n}") for n in range(2))
    assert first["metadata"]["creationTimestamp"] <= second["metadata"]["creationTimestamp"]
    assert done["status"]["currentRevision"] == done["status"]["updateRevision"]
    world.api.patch(path, {"spec": {"replicas": 1}})
    world.gone(f"/api/v1/namespaces/{namespace}/pods/db-1")


def test_jobs_complete_and_fail(world, namespace, name):
    world.ready_node(name)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    quick = {"sim.wainwright.dev/run-seconds": "0.2"}
    spec = {"restartPolicy": "Never"}
    common = {"api_version": "batch/v1", "pod_spec": spec}
    world.create(jobs, a_workload("Job", "good", name, annotations=quick, completions=3, parallelism=2, **common))
    bad = {**quick, "sim.wainwright.dev/exit-code": "1"}
    world.create(jobs, a_workload("Job", "bad", name, annotations=bad, backoffLimit=0, **common))
    good = world.wait(f"{jobs}/good", lambda job: condition(job, "Complete"))
    assert good["status"]["succeeded"] == 3
    assert good["status"]["completionTime"]
    failed = world.wait(f"{jobs}/bad", lambda job: condition(job, "Failed"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"


def test_a_cron_job_is_told_that_it_is_not_run(world, namespace, name):
    job = a_workload("Job", "x", name, api_version="batch/v1", pod_spec={"restartPolicy": "Never"})
    body = {"metadata": {"name": "nightly"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}}
    world.create(f"/apis/batch/v1/namespaces/{namespace}/cronjobs", body)
    events = f"/api/v1/namespaces/{namespace}/events"
    world.wait(events, lambda found: any(event["reason"] == "CronJobsNotRun" for event in found["items"]))


def test_a_budget_allows_one_eviction_after_the_other(world, namespace, name):
    world.ready_node(name)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    deployments = apps(namespace, "deployments")
    world.create(deployments, a_workload("Deployment", "web", name, replicas=2))
    world.wait(f"{deployments}/web", is_complete(2))
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    world.create(budgets, {"metadata": {"name": "web"}, "spec": spec})
    budget = world.wait(f"{budgets}/web", lambda found: found["status"].get("disruptionsAllowed") == 1)
    assert (budget["status"]["expectedPods"], budget["status"]["desiredHealthy"]) == (2, 1)
    world.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})  # the replacement stays away
    world.wait(f"/api/v1/nodes/{name}", lambda node: has_taint(node, "unschedulable"))
    first, second = (pod["metadata"]["name"] for pod in world.get(pods)["items"])
    assert world.api.post(f"{pods}/{first}/eviction", {"metadata": {"name": first}}).status == 201
    assert world.api.post(f"{pods}/{second}/eviction", {"metadata": {"name": second}}).status == 429
    world.gone(f"{pods}/{first}")
    world.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})
    world.wait(f"{budgets}/web", lambda found: found["status"]["disruptionsAllowed"] == 1)
    assert world.api.post(f"{pods}/{second}/eviction", {"metadata": {"name": second}}).status == 201


def test_a_deleted_namespace_goes_with_all_it_holds(world, name):
    world.ready_node(name)
    world.create("/api/v1/namespaces", {"metadata": {"name": f"{name}-x"}})
    pods = f"/api/v1/namespaces/{name}-x/pods"
    world.create(pods, a_pod("p", name))
    world.wait(f"{pods}/p", is_ready)
    world.api.delete(f"/api/v1/namespaces/{name}-x")
    world.gone(f"/api/v1/namespaces/{name}-x")
    assert not world.get(pods)["items"]
