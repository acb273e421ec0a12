"""Every label, annotation, taint and finalizer that Wainwright reads or writes, under one name each."""

from __future__ import annotations

from typing import Final

from wainwright.api.nodes import Taint

# Karpenter's, unchanged: users' manifests and tools rely on them.
NODEPOOL_LABEL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE_LABEL: Final = "karpenter.sh/capacity-type"
REGISTERED_LABEL: Final = "karpenter.sh/registered"
INITIALIZED_LABEL: Final = "karpenter.sh/initialized"
NODEPOOL_HASH_ANNOTATION: Final = "karpenter.sh/nodepool-hash"
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
TERMINATION_FINALIZER: Final = "karpenter.sh/termination"

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RESERVED: Final = "reserved"

# Kubernetes' own.
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
ARCH_LABEL: Final = "kubernetes.io/arch"
OS_LABEL: Final = "kubernetes.io/os"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
WINDOWS_BUILD_LABEL: Final = "node.kubernetes.io/windows-build"

# Ours, on NodeClaims: all that carrying on needs (design: the life of a claim, rule 1).
OPTIONS_ANNOTATION: Final = "wainwright.dev/options"
PODS_ANNOTATION: Final = "wainwright.dev/pods"
ATTEMPTS_ANNOTATION: Final = "wainwright.dev/attempts"
PLAN_ANNOTATION: Final = "wainwright.dev/plan"

NOT_READY_TAINT: Final = Taint(key="karpenter.sh/not-ready", effect="NoSchedule")
"""Ours, until the node is Ready and the planned binds are over: nobody else fills the room meanwhile."""
UNREGISTERED_TAINT: Final = Taint(key="karpenter.sh/unregistered", effect="NoExecute")
DISRUPTED_TAINT: Final = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
NODE_NOT_READY_KEY: Final = "node.kubernetes.io/not-ready"
NODE_UNREACHABLE_KEY: Final = "node.kubernetes.io/unreachable"

WELL_KNOWN_LABELS: Final = frozenset(
    {
        NODEPOOL_LABEL,
        CAPACITY_TYPE_LABEL,
        INSTANCE_TYPE_LABEL,
        ZONE_LABEL,
        REGION_LABEL,
        ARCH_LABEL,
        OS_LABEL,
        WINDOWS_BUILD_LABEL,
    }
)
"""Keys that a pod may ask for although no NodePool defines them; providers add theirs (`InstanceType.well_known`)."""
