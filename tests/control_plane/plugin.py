"""Pytest plugin: the real clusters that tests marked `cluster` share, and at the end of a run what ran on them.

They are the one of $WAINWRIGHT_TEST_KUBECONFIG, else of our own, started when a test first asks for them. Without
binaries such tests skip with the line that says how to get them; where CI is set, that fails the run.
"""

import contextlib
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


@contextlib.contextmanager
def real_cluster_of(config, *names, **options):
    """A RealCluster with the processes of these names. options: of the ControlPlane, where we start one."""
    given = os.environ.get("WAINWRIGHT_TEST_KUBECONFIG")
    account = config.stash[ACCOUNTS]
    if given:
        account.cluster = RealCluster(given, "WAINWRIGHT_TEST_KUBECONFIG")
        yield account.cluster
        return
    binaries = found_assets(*names)
    processes = ControlPlane(binaries, names=names, **options).start()
    try:
        account.cluster = RealCluster(processes.kubeconfig, binaries.origin, processes)
        yield account.cluster
    finally:
        processes.stop()


@pytest.fixture(scope="session")
def real_api_server(request):
    """An API server alone: no controller and no scheduler writes beside the tests."""
    with real_cluster_of(request.config, *API_SERVER) as cluster:
        yield cluster


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
