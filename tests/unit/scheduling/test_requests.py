"""What a pod asks for."""

import msgspec
import pytest
from scheduling_builders import a_pod

from wainwright.api.pods import Pod
from wainwright.api.quantities import QuantityError
from wainwright.scheduling.requests import pod_requests

MI = 2**20


def container(cpu, **more):
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def cpu_of(**spec):
    return pod_requests(msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod))["cpu"]


def test_containers_add_up_and_a_pod_is_one_pod():
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [container("1"), container("250m")]}}, Pod)
    assert pod_requests(pod) == {"cpu": 1250, "pods": 1}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        # An ordinary init container runs alone: max(3, 0.5).
        ([container("3")], 3000),
        # A sidecar before it runs beside it: max(0.9 + 1.2, 0.9 + 0.5).
        ([container("900m", restartPolicy="Always"), container("1200m")], 2100),
        # A sidecar after it does not: max(1.2, 0.9 + 0.5).
        ([container("1200m"), container("900m", restartPolicy="Always")], 1400),
    ],
)
def test_init_containers_and_sidecars_follow_their_order(init, expected):
    assert cpu_of(containers=[container("500m")], initContainers=init) == expected


def test_limits_stand_in_for_missing_requests():
    only_limits = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [only_limits]}}, Pod)
    assert pod_requests(pod) == {"cpu": 1000, "memory": 1024 * MI, "pods": 1}


def test_pod_level_requests_replace_the_containers_and_overhead_comes_on_top():
    assert cpu_of(containers=[container("1")], resources={"requests": {"cpu": "3"}}, overhead={"cpu": "100m"}) == 3100


@pytest.mark.parametrize("quantity", ["1.5.2", "many", "-1", "1e99999999", ""])
def test_an_unreadable_quantity_names_field_and_value(quantity):
    with pytest.raises(QuantityError, match=r"spec\.containers\[app\]\.resources\.requests\.cpu"):
        pod_requests(a_pod(cpu=quantity))


def test_a_resource_without_a_name_is_refused():
    """It was dropped, and its pod placed on a node that has none of it."""
    nameless = {"name": "c", "resources": {"requests": {"": "1"}}}
    with pytest.raises(QuantityError, match="a resource has no name"):
        pod_requests(msgspec.convert({"metadata": {}, "spec": {"containers": [nameless]}}, Pod))
