"""What every CloudProvider keeps to; run over the one in memory and the one that speaks to the service."""

import threading
import uuid

import msgspec
import pytest

from tests.contract.cloud.conftest import CATALOG, ON_DEMAND, SPOT, a_request
from wainwright.api.meta import ObjectMeta
from wainwright.api.nodepools import NodePool
from wainwright.clock import SystemClock
from wainwright.cloud.errors import (
    InstanceNotFound,
    InstanceTerminated,
    InsufficientCapacity,
    RequestExpired,
    RequestRefused,
    TokenMismatch,
)
from wainwright.cloud.port import CloudProvider, InstanceState
from wainwright.cloud.simulated.memory import MemoryProvider
from wainwright.scheduling.instance_types import OfferingKey

POOL = NodePool(metadata=ObjectMeta(name="default"))


@pytest.fixture(params=["memory", "service"])
def any_provider(request) -> CloudProvider:
    if request.param == "memory":
        return MemoryProvider(CATALOG, SystemClock(), boot_seconds=0.05)
    return request.getfixturevalue("provider")


@pytest.fixture
def sell_out(any_provider, request):
    """Leave no room in these offerings."""

    def sell_out(*patterns):
        if isinstance(any_provider, MemoryProvider):
            any_provider.sold_out = tuple(OfferingKey(*pattern) for pattern in patterns)
        else:
            names = ("capacity_type", "instance_type", "zone")
            cloud = request.getfixturevalue("cloud")
            cloud.faults(sold_out=[dict(zip(names, pattern, strict=True)) for pattern in patterns])

    return sell_out


def test_a_launched_instance_is_found_by_token_by_id_and_in_the_list(any_provider):
    request = a_request(cluster=str(uuid.uuid4()), labels={"team": "x"}, tags={"why": "test"})
    instance = any_provider.create(request)
    assert instance.token == request.token
    assert instance.node_claim == request.node_claim
    assert instance.node_name == request.node_name
    assert instance.offering == SPOT.key
    assert instance.labels["team"] == "x"
    assert instance.tags == {"why": "test"}
    assert instance.allocatable["cpu"] == 3920
    for found in (any_provider.find(request.token), any_provider.get(instance.provider_id)):
        assert msgspec.structs.replace(found, state=instance.state) == instance
    assert [i.id for i in any_provider.list(request.cluster)] == [instance.id]
    assert any_provider.list("another") == []


def test_nothing_is_found_under_a_token_that_was_not_used(any_provider):
    assert any_provider.find("never/1 ?&#é") is None


def test_the_same_request_again_is_the_same_instance(any_provider):
    request = a_request()
    first = any_provider.create(request)
    later = msgspec.structs.replace(request, issued_at=a_request().issued_at)
    assert any_provider.create(later).id == first.id


def test_many_at_once_with_one_token_get_one_instance(any_provider, request):
    """Two launchers that both believe to hold the claim: one node is bought."""
    if isinstance(any_provider, MemoryProvider):
        pytest.skip("its callers are on one thread")
    launch, answers = a_request(), []
    threads = [threading.Thread(target=lambda: answers.append(any_provider.create(launch))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert len({answer.id for answer in answers}) == 1
    assert request.getfixturevalue("cloud").record()["by_token"][launch.token] == 1


def test_another_request_under_the_same_token_is_refused(any_provider):
    request = a_request()
    any_provider.create(request)
    with pytest.raises(TokenMismatch):
        any_provider.create(msgspec.structs.replace(request, options=(ON_DEMAND,)))


def test_a_request_older_than_its_life_launches_nothing(any_provider):
    request = a_request(age=31)
    with pytest.raises(RequestExpired):
        any_provider.create(request)
    assert any_provider.find(request.token) is None


def test_a_terminated_instance_is_told_to_who_asks_again(any_provider):
    request = a_request()
    instance = any_provider.create(request)
    any_provider.delete(instance.provider_id)
    with pytest.raises(InstanceTerminated) as caught:
        any_provider.create(msgspec.structs.replace(request, issued_at=a_request().issued_at))
    assert caught.value.instance.id == instance.id
    assert any_provider.find(request.token).state is InstanceState.TERMINATED


def test_a_deleted_instance_is_not_found_any_more(any_provider):
    request = a_request(cluster=str(uuid.uuid4()))
    instance = any_provider.create(request)
    any_provider.delete(instance.provider_id)
    with pytest.raises(InstanceNotFound):
        any_provider.get(instance.provider_id)
    with pytest.raises(InstanceNotFound):
        any_provider.delete(instance.provider_id)
    assert any_provider.list(request.cluster) == []


@pytest.mark.parametrize("provider_id", ["", "aws:///us-east-1a/i-1", "simulated:///simulated-1a/i-none", "nonsense"])
def test_a_provider_id_that_is_nobodys_is_not_found(any_provider, provider_id):
    with pytest.raises(InstanceNotFound):
        any_provider.get(provider_id)
    with pytest.raises(InstanceNotFound):
        any_provider.delete(provider_id)


def test_what_is_sold_out_is_passed_over_and_told(any_provider, sell_out):
    sell_out(("spot", "*", "*"))
    instance = any_provider.create(a_request(options=(SPOT, ON_DEMAND)))
    assert instance.offering == ON_DEMAND.key
    assert instance.sold_out == (SPOT.key,)


def test_no_room_at_all_names_what_was_tried(any_provider, sell_out):
    sell_out(("*", "general-4-amd64", "*"))
    request = a_request(options=(SPOT, ON_DEMAND))
    with pytest.raises(InsufficientCapacity) as caught:
        any_provider.create(request)
    assert caught.value.offerings == (SPOT.key, ON_DEMAND.key)
    assert any_provider.find(request.token) is None


def test_a_request_for_what_does_not_exist_is_refused_for_good(any_provider):
    with pytest.raises(RequestRefused) as caught:
        any_provider.create(a_request(options=(msgspec.structs.replace(SPOT, instance_type="huge"),)))
    assert caught.value.reason == "UnknownOffering"


def test_an_unchanged_catalog_is_the_same_object(any_provider):
    catalog = any_provider.instance_types(POOL)
    assert catalog == CATALOG
    assert any_provider.instance_types(POOL) is catalog


def test_it_says_who_it_is(any_provider):
    assert any_provider.name == "simulated"
    assert any_provider.names_nodes
    assert ("simulated.wainwright.dev", "SimulatedNodeClass") in any_provider.node_class_kinds
