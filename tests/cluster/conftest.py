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


@pytest.fixture(scope="package")
def systems(real_cluster):
    """systems(binding): the running system that binds so; another one that runs is stopped first."""
    if real_cluster.processes is None:
        pytest.skip("a cluster that was given to us is not for provisioning nodes on")
    running = {}

    def system(binding):
        if binding not in running:
            stop()
            settings = {"WAINWRIGHT_LAUNCH_BINDING": binding, "WAINWRIGHT_STACK_CATALOG": ""}
            made = RealSystem(real_cluster, settings, launch_workers=2)
            running[binding] = made.start()
        return running[binding]

    def stop():
        while running:
            running.popitem()[1].stop()

    yield system
    stop()


@pytest.fixture
def system(systems, request):
    """The system with the binding that the test names in its parameter `binding`; tidied up afterwards."""
    binding = request.getfixturevalue("binding") if "binding" in request.fixturenames else "direct"
    running = systems(binding)
    yield running
    running.tidy()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Tests of one binding stand together, so that few systems are started."""
    mine = [n for n, item in enumerate(items) if "tests/cluster" in item.path.as_posix()]
    ordered = sorted((items[n] for n in mine), key=lambda item: "[scheduler]" in item.name)
    for n, item in zip(mine, ordered, strict=True):
        items[n] = item
