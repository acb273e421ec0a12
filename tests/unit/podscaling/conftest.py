import pytest

from tests.unit.podscaling.world import World


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)
