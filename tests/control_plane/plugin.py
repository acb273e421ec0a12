"""Pytest plugin: the real cluster that tests marked `cluster` share, and at the end of a run what ran on it.

It is the one of $WAINWRIGHT_TEST_KUBECONFIG, else a control plane of our own, started when a test first asks for it.
Without binaries such tests skip with the line that says how to get them; where CI is set, that fails the run.
"""

import os
import ssl
from collections import Counter
from pathlib import Path

import pytest
import urllib3

from tests.control_plane import assets
from tests.control_plane.processes import ControlPlane
from wainwright.clock import SystemClock
from wainwright.kube.config import from_file

PRODUCT = "system:serviceaccount:kube-system:wainwright"
"""Who the product is where it runs with the roles of config/rbac."""

API_SERVER = ("etcd", "kube-apiserver")
RETRY_SECONDS = 2
"""kube-scheduler's longest back-off in the shared cluster: tests need not wait for its ten seconds."""


class RealCluster:
    """processes: the ControlPlane, None for a cluster that was given to us."""

    def __init__(self, kubeconfig, origin, processes=None):
        self.kubeconfig = Path(kubeconfig)
        self.origin = origin
        self.processes = processes
        self.version = version_of(self.kubeconfig)


def version_of(kubeconfig):
    """gitVersion of the server behind a kubeconfig."""
    config = from_file(str(kubeconfig), clock=SystemClock())
    context = config.ssl_context() or ssl.create_default_context()
    with urllib3.PoolManager(ssl_context=context) as pool:
        answer = pool.request("GET", f"{config.server}/version", headers=config.headers(), timeout=10)
    return answer.json()["gitVersion"]


def found_assets(*names):
    """Binaries with these names, or the test skips."""
    try:
        return assets.find(*names)
    except LookupError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def real_cluster(request):
    """Shared by all tests marked `cluster`: take names of your own, and clear away what you made."""
    given = os.environ.get("WAINWRIGHT_TEST_KUBECONFIG")
    if given:
        cluster = RealCluster(given, "WAINWRIGHT_TEST_KUBECONFIG")
        request.config.stash[ACCOUNTS].cluster = cluster
        yield cluster
        return
    binaries = found_assets(*API_SERVER)
    processes = ControlPlane(binaries, backoff_seconds=RETRY_SECONDS, audited=[PRODUCT]).start()
    cluster = RealCluster(processes.kubeconfig, binaries.origin, processes)
    request.config.stash[ACCOUNTS].cluster = cluster
    yield cluster
    processes.stop()


@pytest.fixture(scope="session")
def controlled_cluster(real_cluster):
    """The same, with kube-scheduler and kube-controller-manager at work."""
    if real_cluster.processes is not None:
        found_assets(*assets.NAMES)
    return real_cluster


@pytest.fixture
def own_processes(real_cluster):
    """The processes of the shared cluster, for tests that stop some of them (and start them again)."""
    if real_cluster.processes is None:
        pytest.skip("the processes of a cluster that was given to us are left alone")
    return real_cluster.processes


class Account:
    """What became of tests marked `cluster`; says so at the end, and fails a run in CI where one was skipped."""

    def __init__(self):
        self.cluster = None
        self.ran = Counter()
        self.skipped = Counter()

    def pytest_runtest_logreport(self, report):
        if "cluster" not in report.keywords:
            return
        if report.outcome == "skipped":
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[reason.removeprefix("Skipped: ")] += 1
        elif report.when == "call":
            self.ran[str(Path(report.nodeid.partition("::")[0]).parent)] += 1

    def pytest_sessionfinish(self, session):
        if os.environ.get("CI") and self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self):
        """One for what ran, one for each reason to skip."""
        if self.ran:
            where = f"Kubernetes {self.cluster.version} ({self.cluster.origin})" if self.cluster else "one of their own"
            parts = ", ".join(f"{part} {count}" for part, count in sorted(self.ran.items()))
            yield f"real control plane: {self.ran.total()} tests ran on {where}: {parts}"
        for reason, count in sorted(self.skipped.items()):
            yield f"real control plane: {count} tests skipped: {reason}"


ACCOUNTS = pytest.StashKey[Account]()


def pytest_configure(config):
    account = config.stash[ACCOUNTS] = Account()
    config.pluginmanager.register(account, "real-control-plane")
