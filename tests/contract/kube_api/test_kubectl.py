"""kubectl without any flag of ours: line 55 of the conformance list, as far as no controller has a part in it."""

import json
import os
import shutil
import subprocess
import time

import pytest
import yaml

from tests.contract.kube_api.cluster import a_binding, a_config_map, a_deployment, a_pod

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


@pytest.fixture
def kubectl(kubeconfig, namespace, tmp_path_factory):
    """kubectl("get", "pods", body=..., fails=False): its output. A body goes to standard input."""
    cache = tmp_path_factory.getbasetemp() / "kubectl"

    def run(*arguments, body=None, fails=False):
        command = [KUBECTL, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", f"--cache-dir={cache}"]
        text = yaml.safe_dump_all(body if isinstance(body, list) else [body]) if body is not None else None
        environment = {**os.environ, "KUBECTL_EXTERNAL_DIFF": "diff -u"}
        done = subprocess.run(
            [*command, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=30,
            env=environment,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr if fails else done.stdout

    run.command = lambda *arguments: [KUBECTL, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *arguments]
    return run


def test_apply_get_describe_delete(kubectl):
    pod = a_pod("web", labels={"app": "web"})
    assert "pod/web created" in kubectl("apply", "-f", "-", body=pod)
    assert "pod/web unchanged" in kubectl("apply", "-f", "-", body=pod)
    pod["metadata"]["labels"]["tier"] = "front"
    assert "+    tier: front" in kubectl("diff", "-f", "-", body=pod, fails=True)
    assert "pod/web configured" in kubectl("apply", "-f", "-", body=pod)
    lines = kubectl("get", "po").splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["web", "0/1", "Pending", "0"]
    assert "NOMINATED NODE" in kubectl("get", "pods", "-o", "wide")
    assert "web" in kubectl("get", "pods", "-A", "-l", "tier=front")
    assert kubectl("get", "pods", "-o", "jsonpath={.items[0].spec.restartPolicy}") == "Always"
    described = kubectl("describe", "pod", "web")
    assert "Node-Selectors:" in described
    assert "BestEffort" in described
    assert 'pod "web" deleted' in kubectl("delete", "pod", "web")
    assert 'pods "web" not found' in kubectl("get", "pod", "web", fails=True)


def test_server_side_apply(kubectl):
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", body=a_config_map("a", key="1"))
    conflict = kubectl(
        "apply", "--server-side", "--field-manager=other", "-f", "-", body=a_config_map("a", key="2"), fails=True
    )
    assert 'conflict with "kubectl"' in conflict
    forced = ("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
    assert "serverside-applied" in kubectl(*forced, body=a_config_map("a", key="2"))


def test_create_and_replace(kubectl):
    assert "created" in kubectl("create", "-f", "-", body=a_config_map("a", key="1"))
    assert "replaced" in kubectl("replace", "-f", "-", body=a_config_map("a", key="2"))
    assert "created" in kubectl("create", "configmap", "b", "--from-literal=x=y")
    assert "created" in kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    assert "created" in kubectl("create", "job", "once", "--image=nginx")
    assert "created" in kubectl("run", "one", "--image=nginx")
    unknown = a_pod("web", colour="red")
    assert 'unknown field "spec.colour"' in kubectl("create", "-f", "-", body=unknown, fails=True)


def test_label_annotate_patch_scale(kubectl):
    kubectl("apply", "-f", "-", body=a_deployment("web", replicas=0))
    kubectl("label", "deployment", "web", "a=b")
    kubectl("annotate", "deployment", "web", "example.com/x=y")
    kubectl("patch", "deployment", "web", "-p", '{"spec":{"minReadySeconds":3}}')
    kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"spec":{"paused":true}}')
    kubectl("patch", "deployment", "web", "--type=json", "-p", '[{"op":"remove","path":"/spec/paused"}]')
    status = '{"status":{"observedGeneration":9}}'
    kubectl("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", status)
    assert "scaled" in kubectl("scale", "deployment", "web", "--replicas=2")
    found = json.loads(kubectl("get", "deploy", "web", "-o", "json"))
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["spec"]["minReadySeconds"] == 3
    assert found["spec"]["replicas"] == 2


def test_watch_prints_changes_as_they_come(kubectl, api, pods):
    api.post(pods, a_pod("web"))
    with subprocess.Popen(kubectl.command("get", "pods", "-w"), stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout.readline().split()[0] == "NAME"
        assert watching.stdout.readline().split()[2] == "Pending"
        api.patch(f"{pods}/web/status", {"status": {"phase": "Running"}})
        assert watching.stdout.readline().split()[2] == "Running"
        watching.terminate()


def test_wait(kubectl, api, pods):
    api.post(pods, a_pod("web"))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    api.patch(f"{pods}/web/status", ready)
    assert "condition met" in kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=5s")
    assert "condition met" in kubectl("wait", "pod/web", "--for=jsonpath={.status.phase}=Running", "--timeout=5s")
    waiting = subprocess.Popen(kubectl.command("wait", "pod/web", "--for=delete", "--timeout=10s"))
    api.delete(f"{pods}/web")
    assert waiting.wait(10) == 0


def test_rollout_status(kubectl, api, deployments):
    api.post(deployments, a_deployment("web", replicas=0))
    api.patch(f"{deployments}/web/status", {"status": {"observedGeneration": 1}})
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=5s")


def test_cordon_taint_drain(kubectl, api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    api.post(f"{pods}/web/binding", a_binding("web", node))
    api.patch(f"{pods}/web/status", {"status": {"phase": "Succeeded"}})
    assert "cordoned" in kubectl("cordon", node)
    assert "SchedulingDisabled" in kubectl("get", "nodes", node)
    assert "tainted" in kubectl("taint", "nodes", node, "example.com/a=b:NoSchedule")
    assert "drained" in kubectl("drain", node, "--force", "--timeout=10s")
    assert api.get(f"{pods}/web").status == 404
    assert "uncordoned" in kubectl("uncordon", node)
    assert "Taints:" in kubectl("describe", "node", node)


def test_questions(kubectl):
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    assert "Deployment" in kubectl("api-resources")
    assert "apps/v1" in kubectl("api-versions")
    assert "gitVersion" in kubectl("get", "--raw", "/version")
    assert kubectl("get", "all").strip() == "" or "service" in kubectl("get", "all")


def test_logs_and_top_end_with_a_message(kubectl, api, pods, node):
    api.post(pods, a_pod("web", schedulerName="nobody"))
    api.post(f"{pods}/web/binding", a_binding("web", node))
    begun = time.monotonic()
    assert kubectl("logs", "web", fails=True)
    assert "Metrics API not available" in kubectl("top", "pods", fails=True)
    assert kubectl("exec", "web", "--", "true", fails=True)
    assert time.monotonic() - begun < 15


def test_custom_resources(kubectl, api, widgets, widget):
    assert "created" in kubectl("apply", "-f", "-", body=widget("a", replicas=1))
    group = widgets.split("/")[2]
    assert "a" in kubectl("get", f"widgets.{group}")
    assert "configured" in kubectl("apply", "-f", "-", body=widget("a", replicas=2))
    assert "scaled" in kubectl("scale", f"widgets.{group}/a", "--replicas=4")
    assert "Kind:" in kubectl("describe", f"widgets.{group}", "a")
    assert "deleted" in kubectl("delete", f"widgets.{group}", "a")


def test_events(kubectl, api, namespace, pods):
    uid = api.post(pods, a_pod("web")).body["metadata"]["uid"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": namespace, "uid": uid}
    stamp = "2026-01-01T00:00:00Z"
    event = {"metadata": {"name": "web.1"}, "involvedObject": about, "reason": "Tested", "message": "hello there"}
    event |= {"type": "Normal", "firstTimestamp": stamp, "lastTimestamp": stamp}
    api.post(f"/api/v1/namespaces/{namespace}/events", event)
    assert "hello there" in kubectl("get", "events")
    assert "hello there" in kubectl("events")
    assert "hello there" in kubectl("describe", "pod", "web")
