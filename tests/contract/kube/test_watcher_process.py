"""`python -m workers.watcher` as it is started: its exit, its refusal, what it leaves behind."""

import os
import signal
import subprocess
import sys

import pytest

from tests.contract.kube.conftest import eventually, is_complete, view_meta
from wainwright.batching.store import Store
from wainwright.clock import SystemClock
from wainwright.kube.leases import Lease
from wainwright.kube.resources import LEASES


def karpenter_lease(age_seconds):
    renewed = SystemClock().now().timestamp() - age_seconds
    at = SystemClock().now().fromtimestamp(renewed, tz=SystemClock().now().tzinfo)
    return {
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "karpenter-6f9c_1",
            "leaseDurationSeconds": 15,
            "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


@pytest.fixture
def start(api, own_redis_server, tmp_path):
    """Starts watcher processes; `wait` is their exit."""
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    running = []

    def run(**settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WAINWRIGHT_")}
        environment |= {
            "WAINWRIGHT_REDIS_URL": own_redis_server.url,
            "WAINWRIGHT_KUBE_KUBECONFIG": str(kubeconfig),
            "WAINWRIGHT_CLOUD_URL": "http://127.0.0.1:1",
            **settings,
        }
        path = tmp_path / f"log-{len(running)}"
        log = path.open("w")
        command = [sys.executable, "-m", "workers.watcher", "--exit-with-parent"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        running.append((process, log))
        process.words = path.read_text
        return process

    yield run
    for process, log in running:
        process.kill()
        process.wait(10)
        log.close()


@pytest.fixture
def store(own_redis_server):
    store = Store.connect(own_redis_server.url)
    yield store
    store.close()


def test_watcher_refuses_to_start_beside_karpenter_and_says_how_to_decide(api, start):
    api.client.create(LEASES, karpenter_lease(age_seconds=3))
    watcher = start()
    assert watcher.wait(30) == 3
    words = watcher.words()
    assert "Karpenter is at work in this cluster" in words
    assert "karpenter-6f9c_1" in words
    assert "WAINWRIGHT_KUBE_KARPENTER=ignore" in words


def test_watcher_starts_beside_karpenter_when_told_so(api, start, store):
    api.client.create(LEASES, karpenter_lease(age_seconds=3))
    start(WAINWRIGHT_KUBE_KARPENTER="ignore")
    eventually(lambda: is_complete(store), 30)


def test_watcher_that_is_told_to_end_gives_its_lease_up(api, start, store):
    """A Lease that Karpenter left long ago does not matter."""
    api.client.create(LEASES, karpenter_lease(age_seconds=3600))
    watcher = start()
    eventually(lambda: is_complete(store), 30)
    holder = view_meta(store)["holder"]
    eventually(lambda: store.redis.exists(store.keys.worker(holder)))
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(10) == 0
    lease = api.client.get(LEASES, "wainwright-watcher", "kube-system", as_type=Lease)
    assert not lease.spec.holder_identity


def test_second_watcher_takes_over_from_a_killed_one(api, start, store):
    first = start(WAINWRIGHT_WATCHER_LEASE_SECONDS="2")
    eventually(lambda: is_complete(store), 30)
    second = start(WAINWRIGHT_WATCHER_LEASE_SECONDS="2")
    eventually(lambda: len(store.redis.keys(store.keys.worker("*"))) == 2, 30)
    first.kill()
    eventually(lambda: view_meta(store)["holder"].endswith(f":{second.pid}") and is_complete(store), 10)
