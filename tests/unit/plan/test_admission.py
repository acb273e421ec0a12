"""What the API server adds to pods: LimitRanges, RuntimeClasses, priorities."""

from tests.unit.plan.builders import a_node_pool, a_pod, a_pod_spec, a_workload, given
from wainwright.scheduling.requests import pod_requests


def a_limit_range(namespace="default", name="limits", **item):
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def a_runtime_class(**more):
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "g",
        **more,
    }


def a_priority_class(name, value, **more):
    meta = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value, **more}


def requests(*objects):
    asked = pod_requests(given(*objects, a_node_pool()).pods[0])
    return asked.get("cpu", 0), asked.get("memory", 0) // 2**20


def test_default_requests_fill_what_containers_leave_out():
    limits = a_limit_range(defaultRequest={"cpu": "250m", "memory": "64Mi"})
    assert requests(a_workload(cpu="", memory=""), limits) == (250, 64)
    assert requests(a_workload(cpu="100m", memory=""), limits) == (100, 64)


def test_the_order_of_defaults_is_default_request_then_default_then_max_then_min():
    empty = a_pod(cpu="", memory="")
    assert requests(empty, a_limit_range(default={"cpu": "300m"})) == (300, 0)
    assert requests(empty, a_limit_range(default={"cpu": "300m"}, defaultRequest={"cpu": "200m"})) == (200, 0)
    assert requests(empty, a_limit_range(max={"cpu": "400m"})) == (400, 0)
    assert requests(empty, a_limit_range(min={"cpu": "50m"})) == (50, 0)


def test_a_containers_own_limit_stands_in_for_its_request_before_any_default():
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "700m"}}
    assert requests(pod, a_limit_range(defaultRequest={"cpu": "100m"})) == (700, 0)


def test_limit_ranges_count_in_their_own_namespace_only_daemon_sets_included():
    limits = a_limit_range("shop", defaultRequest={"cpu": "250m"})
    daemon = a_workload("DaemonSet", "agent", namespace="shop", cpu="", memory="")
    found = given(a_pod(cpu="", memory=""), daemon, limits)
    assert pod_requests(found.pods[0]).get("cpu", 0) == 0
    [agent] = found.snapshot.daemon_sets
    assert agent.spec.template.spec.containers[0].resources.requests == {"cpu": "250m"}


def test_requests_outside_the_range_are_told():
    told = given(
        a_workload(cpu="3"), a_workload(name="low", cpu="1m"), a_limit_range(min={"cpu": "10m"}, max={"cpu": "2"})
    )
    assert any(
        "Deployment web: LimitRange limits: container app asks for more cpu than its max 2" in t for t in told.warnings
    )
    assert any(
        "Deployment low: LimitRange limits: container app asks for less cpu than its min 10m" in t
        for t in told.warnings
    )


def test_a_runtime_class_adds_overhead_selector_and_tolerations():
    scheduling = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
    runtime = a_runtime_class(overhead={"podFixed": {"cpu": "100m"}}, scheduling=scheduling)
    [pod] = given(a_pod(runtimeClassName="gvisor", nodeSelector={"a": "b"}), runtime).pods
    assert pod_requests(pod)["cpu"] == 600
    assert pod.spec.node_selector == {"sandbox": "yes", "a": "b"}
    assert [t.key for t in pod.spec.tolerations] == ["sandbox"]


def test_a_runtime_class_that_is_not_given_is_told():
    found = given(a_workload(runtimeClassName="kata"))
    assert "Deployment web: RuntimeClass kata is not given; its overhead is taken to be nothing" in found.warnings


def test_priorities_come_from_classes_the_general_one_included():
    found = given(
        a_pod("high", priorityClassName="high"),
        a_pod("plain"),
        a_pod("system", priorityClassName="system-node-critical"),
        a_pod("unknown", priorityClassName="gone"),
        a_priority_class("high", 1000),
        a_priority_class("general", 7, globalDefault=True),
    )
    assert [pod.spec.priority for pod in found.pods] == [1000, 7, 2_000_001_000, None]
    assert "Pod unknown: PriorityClass gone is not given; its priority is taken to be 0" in found.warnings


def test_namespace_labels_are_those_given_and_the_one_kubernetes_adds():
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}}
    found = given(a_pod(namespace="shop"), a_pod("other", namespace="bare"), namespace)
    assert found.snapshot.namespaces == {
        "bare": {"kubernetes.io/metadata.name": "bare"},
        "shop": {"kubernetes.io/metadata.name": "shop", "team": "a"},
    }


def test_manifests_are_not_changed_by_what_is_added():
    """Two Deployments that share one YAML anchor share one object."""
    spec = a_pod_spec(cpu="", memory="", runtimeClassName="gvisor")
    first, second = a_workload(name="a"), a_workload(name="b")
    first["spec"]["template"]["spec"] = second["spec"]["template"]["spec"] = spec
    runtime = a_runtime_class(overhead={"podFixed": {"cpu": "100m"}})
    assert [pod_requests(pod)["cpu"] for pod in given(first, second, runtime).pods] == [100, 100]
