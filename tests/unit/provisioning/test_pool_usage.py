import pytest

from tests.conftest import fake_store
from tests.unit.kube.support import a_node
from tests.unit.provisioning.test_controller import PatchingServer, a_pool
from wainwright.api.nodepools import NodePoolStatus
from wainwright.errors import NotFound, ViewNotReady
from wainwright.kube.view import KINDS_BY_NAME, Change, ViewWriter
from wainwright.provisioning.pool_usage import PoolUsage, count_usage, usage_patch, write_usage

IN_GENERAL = {"karpenter.sh/nodepool": "general"}


def test_capacity_is_added_up_by_node_pool():
    nodes = [
        a_node("a", cpu="1500m", labels=IN_GENERAL),
        a_node("b", cpu="2", labels=IN_GENERAL),
        a_node("own", cpu="64"),
        a_node("odd", cpu="many", labels=IN_GENERAL),
    ]
    assert count_usage(nodes) == {"general": PoolUsage(nodes=3, resources={"cpu": 3500})}


def test_status_that_says_so_already_is_not_written():
    status = NodePoolStatus(nodes=2, resources={"cpu": "3500m", "nodes": "2"})
    assert usage_patch(a_pool(status=status), PoolUsage(nodes=2, resources={"cpu": 3500})) is None


def test_resource_that_is_no_longer_there_is_removed():
    status = NodePoolStatus(nodes=1, resources={"cpu": "4", "nvidia.com/gpu": "1", "nodes": "1"})
    patch = usage_patch(a_pool(status=status), PoolUsage())
    assert patch == {
        "metadata": {"uid": "uid-general"},
        "status": {"nodes": 0, "resources": {"cpu": None, "nvidia.com/gpu": None, "nodes": "0"}},
    }


@pytest.fixture
def store():
    store = fake_store()
    writer = ViewWriter(store, epoch="e1", fence=1, holder="me")
    writer.begin()
    writer.apply([Change.put("nodes", a_node("a", labels=IN_GENERAL)), Change.put("nodepools", a_pool())])
    listed = {"nodes": ["a"], "nodepools": ["general"]}
    writer.apply([Change.listed(kind, "9", listed.get(kind, []), []) for kind in KINDS_BY_NAME])
    store.redis.set(store.keys.adopted, "e1")
    writer.complete()
    return store


def test_usage_is_written_from_the_view(store):
    server = PatchingServer()
    assert write_usage(server, store) == 1
    ((name, body),) = server.patches
    assert name == "general"
    assert body["status"] == {"nodes": 1, "resources": {"cpu": "4", "nodes": "1"}}


def test_node_pool_that_is_gone_by_now_is_skipped(store):
    server = PatchingServer()
    server.error = NotFound("general", status=404)
    assert write_usage(server, store) == 0


def test_incomplete_view_is_not_counted():
    with pytest.raises(ViewNotReady):
        write_usage(PatchingServer(), fake_store())
