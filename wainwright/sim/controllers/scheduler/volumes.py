"""Which nodes a pod's volumes leave it: bound volumes by their node affinity, unbound ones by their class. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from wainwright.api.meta import LabelSelectorRequirement
from wainwright.api.pods import NodeSelector, NodeSelectorTerm
from wainwright.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass, TopologySelectorTerm
from wainwright.sim.controllers.objects import Pod
from wainwright.sim.controllers.scheduler.filters import VolumeLimits


def volume_limits(
    pod: Pod,
    claims: Mapping[str, PersistentVolumeClaim],
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
) -> VolumeLimits:
    """Limits from every claim of the pod. claims by `namespace/name`, the rest by name.

    A claim that waits for its first consumer is not bound here: its class's topologies are all that limits the pod.
    """
    bound: list[NodeSelector] = []
    unbound: list[NodeSelector] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            missing = f'persistentvolumeclaim "{name}" not found'
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
            missing = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        else:
            continue
        claim = claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return VolumeLimits(unready=missing)
        if claim.spec.volume_name:
            persistent = volumes.get(claim.spec.volume_name)
            if persistent is not None and persistent.spec.node_affinity and persistent.spec.node_affinity.required:
                bound.append(persistent.spec.node_affinity.required)
            continue
        storage = classes.get(claim.spec.storage_class_name or "")
        if storage is None or storage.volume_binding_mode != "WaitForFirstConsumer":
            return VolumeLimits(unready="pod has unbound immediate PersistentVolumeClaims")
        if storage.allowed_topologies:
            unbound.append(NodeSelector(node_selector_terms=tuple(_term(t) for t in storage.allowed_topologies)))
    return VolumeLimits(bound=tuple(bound), unbound=tuple(unbound))


def _term(topology: TopologySelectorTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=tuple(
            LabelSelectorRequirement(key=requirement.key, operator="In", values=requirement.values)
            for requirement in topology.match_label_expressions
        )
    )
