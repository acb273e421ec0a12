"""SimulatedNodeClass (`simulated.wainwright.dev/v1alpha1`): how nodes of the simulated cloud are made."""

from __future__ import annotations

from typing import Final

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.cloud.port import NodeClassKind

NODE_CLASS_KIND: Final = NodeClassKind("simulated.wainwright.dev", "SimulatedNodeClass")


class SimulatedNodeClassSpec(Resource):
    """zones: where its nodes may be; empty: anywhere. boot_seconds: until the kubelet reports; None: the service's."""

    zones: tuple[str, ...] = ()
    boot_seconds: float | None = None


class SimulatedNodeClass(Resource):
    metadata: ObjectMeta
    spec: SimulatedNodeClassSpec = SimulatedNodeClassSpec()
