"""The whole of Wainwright against a real cluster, with the roles of config/rbac and no more."""

import json
import tempfile
from pathlib import Path

from config.settings import load_settings
from tests.acceptance.system import QUICK, System
from wainwright.errors import AlreadyExists
from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from wainwright.kube.resources import Resource
from wainwright.sim.apiserver.certificates import write_private
from workers.stack import Stack, StackOptions, manifests

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
RBAC = {
    kind: Resource("rbac.authorization.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced="Cluster" not in kind)
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
} | {"ServiceAccount": SERVICE_ACCOUNTS}
TOKEN_SECONDS = 3600


def admin_of(cluster):
    return KubeClient(load_config(str(cluster.kubeconfig)), call_timeout=10)


def apply_roles(kube, change=lambda document: None):
    """config/rbac as `kubectl apply` would make it. change: is handed each document first."""
    for document in manifests("rbac"):
        change(document)
        kind, meta = RBAC[document["kind"]], document["metadata"]
        try:
            kube.create(kind, document)
        except AlreadyExists:
            kube.merge_patch(kind, meta["name"], document, meta.get("namespace", ""))


def account_kubeconfig(cluster, kube, folder, name="wainwright"):
    """Path of a kubeconfig with a token of the service account, in a file of its own as kubelets put it there."""
    order = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    order["spec"] = {"expirationSeconds": TOKEN_SECONDS}
    path = SERVICE_ACCOUNTS.path("kube-system", name, "token")
    answer = json.loads(kube.request("POST", path, body=json.dumps(order).encode()))
    write_private(folder / "token", answer["status"]["token"])
    return cluster.processes.kubeconfig_of_token_file(folder.name, folder / "token")


class RealStack(Stack):
    """A stack whose Kubernetes is a real control plane: of the simulated controllers only the kubelet runs."""

    def __init__(self, cluster, settings, options):
        super().__init__(settings, options)
        self._cluster = cluster
        self.kubeconfig.write_text(Path(cluster.kubeconfig).read_text())
        kube = admin_of(cluster)
        apply_roles(kube)
        account = account_kubeconfig(cluster, kube, self.folder)
        kube.close()
        own = self.settings.kube.model_copy(update={"kubeconfig": str(account)})
        self.settings = self.settings.model_copy(update={"kube": own})

    def _start_api_server(self):
        """Runs already."""

    def _start_controllers(self, *options):
        super()._start_controllers("--only", "kubelet", *options)


class RealSystem(System):
    """cluster: a RealCluster with processes. The rest as System."""

    def __init__(self, cluster, settings=None, **options):
        self.folder = Path(tempfile.mkdtemp(prefix="wainwright-cluster-"))
        self.cluster = cluster
        self.stack = RealStack(
            cluster, load_settings(QUICK | (settings or {})), StackOptions(folder=self.folder, **options)
        )
        self.steps = []
        self._kube = None

    def tidy(self, seconds=120):
        """A real API server takes its time over hundreds of deletions."""
        super().tidy(seconds)
