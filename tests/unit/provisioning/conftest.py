import pytest

from tests.unit.provisioning.world import World


@pytest.fixture
def world(monkeypatch):
    made = World(monkeypatch)
    made.node_pool()
    return made
