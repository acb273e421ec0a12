"""The embedded cluster as a process: start, credentials, restart with state, end. Always the embedded one."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract.kube_api.cluster import Api, EmbeddedCluster, a_config_map, a_definition, is_gone


@pytest.fixture
def cluster():
    cluster = EmbeddedCluster()
    yield cluster
    cluster.stop()


def test_kubeconfig_is_its_owners_alone_and_there_when_the_server_serves(cluster):
    cluster.start()
    assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE((cluster.directory / "data" / "credentials.json").stat().st_mode) == 0o600
    api = Api(cluster.kubeconfig)
    assert api.server.startswith("https://127.0.0.1:")
    assert len(api.token) >= 32
    assert api.get("/readyz").body == b"ok"


def test_ends_within_a_second_even_with_watches_open(cluster):
    cluster.start()
    api = Api(cluster.kubeconfig)
    watches = [api.watch("/api/v1/pods", seconds=60) for _ in range(3)]
    process = cluster.process
    assert cluster.stop() < 1.5
    assert process.returncode == 0
    for watch in watches:
        watch.close()


def test_two_clusters_have_nothing_in_common(cluster):
    other = EmbeddedCluster()
    try:
        first, second = Api(cluster.start().kubeconfig), Api(other.start().kubeconfig)
        assert first.token != second.token
        assert Api(other.kubeconfig, token=first.token).get("/api/v1/pods").status == 401
    finally:
        other.stop()


def test_state_survives_with_a_snapshot():
    cluster = EmbeddedCluster()
    cluster.options = ("--snapshot", str(cluster.directory / "state.jsonl"))
    try:
        cluster.start()
        api = Api(cluster.kubeconfig)
        group = "kept.example.com"
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition(group))
        widgets = f"/apis/{group}/v1/namespaces/default/widgets"
        body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"deep": {"x": 1}}}
        created = api.post(widgets, body).body
        api.post("/api/v1/namespaces/default/configmaps", a_config_map("a", key="1"))
        version, token = api.get("/api/v1/pods").body["metadata"]["resourceVersion"], api.token
        cluster.stop()
        cluster.start()
        api = Api(cluster.kubeconfig)
        assert api.token == token
        assert api.get(f"{widgets}/a").body == created
        assert api.get("/api/v1/namespaces/default/configmaps/a").body["data"] == {"key": "1"}
        assert api.get("/api/v1/pods").body["metadata"]["resourceVersion"] == version
        assert is_gone(api.get("/api/v1/pods", watch="1", resourceVersion=str(int(version) - 1)))
    finally:
        cluster.stop()


def test_without_a_snapshot_old_watchers_are_told_that_the_state_is_another(cluster):
    cluster.start()
    before = Api(cluster.kubeconfig).get("/api/v1/pods").body["metadata"]["resourceVersion"]
    cluster.stop()
    time.sleep(1.1)  # the first version of a fresh server grows with each second
    cluster.start()
    assert is_gone(Api(cluster.kubeconfig).get("/api/v1/pods", watch="1", resourceVersion=before))


def test_ends_with_its_parent(tmp_path):
    script = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "wainwright.sim.apiserver", "--kubeconfig", {str(tmp_path / "k")!r},
    "--data-dir", {str(tmp_path)!r}, "--exit-with-parent"], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 5
    while is_running(child):
        assert time.monotonic() < deadline, "the server outlives its parent"
        time.sleep(0.05)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_listens_on_loopback_only(cluster):
    cluster.start()
    port = int(Api(cluster.kubeconfig).server.rpartition(":")[2])
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        pytest.skip("this machine's name is a loopback address")
    with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
        pass
