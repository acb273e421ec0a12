"""config/rbac is what Wainwright needs: without any one permission, it says which one it lacks."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from config.settings import environment, load_settings
from tests.acceptance.system import ROOT
from tests.cluster.system import account_kubeconfig, admin_of, apply_roles
from workers.stack import apply_crds, child_environment

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 30


def without(name, group, resource, verb):
    """Edits documents of config/rbac: all of it for an account of another name, without one permission."""

    def change(document):
        document["metadata"]["name"] = name
        if "roleRef" in document:
            document["roleRef"]["name"] = name
            document["subjects"][0]["name"] = name
        for rule in document.get("rules", ()):
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
                rest = [each for each in rule["verbs"] if each != verb]
                others = [each for each in rule["resources"] if each != resource]
                rule["verbs"] = rest or ["none"]
                if others:
                    document["rules"].append({**rule, "resources": others, "verbs": [*rest, verb]})
                    rule["resources"] = [resource]

    return change


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("karpenter.sh", "nodeclaims", "list"),
        ("", "pods", "watch"),
        ("storage.k8s.io", "csinodes", "list"),
        ("coordination.k8s.io", "leases", "update"),
    ],
)
def test_the_watcher_says_which_permission_it_lacks(real_cluster, redis_server, group, resource, verb):
    folder = Path(tempfile.mkdtemp(prefix="wainwright-roles-"))
    name = f"less-{resource}-{verb}"
    kube = admin_of(real_cluster)
    apply_crds(kube)
    apply_roles(kube, without(name, group, resource, verb))
    kubeconfig = account_kubeconfig(real_cluster, kube, folder, name)
    kube.close()
    settings = load_settings(
        {
            "WAINWRIGHT_REDIS_URL": redis_server.url,
            "WAINWRIGHT_REDIS_PREFIX": f"{name}:",
            "WAINWRIGHT_KUBE_KUBECONFIG": str(kubeconfig),
        }
    )
    command = [sys.executable, "-m", "workers.watcher", "--exit-with-parent"]
    log = folder / "log"
    with log.open("wb") as output:
        watcher = subprocess.Popen(
            command, cwd=ROOT, env=child_environment() | environment(settings), stdout=output, stderr=output
        )
    wanted = f'cannot {verb} resource "{resource}" in API group "{group}"'
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while wanted not in log.read_text():
            assert watcher.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
    finally:
        watcher.terminate()
        watcher.wait(10)
        shutil.rmtree(folder)
