"""One running stack for all tests that leave it as they found it, and the order in which the folder runs."""

import pytest

from tests.acceptance.system import System

ORDER = (
    "test_cli",
    "test_redis_keys",
    "test_bad_input",
    "test_autoscaling",
    "test_field_same_pod",
    "test_takeover",
    "test_field_redis_emptied",
    "test_field_silent_watch",
    "test_takeover_launch",
    "test_field_redelivery",
    "test_demo",
    "test_compose",
    "test_crashes",
)
"""Modules, cheap ones first; those with a stack of their own last."""


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(ORDER)}
    mine = [n for n, item in enumerate(items) if "tests/acceptance" in item.path.as_posix()]
    ordered = sorted((items[n] for n in mine), key=lambda item: place.get(item.path.stem, len(ORDER)))
    for n, item in zip(mine, ordered, strict=True):
        items[n] = item


class Shared:
    """The stack that tests share: started by the first one that asks for it."""

    def __init__(self):
        self._system = None

    def system(self):
        if self._system is None:
            self._system = System(watchers=2, launch_workers=2, beats=1)
            self._system.start()
        return self._system

    def stop(self):
        system, self._system = self._system, None
        if system is not None:
            system.stop()


@pytest.fixture(scope="session")
def shared():
    """Those with stacks of their own call `shared.stop()` first: two cores are for one stack at a time."""
    holder = Shared()
    yield holder
    holder.stop()


@pytest.fixture
def system(shared):
    """The shared stack, tidied up afterwards."""
    running = shared.system()
    yield running
    running.tidy()


@pytest.fixture
def own_system(shared):
    """Makes stacks that the test may break."""
    shared.stop()
    made = []

    def make(settings=None, **options):
        made.append(System(settings, **options))
        return made[-1].start()

    yield make
    for running in made:
        running.stop()


@pytest.fixture
def alone(shared):
    """Nothing of ours runs beside this test."""
    shared.stop()
