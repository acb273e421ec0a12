import pytest

from wainwright.api.quantities import fits_within
from wainwright.cloud.simulated.types import (
    CPU_LABEL,
    FAMILY_LABEL,
    GPU_COUNT_LABEL,
    ZONES,
    generated_catalog,
    on_demand_price,
)

CATALOG = generated_catalog()
BY_NAME = {machine.name: machine for machine in CATALOG.instance_types}
MIB = 2**20


def test_every_type_is_offered_on_demand_and_spot_in_three_zones():
    for machine in CATALOG.instance_types:
        assert {(o.zone, o.capacity_type) for o in machine.offerings} == {
            (zone, kind) for zone in ZONES for kind in ("on-demand", "spot")
        }
    assert len(CATALOG.instance_types) == 54


@pytest.mark.parametrize(
    ("vcpus", "gib", "gpus", "arch", "price"),
    [
        (4, 16, 0, "amd64", 0.192),  # 4 x 0.036 + 16 x 0.003
        (4, 16, 0, "arm64", 0.1536),  # 80 %
        (32, 256, 2, "amd64", 3.12),  # 1.152 + 0.768 + 2 x 0.60
    ],
)
def test_prices_follow_the_documented_formula(vcpus, gib, gpus, arch, price):
    assert on_demand_price(vcpus=vcpus, memory_gib=gib, gpus=gpus, arch=arch) == price


def test_spot_is_a_share_of_on_demand_that_grows_by_zone():
    prices = {(o.zone, o.capacity_type): o.price for o in BY_NAME["general-4-amd64"].offerings}
    assert [prices[zone, "spot"] for zone in ZONES] == [0.0576, 0.0653, 0.073]  # 30, 34, 38 % of 0.192


def test_labels_can_be_asked_for_though_no_node_pool_defines_them():
    machine = BY_NAME["gpu-2-32"]
    assert machine.labels[FAMILY_LABEL] == "gpu"
    assert machine.labels[CPU_LABEL] == "32"
    assert machine.labels[GPU_COUNT_LABEL] == "2"
    assert all(set(m.labels) <= CATALOG.well_known for m in CATALOG.instance_types)


def test_node_pools_written_for_ec2_find_something():
    """The NodePool of Karpenter's getting-started page asks for category c, m or r, and a generation above 2."""
    found = [
        machine
        for machine in CATALOG.instance_types
        if machine.labels["karpenter.k8s.aws/instance-category"] in ("c", "m", "r")
        and int(machine.labels["karpenter.k8s.aws/instance-generation"]) > 2
    ]
    assert len(found) == 42


@pytest.mark.parametrize(
    ("cpu_milli", "memory_mib", "gpus"),
    [
        (32_000, 65_536, 0),
        (24_200, 125_952, 1),
        (30_200, 160_768, 2),
        (60_200, 320_512, 4),
        (120_200, 737_280, 8),
    ],
)
def test_the_largest_pods_of_the_production_trace_fit_somewhere(cpu_milli, memory_mib, gpus):
    """The most CPU and the most memory among the trace's 8,152 pods, per number of GPUs."""
    wanted = {"cpu": cpu_milli, "memory": memory_mib * MIB, "nvidia.com/gpu": gpus, "pods": 1}
    assert any(fits_within(wanted, machine.allocatable) for machine in CATALOG.instance_types)


def test_nothing_has_less_than_nothing_left_for_pods():
    for machine in CATALOG.instance_types:
        assert all(amount > 0 for amount in machine.allocatable.values()), machine.name
