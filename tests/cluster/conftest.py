"""Systems on the shared real cluster: one at a time, everything of a test cleared away after it."""

import pytest

from tests.cluster.system import RealSystem
from tests.control_plane.assets import NAMES
from tests.control_plane.plugin import PRODUCT, real_cluster_of

RETRY_SECONDS = 2
"""kube-scheduler's longest back-off here: tests need not wait for its ten seconds."""


@pytest.fixture(scope="package")
def real_cluster(request):
    """With scheduler and controllers. Shared by the folder: take names of your own, and clear away what you made."""
    with real_cluster_of(request.config, *NAMES, backoff_seconds=RETRY_SECONDS, audited=[PRODUCT]) as cluster:
        yield cluster


SETTINGS = {
    "WAINWRIGHT_STACK_CATALOG": "",
    "WAINWRIGHT_BATCHING_IDLE_SECONDS": "1",
    "WAINWRIGHT_BATCHING_MAX_SECONDS": "10",
    # What kube-scheduler could not do as planned is planned anew after these.
    "WAINWRIGHT_LAUNCH_NOMINATION_SECONDS": "5",
    "WAINWRIGHT_WATCHER_RESYNC_SECONDS": "5",
}


class Systems:
    """The system that runs, one at a time. What a test made is cleared away before the next one needs a system."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._binding, self._running = "", None

    def get(self, binding):
        if self._running is not None:
            self._running.tidy()
        if binding != self._binding:
            self.stop()
            settings = {**SETTINGS, "WAINWRIGHT_LAUNCH_BINDING": binding}
            self._binding, self._running = binding, RealSystem(self._cluster, settings, launch_workers=2)
            self._running.start()
        return self._running

    def stop(self):
        running, self._running, self._binding = self._running, None, ""
        if running is not None:
            running.stop()


@pytest.fixture(scope="package")
def systems(real_cluster):
    if real_cluster.processes is None:
        pytest.skip("a cluster that was given to us is not for provisioning nodes on")
    holder = Systems(real_cluster)
    yield holder
    holder.stop()


@pytest.fixture
def system(systems, request):
    """A clean system with the binding that the test names in its parameter `binding`."""
    return systems.get(request.getfixturevalue("binding") if "binding" in request.fixturenames else "direct")


ORDER = ("test_roles", "test_agreement", "test_product")
"""Modules; those without a running system first: its watcher would hold the Lease that others wait for."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """In each module, tests of one binding stand together: starting a system takes longer than most tests."""
    mine = [n for n, item in enumerate(items) if "tests/cluster" in item.path.as_posix()]
    place = {name: number for number, name in enumerate(ORDER)}
    ordered = sorted(
        (items[n] for n in mine), key=lambda item: (place.get(item.path.stem, -1), "[scheduler]" in item.name)
    )
    for n, item in zip(mine, ordered, strict=True):
        items[n] = item
