"""How much of a machine is left for pods: the formulas of Karpenter's AWS provider, which EKS nodes follow too.

Memory in MiB, CPU in milli-CPU; the results of `machine_capacity` and `machine_overhead` are in whole units (bytes).
Source: karpenter-provider-aws, pkg/providers/instancetype/types.go; written out in its documentation of kube-reserved.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 2**20
GIB: Final = 2**30

HYPERVISOR_SHARE_PERMILLE: Final = 75
"""Of announced memory, what the hypervisor and the kernel keep (VM_MEMORY_OVERHEAD_PERCENT, 7.5 %)."""
ARM64_RESERVED_MIB: Final = 64
EVICTION_MEMORY_MIB: Final = 100
KUBE_RESERVED_STORAGE_BYTES: Final = 1 * GIB

_CPU_TIERS: Final = ((1, 60), (1, 10), (2, 5))
"""(cores of the tier, milli-CPU reserved per core): 6 % of the first, 1 % of the second, 0.5 % of the next two."""


def usable_memory_mib(announced_mib: int, arch: str) -> int:
    """What a node reports as its memory capacity, of what the machine is announced with.

    64 MiB less on arm64; of the rest 7.5 %, rounded up to a whole MiB, are gone. An error of one MiB changes packings.
    Example: 4096 MiB on amd64 are 4096 - ceil(307.2) = 3788 MiB.
    """
    visible = announced_mib - (ARM64_RESERVED_MIB if arch == "arm64" else 0)
    return visible - -(-visible * HYPERVISOR_SHARE_PERMILLE // 1000)


def kube_reserved_cpu_milli(vcpus: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the third and fourth, 0.25 % of the rest, truncated.

    2 vCPUs: 70, 4: 80, 8: 90.
    """
    reserved, left = 0, vcpus
    for cores, per_core in _CPU_TIERS:
        reserved += min(left, cores) * per_core
        left -= min(left, cores)
    return reserved + left * 5 // 2


def kube_reserved_memory_mib(pods: int) -> int:
    """11 MiB per pod that the node may run, and 255."""
    return 11 * pods + 255


def machine_capacity(*, vcpus: int, announced_mib: int, arch: str, pods: int, disk_bytes: int) -> dict[str, int]:
    """What the node reports: cpu, memory, ephemeral-storage, pods."""
    return {
        "cpu": vcpus * 1000,
        "memory": usable_memory_mib(announced_mib, arch) * MIB,
        "ephemeral-storage": disk_bytes,
        "pods": pods,
    }


def machine_overhead(*, vcpus: int, pods: int, disk_bytes: int) -> dict[str, int]:
    """What of it pods cannot have: kube-reserved plus the eviction thresholds (100 MiB; 10 % of the disk)."""
    return {
        "cpu": kube_reserved_cpu_milli(vcpus),
        "memory": (kube_reserved_memory_mib(pods) + EVICTION_MEMORY_MIB) * MIB,
        "ephemeral-storage": KUBE_RESERVED_STORAGE_BYTES + -(-disk_bytes // 10),
    }
