"""Simulated clouds as child processes, and requests to them."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
import urllib3

from wainwright.clock import SystemClock
from wainwright.cloud.port import LaunchRequest
from wainwright.cloud.simulated.provider import SimulatedProvider, SimulatedTimeouts
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.scheduling.snapshot import Option

START_SECONDS = 15.0


class CloudProcess:
    """A service that can be killed and started again on the same state file and port."""

    def __init__(self, *arguments):
        self.folder = Path(tempfile.mkdtemp(prefix="wainwright-cloud-"))
        self.arguments = arguments
        self.port = 0
        self.url = ""
        self.process = None
        self.http = urllib3.PoolManager(retries=False, timeout=10)

    @property
    def state_file(self):
        return self.folder / "state"

    def start(self):
        url_file = self.folder / "url"
        url_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "wainwright.cloud.simulated", "--port", str(self.port)),
                *("--state-file", str(self.state_file), "--url-file", str(url_file), "--exit-with-parent"),
                *self.arguments,
            ],
            stderr=subprocess.DEVNULL,
        )
        for _ in range(int(START_SECONDS / 0.05)):
            if url_file.exists():
                break
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError(f"the simulated cloud ended with {self.process.returncode}")
        self.url = url_file.read_text().strip()
        self.port = int(self.url.rpartition(":")[2])
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.http.clear()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(5)
        shutil.rmtree(self.folder)

    def ask(self, method, path, body=None, headers=None):
        """Status, body and headers of an answer."""
        content = None if body is None else json.dumps(body)
        response = self.http.request(method, self.url + path, body=content, headers=headers)
        return response.status, json.loads(response.data) if response.data else None, response.headers

    def faults(self, **faults):
        status, answer, _ = self.ask("PUT", "/v1/faults", faults)
        assert status == 200, answer

    def provider(self, **arguments):
        return SimulatedProvider(lambda: self.url, **arguments)

    def record(self):
        return self.ask("GET", "/v1/launches")[1]


@pytest.fixture(scope="session")
def shared_cloud():
    cloud = CloudProcess("--launch-delay", "0", "--boot-delay", "0.05", "--terminate-delay", "0")
    try:
        yield cloud.start()
    finally:
        cloud.close()


@pytest.fixture
def cloud(shared_cloud):
    """The shared service, with nothing going wrong before and after."""
    shared_cloud.faults()
    yield shared_cloud
    shared_cloud.faults()


@pytest.fixture
def own_cloud():
    """A service of the test's own, that it may kill: `own_cloud("--launch-delay", "0")`."""
    clouds = []

    def start(*arguments):
        clouds.append(CloudProcess(*arguments))
        return clouds[-1].start()

    yield start
    for cloud in clouds:
        cloud.close()


@pytest.fixture
def provider(cloud):
    provider = cloud.provider(timeouts=SimulatedTimeouts(create=5, call=5))
    yield provider
    provider.close()


_numbers = itertools.count()
SPOT = Option(instance_type="general-4-amd64", zone="simulated-1a", capacity_type="spot", price=0.0576)
ON_DEMAND = Option(instance_type="general-4-amd64", zone="simulated-1b", capacity_type="on-demand", price=0.192)


def a_request(token=None, *, age=0.0, options=(SPOT,), cluster="prod", **fields):
    """A request with a token of its own, dated `age` seconds ago."""
    token = token or f"{uuid.uuid4()}/1"
    return LaunchRequest(
        token=token,
        issued_at=SystemClock().now() - timedelta(seconds=age),
        cluster=cluster,
        node_claim=f"claim-{token}",
        node_pool="default",
        node_name=f"node-{next(_numbers)}",
        options=options,
        **fields,
    )


CATALOG = generated_catalog()
