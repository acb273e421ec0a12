"""What the demo asks for: two NodePools, a DaemonSet, a dozen Deployments and Jobs, a thousand pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Manifest = dict[str, Any]

IMAGE = "registry.example/app:1"
UNPLACEABLE = "needs-too-much"
"""The Deployment that fits on no instance type: its pods must end with a reason, not with a node."""


class Part(NamedTuple):
    """One Deployment or Job of `pods` equal pods."""

    kind: str
    name: str
    pods: int
    cpu: str
    memory: str
    selector: dict[str, str] = {}
    tolerations: tuple[dict[str, str], ...] = ()


BATCH_TOLERATION = {"key": "workload", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}

PARTS = (
    Part("Deployment", "web", 220, "250m", "256Mi"),
    Part("Deployment", "api", 160, "500m", "1Gi"),
    Part("Deployment", "cache", 40, "1", "6Gi"),
    Part("Deployment", "search", 24, "3500m", "12Gi"),
    Part("Deployment", "arm-workers", 60, "700m", "900Mi", {"kubernetes.io/arch": "arm64"}),
    Part("Deployment", "zoned", 50, "400m", "512Mi", {"topology.kubernetes.io/zone": "simulated-1b"}),
    Part("Deployment", "steady", 30, "1500m", "2Gi", {"karpenter.sh/capacity-type": "on-demand"}),
    Part("Deployment", "queue", 100, "100m", "128Mi"),
    Part("Deployment", UNPLACEABLE, 6, "900", "4Ti"),
    Part("Job", "thumbnails", 150, "200m", "200Mi", {}, (BATCH_TOLERATION,)),
    Part("Job", "reports", 100, "900m", "3Gi", {"wainwright.dev/pool": "batch"}, (BATCH_TOLERATION,)),
    Part("Job", "training", 60, "2", "8Gi", {"wainwright.dev/pool": "batch"}, (BATCH_TOLERATION,)),
)
PODS = sum(part.pods for part in PARTS)
PLACEABLE = PODS - next(part.pods for part in PARTS if part.name == UNPLACEABLE)


def node_pools(gpus: bool = False) -> list[Manifest]:  # noqa: FBT001, FBT002
    """As Karpenter users write them, NodeClass included. gpus: let `general` use GPU types (for a trace)."""
    arch = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
    capacity = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
    plain = {"key": "instance.wainwright.dev/family", "operator": "NotIn", "values": ["gpu"]}
    return [
        _node_pool("general", 10, [arch, capacity, *([] if gpus else [plain])], {"cpu": "100000"}),
        _node_pool(
            "batch",
            None,
            [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                plain,
            ],
            {"cpu": "2000", "memory": "8000Gi"},
            labels={"wainwright.dev/pool": "batch"},
            taints=[{"key": "workload", "value": "batch", "effect": "NoSchedule"}],
        ),
    ]


def _node_pool(
    name: str,
    weight: int | None,
    requirements: list[Manifest],
    limits: dict[str, str],
    *,
    labels: dict[str, str] | None = None,
    taints: list[Manifest] | None = None,
) -> Manifest:
    spec: Manifest = {
        "limits": limits,
        "template": {
            "metadata": {"labels": labels or {}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements,
                **({"taints": taints} if taints else {}),
            },
        },
    }
    if weight is not None:
        spec["weight"] = weight
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def daemon_set() -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "node-agent", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "node-agent"}},
            "template": {
                "metadata": {"labels": {"app": "node-agent"}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [_container("100m", "128Mi")],
                },
            },
        },
    }


def workloads() -> Iterator[Manifest]:
    for part in PARTS:
        labels = {"app": part.name, "demo": "wainwright"}
        pod_spec: Manifest = {
            "containers": [_container(part.cpu, part.memory)],
            "nodeSelector": part.selector,
            "tolerations": list(part.tolerations),
        }
        template: Manifest = {"metadata": {"labels": labels}, "spec": pod_spec}
        spec: Manifest
        if part.kind == "Job":
            pod_spec["restartPolicy"] = "Never"
            # Long enough that every pod of the demo runs at the same time when the verdict is given.
            template["metadata"]["annotations"] = {"sim.wainwright.dev/run-seconds": "600"}
            spec = {"parallelism": part.pods, "completions": part.pods, "template": template}
            version = "batch/v1"
        else:
            spec = {"replicas": part.pods, "selector": {"matchLabels": {"app": part.name}}, "template": template}
            version = "apps/v1"
        metadata = {"name": part.name, "namespace": "default"}
        yield {"apiVersion": version, "kind": part.kind, "metadata": metadata, "spec": spec}


def _container(cpu: str, memory: str) -> Manifest:
    return {"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": cpu, "memory": memory}}}
