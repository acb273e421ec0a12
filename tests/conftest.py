"""Fixtures for every test: a real Redis-compatible server, and stores on it and on fakeredis."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import fakeredis
import hypothesis
import pytest
import redis

from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy

pytest_plugins = ["tests.control_plane.plugin"]


# In CI the same examples every time: what lands is decided by the change, not by chance. Locally they are random.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=SLOW)
hypothesis.settings.register_profile("local", deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """The embedded stack's own server as a child process, append-only, which can be killed and started anew."""

    def __init__(self):
        self.port = free_port()
        self.data = Path(tempfile.mkdtemp(prefix="wainwright-redis-"))
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        """Raises RuntimeError when it does not answer within ten seconds."""
        with (self.data / "log").open("ab") as log:
            command = [sys.executable, "-m", "workers.redis_server", "--port", str(self.port), "--data", str(self.data)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        probe = redis.Redis(port=self.port, socket_timeout=1, retry=None)
        gate = self.process
        for _ in range(200):
            try:
                if probe.ping():
                    probe.close()
                    return self
            except redis.RedisError:
                pass
            try:
                gate.wait(0.05)
                break
            except subprocess.TimeoutExpired:
                continue
        probe.close()
        self.kill()
        raise RuntimeError(f"the Redis server did not start: {(self.data / 'log').read_text()[-1000:]}")

    def kill(self, sig=signal.SIGKILL):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sig)
        if self.process is not None:
            self.process.wait(10)

    def remove(self):
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)


def started_server():
    server = RedisServer()
    try:
        return server.start()
    except (RuntimeError, OSError) as error:
        server.remove()
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Redis-compatible server: {error}")


@pytest.fixture(scope="session")
def redis_server():
    """A real server shared by all tests: take keys under a prefix of your own (`real_store` does)."""
    server = started_server()
    yield server
    server.remove()


@pytest.fixture
def own_redis_server():
    """A real server for one test, to be killed, restarted and emptied."""
    server = started_server()
    yield server
    server.remove()


prefixes = (f"t{number}:" for number in itertools.count())


def fake_store(policy=None, server=None):
    """A store on an empty fakeredis server (or on `server`, to have several clients)."""
    server = server or fakeredis.FakeServer()
    client, raw = (fakeredis.FakeRedis(server=server, decode_responses=decode) for decode in (True, False))
    return Store(client, raw, prefix="wainwright:", policy=policy or WindowPolicy())


@pytest.fixture
def make_real_store(redis_server):
    """Builds stores on the shared real server, each under a prefix of its own unless one is given."""
    stores = []

    def make(policy=None, prefix=None):
        stores.append(Store.connect(redis_server.url, prefix=prefix or next(prefixes), policy=policy))
        return stores[-1]

    yield make
    for store in stores:
        store.close()
