"""The simulated cloud's own instance types, from formulas.

| family | vCPUs | memory announced | architectures |
|---|---|---|---|
| general | 2 4 8 16 32 64 96 | 4 GiB per vCPU | amd64 arm64 |
| compute | the same | 2 GiB per vCPU | amd64 arm64 |
| memory | the same | 8 GiB per vCPU | amd64 arm64 |
| gpu | 8, 16 or 32 per GPU; 1, 2, 4, 8 GPUs | 8 GiB per vCPU | amd64 |

Names: `general-4-amd64`, `gpu-2-32` (two GPUs, 32 vCPUs). Three zones, on-demand and spot in each.

- price on-demand = 0.036 $ per vCPU + 0.003 $ per GiB announced + 0.60 $ per GPU, an hour; arm64 costs 80 % of that;
- spot = 30, 34 or 38 % of it in the first, second or third zone;
- pods per node = min(110, 16 per vCPU); disk 100 GiB; memory left and overhead as in `wainwright.cloud.capacity`.

Every type carries labels of ours (`instance.wainwright.dev/…`) and those that NodePools written for EC2 select by
(`karpenter.k8s.aws/instance-…`), so that such NodePools find something here.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from wainwright.api.names import ON_DEMAND, SPOT
from wainwright.cloud.capacity import GIB, machine_capacity, machine_overhead
from wainwright.cloud.catalog import make_catalog
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering

REGION: Final = "simulated-1"
ZONES: Final = ("simulated-1a", "simulated-1b", "simulated-1c")

FAMILY_LABEL: Final = "instance.wainwright.dev/family"
CPU_LABEL: Final = "instance.wainwright.dev/cpu"
MEMORY_LABEL: Final = "instance.wainwright.dev/memory"
GPU_NAME_LABEL: Final = "instance.wainwright.dev/gpu-name"
GPU_COUNT_LABEL: Final = "instance.wainwright.dev/gpu-count"

_EC2: Final = "karpenter.k8s.aws/instance-"
_GPU_RESOURCE: Final = "nvidia.com/gpu"

_GIB_PER_VCPU: Final = {"general": 4, "compute": 2, "memory": 8, "gpu": 8}
_EC2_CATEGORY: Final = {"general": "m", "compute": "c", "memory": "r", "gpu": "g"}
_EC2_GENERATION: Final = "7"
_VCPUS: Final = (2, 4, 8, 16, 32, 64, 96)
_VCPUS_PER_GPU: Final = (8, 16, 32)
_GPUS: Final = (1, 2, 4, 8)

_DOLLARS_PER_VCPU: Final = 0.036
_DOLLARS_PER_GIB: Final = 0.003
_DOLLARS_PER_GPU: Final = 0.60
_ARM64_SHARE: Final = 0.8
_SPOT_SHARE: Final = (0.30, 0.34, 0.38)
_DISK_BYTES: Final = 100 * GIB


def on_demand_price(*, vcpus: int, memory_gib: int, gpus: int, arch: str) -> float:
    """US dollars an hour, rounded to a hundredth of a cent."""
    price = vcpus * _DOLLARS_PER_VCPU + memory_gib * _DOLLARS_PER_GIB + gpus * _DOLLARS_PER_GPU
    return round(price * (_ARM64_SHARE if arch == "arm64" else 1.0), 4)


def pods_per_node(vcpus: int) -> int:
    return min(110, 16 * vcpus)


def _offerings(price: float) -> tuple[Offering, ...]:
    return tuple(
        offering
        for zone, share in zip(ZONES, _SPOT_SHARE, strict=True)
        for offering in (
            Offering(zone=zone, capacity_type=ON_DEMAND, price=price),
            Offering(zone=zone, capacity_type=SPOT, price=round(price * share, 4)),
        )
    )


def _labels(family: str, *, vcpus: int, memory_gib: int, gpus: int, arch: str) -> dict[str, str]:
    category = _EC2_CATEGORY[family]
    labels = {
        FAMILY_LABEL: family,
        CPU_LABEL: str(vcpus),
        MEMORY_LABEL: str(memory_gib * 1024),
        _EC2 + "category": category,
        _EC2 + "family": category + _EC2_GENERATION + ("g" if arch == "arm64" else ""),
        _EC2 + "generation": _EC2_GENERATION,
        _EC2 + "size": "large" if vcpus == 2 else "xlarge" if vcpus == 4 else f"{vcpus // 4}xlarge",
        _EC2 + "cpu": str(vcpus),
        _EC2 + "memory": str(memory_gib * 1024),
        _EC2 + "hypervisor": "nitro",
        _EC2 + "cpu-manufacturer": "aws" if arch == "arm64" else "intel",
    }
    if gpus:
        labels |= {
            GPU_NAME_LABEL: "simulated",
            GPU_COUNT_LABEL: str(gpus),
            _EC2 + "gpu-name": "simulated",
            _EC2 + "gpu-manufacturer": "nvidia",
            _EC2 + "gpu-count": str(gpus),
        }
    return labels


def _instance_type(name: str, family: str, *, vcpus: int, gpus: int, arch: str) -> InstanceType:
    memory_gib = vcpus * _GIB_PER_VCPU[family]
    pods = pods_per_node(vcpus)
    capacity = machine_capacity(
        vcpus=vcpus, announced_mib=memory_gib * 1024, arch=arch, pods=pods, disk_bytes=_DISK_BYTES
    )
    if gpus:
        capacity[_GPU_RESOURCE] = gpus
    return InstanceType(
        name=name,
        arch=arch,
        labels=_labels(family, vcpus=vcpus, memory_gib=memory_gib, gpus=gpus, arch=arch),
        capacity=capacity,
        overhead=machine_overhead(vcpus=vcpus, pods=pods, disk_bytes=_DISK_BYTES),
        offerings=_offerings(on_demand_price(vcpus=vcpus, memory_gib=memory_gib, gpus=gpus, arch=arch)),
    )


@cache
def generated_catalog() -> Catalog:
    """54 instance types with six offerings each; always the same."""
    machines = [
        _instance_type(f"{family}-{vcpus}-{arch}", family, vcpus=vcpus, gpus=0, arch=arch)
        for family in ("general", "compute", "memory")
        for vcpus in _VCPUS
        for arch in ("amd64", "arm64")
    ]
    machines += [
        _instance_type(f"gpu-{gpus}-{gpus * per_gpu}", "gpu", vcpus=gpus * per_gpu, gpus=gpus, arch="amd64")
        for gpus in _GPUS
        for per_gpu in _VCPUS_PER_GPU
    ]
    well_known = frozenset(label for machine in machines for label in machine.labels)
    return make_catalog(REGION, well_known, tuple(machines))
