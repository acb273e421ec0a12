"""A control plane on loopback, or an API server alone, with certificates and tokens of its own. RBAC is on."""

import contextlib
import json
import secrets
import shutil
import ssl
import tempfile
import time
from pathlib import Path

import urllib3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.control_plane.assets import NAMES
from wainwright.clock import SystemClock
from wainwright.sim.apiserver.certificates import issue, kubeconfig, write_private
from workers.children import Child
from workers.stack import child_environment, free_port

READY_SECONDS = 90.0
"""Three or four on an idle machine; this long on one whose cores are shared by many."""
STOP_SECONDS = 20.0
SHARED_MEMORY = Path("/dev/shm")
SERVICE_RANGE = "10.96.0.0/16"
GRACE_FOREVER = "24h"


class ControlPlaneError(Exception):
    """A process of the control plane did not get ready; the message has the end of its log."""


class ControlPlane:
    """One control plane in a folder of its own. Made by `start`, ended by `stop`; single processes by name.

    names: which processes it consists of; all, or etcd and kube-apiserver.
    heartbeats: whether nodes need them (a kubelet, simulated or not, renews leases); without, nodes stay as they are.
    flow_control: API priority and fairness and the limits on requests in flight; off for load tests.
    backoff_seconds: longest time after which kube-scheduler looks at an unschedulable pod again (10 by default there).
    audited: names of users whose requests are on record (`requests_of`).
    """

    def __init__(self, assets, *, names=NAMES, heartbeats=False, flow_control=True, backoff_seconds=10, audited=()):
        self.assets, self._names = assets, names
        self.folder = Path(tempfile.mkdtemp(prefix="wainwright-control-plane-"))
        shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.data = Path(tempfile.mkdtemp(prefix="wainwright-etcd-", dir=shared))
        self.kubeconfig = self.folder / "kubeconfig"
        self.token = secrets.token_hex(16)
        self.ports = {name: free_port() for name in ("etcd", "etcd-peers", "kube-apiserver")}
        self.server = f"https://127.0.0.1:{self.ports['kube-apiserver']}"
        self._heartbeats, self._flow_control = heartbeats, flow_control
        self._backoff_seconds, self._audited = backoff_seconds, list(audited)
        self._children = {}
        self._write_credentials()

    # Credentials ------------------------------------------------------------------------------------------------------

    def _write_credentials(self):
        certificates = issue([], SystemClock().now())
        self.authority = certificates.authority
        key = rsa.generate_private_key(65537, 2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        for name, content in {
            "ca.pem": certificates.authority.decode(),
            "serving.pem": certificates.serving.decode(),
            "serving.key": certificates.key.decode(),
            "accounts.key": private.decode(),
            "accounts.pub": public.decode(),
            "tokens.csv": f'{self.token},admin,admin-uid,"system:masters"\n',
            "kubeconfig": kubeconfig(self.server, certificates.authority, self.token),
            "scheduler.json": json.dumps(self._scheduler_configuration()),
            "audit.json": json.dumps(self._audit_policy()),
        }.items():
            write_private(self.folder / name, content)

    def _scheduler_configuration(self):
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 500, "burst": 1000},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": self._backoff_seconds,
        }

    def _audit_policy(self):
        rules = [{"level": "Metadata", "users": self._audited}] if self._audited else []
        return {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [*rules, {"level": "None"}],
        }

    def kubeconfig_of(self, name, token):
        """Path of a kubeconfig for another user with this bearer token."""
        path = self.folder / f"{name}.kubeconfig"
        write_private(path, kubeconfig(self.server, self.authority, token))
        return path

    def kubeconfig_of_token_file(self, name, path):
        """The same, for a token that is read from a file, again and again, as kubelets renew them there."""
        text = kubeconfig(self.server, self.authority, "-").replace("token: -", f"tokenFile: {path}")
        target = self.folder / f"{name}.kubeconfig"
        write_private(target, text)
        return target

    # Processes --------------------------------------------------------------------------------------------------------

    def _command(self, name):
        where, folder = self.ports, self.folder
        peers, clients = f"http://127.0.0.1:{where['etcd-peers']}", f"http://127.0.0.1:{where['etcd']}"
        client = [f"--{purpose}-kubeconfig={self.kubeconfig}" for purpose in ("authentication", "authorization")]
        client += ["--bind-address=127.0.0.1", "--secure-port=0"]
        flags = {
            "etcd": [
                f"--data-dir={self.data}/etcd",
                "--unsafe-no-fsync",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--quota-backend-bytes=4294967296",
                "--log-level=warn",
            ],
            "kube-apiserver": [
                f"--etcd-servers={clients}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={where['kube-apiserver']}",
                f"--tls-cert-file={folder}/serving.pem",
                f"--tls-private-key-file={folder}/serving.key",
                f"--client-ca-file={folder}/ca.pem",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder}/accounts.pub",
                f"--service-account-signing-key-file={folder}/accounts.key",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                f"--token-auth-file={folder}/tokens.csv",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none",
                f"--audit-policy-file={folder}/audit.json",
                f"--audit-log-path={folder}/audit.log",
            ],
            "kube-scheduler": [*client, f"--config={folder}/scheduler.json"],
            "kube-controller-manager": [
                *client,
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                f"--root-ca-file={folder}/ca.pem",
                f"--service-account-private-key-file={folder}/accounts.key",
                "--use-service-account-credentials=false",
                "--kube-api-qps=300",
                "--kube-api-burst=600",
            ],
        }[name]
        if name == "kube-apiserver" and not self._flow_control:
            flags += ["--enable-priority-and-fairness=false"]
            flags += ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"]
        if name == "kube-controller-manager" and not self._heartbeats:
            flags += [f"--node-monitor-grace-period={GRACE_FOREVER}"]
        return [str(self.assets[name]), *flags]

    def start(self):
        """Ready to be used when this returns. Raises ControlPlaneError, with nothing left running."""
        try:
            self.start_process("etcd")
            self.start_process("kube-apiserver")
            self._until("kube-apiserver", self.is_ready)
            for name in ("kube-controller-manager", "kube-scheduler"):
                if name in self._names:
                    self.start_process(name)
            self._until("kube-apiserver", self._has_default_account)
        except BaseException:
            self.stop()
            raise
        return self

    def start_process(self, name):
        child = Child(name, self._command(name), child_environment(), self.folder / f"{name}.log")
        child.start()
        self._children[name] = child

    def stop_process(self, name):
        child = self._children.pop(name)
        child.terminate()
        child.wait(time.monotonic() + STOP_SECONDS)

    def restart_process(self, name):
        """Seconds until it (or, for etcd, the API server above it) was ready again."""
        begun = time.monotonic()
        self.stop_process(name)
        self.start_process(name)
        self._until(name, self.is_ready)
        return time.monotonic() - begun

    def runs(self, name):
        return name in self._children

    def stop(self):
        """Ends what runs, the last one started first, each before the next one; takes the folders away."""
        for name in reversed(list(self._children)):
            self.stop_process(name)
        for folder in (self.folder, self.data):
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def requests_of(self, user):
        """Audit events of the user's requests so far, oldest first."""
        path = self.folder / "audit.log"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["user"]["username"] == user]

    # Readiness --------------------------------------------------------------------------------------------------------

    def is_ready(self):
        return self._status("/readyz") == 200

    def _has_default_account(self):
        """The controller manager is at work: namespace default has its service account. True where none runs."""
        if not self.runs("kube-controller-manager"):
            return True
        return self._status("/api/v1/namespaces/default/serviceaccounts/default") == 200

    def _status(self, path):
        context = ssl.create_default_context(cadata=self.authority.decode())
        headers = {"Authorization": f"Bearer {self.token}"}
        with (
            urllib3.PoolManager(ssl_context=context, retries=False) as pool,
            contextlib.suppress(urllib3.exceptions.HTTPError),
        ):
            return pool.request("GET", f"{self.server}{path}", headers=headers, timeout=2).status
        return 0

    def _until(self, name, is_so):
        deadline = time.monotonic() + READY_SECONDS
        while not is_so():
            died = [child for child in self._children.values() if not child.pid]
            if died or time.monotonic() > deadline:
                words = "\n".join(f"--- {c.name}\n{c.last_words()}" for c in died or [self._children[name]])
                raise ControlPlaneError(f"{name} is not ready\n{words}")
            time.sleep(0.05)
