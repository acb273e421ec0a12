"""Systems on the shared real cluster: one at a time, everything of a test cleared away after it."""

import pytest

from tests.cluster.system import RealSystem


@pytest.fixture(scope="session")
def systems(controlled_cluster):
    """systems(binding): the running system that binds so; another one that runs is stopped first."""
    if controlled_cluster.processes is None:
        pytest.skip("a cluster that was given to us is not for provisioning nodes on")
    running = {}

    def system(binding):
        if binding not in running:
            stop()
            settings = {"WAINWRIGHT_LAUNCH_BINDING": binding, "WAINWRIGHT_STACK_CATALOG": ""}
            made = RealSystem(controlled_cluster, settings, launch_workers=2)
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
