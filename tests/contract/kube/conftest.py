"""Stores over fakeredis and a real server; an embedded API server in a thread, or as a process that can be stopped."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import fakeredis
import pytest

from tests.conftest import fake_store
from wainwright.kube.client import KubeClient
from wainwright.kube.config import KubeConfig, load_config
from wainwright.kube.leases import LeaderElector
from wainwright.kube.watcher import Watcher, WatchPolicy
from wainwright.sim.apiserver.testing import ThreadedServer
from workers.stack import apply_crds


@pytest.fixture(params=["fakeredis", "server"])
def store(request):
    if request.param == "fakeredis":
        return fake_store(server=fakeredis.FakeServer())
    return request.getfixturevalue("make_real_store")()


@pytest.fixture
def api():
    """An API server in a thread, with our CRDs."""
    with ThreadedServer() as server:
        server.client = a_client(server)
        apply_crds(server.client)
        yield server
        server.client.close()


def a_client(server, **options):
    from wainwright.kube.config import Credentials

    return KubeClient(
        KubeConfig(server.base_url, credentials=Credentials({"Authorization": f"Bearer {server.token}"})), **options
    )


class ApiProcess:
    """An API server as a child process."""

    def __init__(self, folder):
        self.kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "wainwright.sim.apiserver", "--kubeconfig", str(self.kubeconfig)]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(folder / "data"), "--exit-with-parent"], stdout=log, stderr=log
            )
        eventually(self.kubeconfig.exists, 30)
        self.client = KubeClient(load_config(str(self.kubeconfig)))
        apply_crds(self.client)

    @contextmanager
    def frozen(self):
        """Connections stay open, nothing answers."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(10)
        self.client.close()


@pytest.fixture
def api_process(tmp_path):
    process = ApiProcess(tmp_path)
    yield process
    process.stop()


def eventually(is_so, seconds=10.0):
    """Waits until it is so, and answers that; fails after so long."""
    deadline = time.monotonic() + seconds
    while not (answer := is_so()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        threading.Event().wait(0.01)
    return answer


class Listener:
    """A consumer of sessions that remembers."""

    def __init__(self):
        self.epochs, self.pods, self.whys = [], [], []

    def begun(self, epoch):
        self.epochs.append(epoch.name)

    def waiting(self, _epoch, pods):
        self.pods += [pod.metadata.name for pod in pods]

    def material(self, _epoch, why):
        self.whys.append(why)


class RunningWatcher:
    """A watcher in a thread. Claims are adopted by setting the mark alone."""

    def __init__(self, client, store, name, **options):
        policy = options.pop("policy", WatchPolicy())
        self.consumer = options.pop("consumer", None) or Listener()
        self.store = store
        self.adopted = []
        self.elector = LeaderElector(client, name="watcher", identity=name, duration_seconds=options.pop("lease", 6))
        self.watcher = Watcher(
            client,
            store,
            self.elector,
            holder=name,
            adopt=self._adopt,
            consumer=self.consumer,
            policy=policy,
            **options,
        )
        self.thread = threading.Thread(target=self.watcher.run, daemon=True)

    def _adopt(self, claims, epoch, _fence):
        self.adopted.append(sorted(claim.name for claim in claims))
        self.store.read(lambda redis: redis.setnx(self.store.keys.adopted, epoch))

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.watcher.stop()
        self.thread.join(20)


@pytest.fixture
def make_watcher(make_real_store):
    """Starts watchers; all on one store's data unless another is given."""
    running = []
    first = make_real_store()

    def make(client, name="one", store=None, **options):
        own = store or make_real_store(prefix=first.keys.prefix)
        running.append(RunningWatcher(client, own, name, **options))
        return running[-1].start()

    make.store = first
    yield make
    for one in running:
        one.stop()


def view_meta(store):
    return store.read(lambda redis: redis.hgetall(store.keys.view_meta))


def is_complete(store):
    return view_meta(store).get("complete") == "1"


def view_keys(store, kind="pods"):
    return set(store.read(lambda redis: redis.hkeys(store.keys.view(kind))))


def a_pod_body(name, *, pending=True, **metadata):
    body = {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "500m"}}}]},
    }
    if not pending:
        body["spec"]["nodeName"] = "node-1"
    return body


def create_pending_pod(client, name, **metadata):
    """As the scheduler leaves it: PodScheduled is False, Unschedulable."""
    from wainwright.kube.resources import PODS

    pod = client.create(PODS, a_pod_body(name, **metadata))
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    client.merge_patch(PODS, name, {"status": {"conditions": conditions}}, "default", "status")
    return pod["metadata"]["uid"]
