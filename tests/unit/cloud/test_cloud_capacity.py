import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.cloud.capacity import (
    kube_reserved_cpu_milli,
    kube_reserved_memory_mib,
    machine_capacity,
    machine_overhead,
    usable_memory_mib,
)

GIB = 2**30
MIB = 2**20


@pytest.mark.parametrize(
    ("vcpus", "milli"),
    [
        (1, 60),  # 6 % of the first core
        (2, 70),  # + 1 % of the second
        (3, 75),  # + 0.5 %
        (4, 80),  # + 0.5 %
        (5, 82),  # + 0.25 % = 2.5, truncated
        (8, 90),  # + 4 x 2.5
        (96, 310),  # + 92 x 2.5 = 230
    ],
)
def test_kube_reserved_cpu_falls_per_core(vcpus, milli):
    assert kube_reserved_cpu_milli(vcpus) == milli


@pytest.mark.parametrize(
    ("announced", "arch", "usable"),
    [
        (4096, "amd64", 3788),  # 307.2 -> 308 gone: c5.large
        (4000, "amd64", 3700),  # exactly 300 gone
        (4001, "amd64", 3700),  # 300.075 -> 301 gone
        (4096, "arm64", 3729),  # 4032 visible, 302.4 -> 303 gone
    ],
)
def test_memory_loses_its_share_rounded_up_to_a_whole_mib(announced, arch, usable):
    """Rounding the other way would be one MiB too much, and a pod of exactly that size would be planned in vain."""
    assert usable_memory_mib(announced, arch) == usable


def test_capacity_and_overhead_are_those_of_a_known_machine():
    """c5.large: 2 vCPUs, 4096 MiB, 29 pods, 20 GiB disk."""
    assert machine_capacity(vcpus=2, announced_mib=4096, arch="amd64", pods=29, disk_bytes=20 * GIB) == {
        "cpu": 2000,
        "memory": 3788 * MIB,
        "ephemeral-storage": 20 * GIB,
        "pods": 29,
    }
    assert machine_overhead(vcpus=2, pods=29, disk_bytes=20 * GIB) == {
        "cpu": 70,
        "memory": (11 * 29 + 255 + 100) * MIB,  # 674 MiB
        "ephemeral-storage": 3 * GIB,  # 1 GiB reserved, 10 % of 20 kept free
    }


@given(st.integers(1, 1000), st.integers(1, 250))
def test_more_cores_and_more_pods_never_reserve_less(vcpus, pods):
    assert kube_reserved_cpu_milli(vcpus + 1) >= kube_reserved_cpu_milli(vcpus)
    assert kube_reserved_memory_mib(pods + 1) > kube_reserved_memory_mib(pods)
    assert 0 < kube_reserved_cpu_milli(vcpus) < vcpus * 1000


@given(st.integers(64, 2**24), st.sampled_from(["amd64", "arm64"]))
def test_usable_memory_is_less_than_announced_and_grows_with_it(announced, arch):
    usable = usable_memory_mib(announced, arch)
    assert 0 <= usable < announced
    assert usable <= usable_memory_mib(announced + 1, arch) <= usable + 1
