"""What a pod's volumes demand of its node: where they can be reached, and how many more a node can attach."""

from __future__ import annotations

from dataclasses import dataclass

from wainwright.api.pods import Pod, Volume
from wainwright.api.volumes import PersistentVolumeClaim, StorageClass
from wainwright.scheduling.requirements import Requirement, requirement
from wainwright.scheduling.shapes import Term, term_requirements
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.universe import ATTACHMENTS

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class VolumeError(ValueError):
    """A volume that keeps its pod from running anywhere; the message says which and why."""


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """places: per volume that is tied to somewhere, the alternatives. drivers: number of volumes per CSI driver."""

    places: tuple[tuple[Term, ...], ...] = ()
    drivers: tuple[tuple[str, int], ...] = ()


NOTHING = VolumeDemand()


class Volumes:
    """Looks up claims, volumes and classes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._claims = {c.metadata.key: c for c in snapshot.persistent_volume_claims}
        self._volumes = {v.metadata.name: v for v in snapshot.persistent_volumes}
        self._classes = {c.metadata.name: c for c in snapshot.storage_classes}
        self._default = next(
            (c for _, c in sorted(self._classes.items()) if c.metadata.annotations.get(DEFAULT_CLASS) == "true"), None
        )
        self.limits: dict[str, dict[str, int]] = {
            node.metadata.name: {
                driver.name: driver.allocatable.count
                for driver in node.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
            for node in snapshot.csi_nodes
        }
        """By node name and driver: how many volumes it can attach."""
        self.limited_drivers = {driver for limits in self.limits.values() for driver in limits}

    def demand(self, pod: Pod) -> VolumeDemand:
        """What the pod's volumes ask of its node. Raises VolumeError, RequirementError."""
        if not pod.spec.volumes:
            return NOTHING
        places: list[tuple[Term, ...]] = []
        drivers: dict[str, int] = {}
        for volume in pod.spec.volumes:
            alternatives, driver = self._of(pod, volume)
            if alternatives:
                places.append(alternatives)
            if driver in self.limited_drivers:
                drivers[driver] = drivers.get(driver, 0) + 1
        return VolumeDemand(tuple(places), tuple(sorted(drivers.items())))

    def attached(self, pods: tuple[Pod, ...]) -> dict[str, int]:
        """Volumes per limited driver that these pods of one node have attached, shared ones once."""
        seen: set[tuple[str, str]] = set()
        for pod in pods:
            for volume in pod.spec.volumes:
                name = _claim_name(pod, volume)
                claim = self._claims.get(name) if name else None
                driver = self._driver(claim) if claim is not None else ""
                if driver in self.limited_drivers:
                    seen.add((driver, name))
        counts: dict[str, int] = {}
        for driver, _ in seen:
            counts[driver] = counts.get(driver, 0) + 1
        return counts

    def _driver(self, claim: PersistentVolumeClaim) -> str:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        known = self._class(claim.spec.storage_class_name)
        return known.provisioner if known is not None else ""

    def _class(self, name: str | None) -> StorageClass | None:
        return self._default if name is None else self._classes.get(name)

    def _of(self, pod: Pod, volume: Volume) -> tuple[tuple[Term, ...], str]:
        name = _claim_name(pod, volume)
        if not name:
            return (), ""
        claim = self._claims.get(name)
        if claim is None:
            template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
            if template is None:
                raise VolumeError(f"volume {volume.name!r}: PersistentVolumeClaim {name} does not exist")
            raw = template.spec.get("storageClassName")
            return self._unbound(volume, name, raw if isinstance(raw, str) else None)
        if claim.metadata.deletion_timestamp is not None:
            raise VolumeError(f"volume {volume.name!r}: PersistentVolumeClaim {name} is being deleted")
        if claim.status.phase == "Lost":
            raise VolumeError(f"volume {volume.name!r}: PersistentVolumeClaim {name} has lost its volume")
        if not claim.spec.volume_name:
            return self._unbound(volume, name, claim.spec.storage_class_name)
        bound = self._volumes.get(claim.spec.volume_name)
        if bound is None:
            raise VolumeError(
                f"volume {volume.name!r}: PersistentVolume {claim.spec.volume_name} of claim {name} does not exist"
            )
        if bound.metadata.deletion_timestamp is not None:
            raise VolumeError(f"volume {volume.name!r}: PersistentVolume {claim.spec.volume_name} is being deleted")
        affinity = bound.spec.node_affinity
        driver = bound.spec.csi.driver if bound.spec.csi is not None else ""
        if affinity is None or affinity.required is None:
            return (), driver
        if not affinity.required.node_selector_terms:
            name = claim.spec.volume_name
            raise VolumeError(
                f"volume {volume.name!r}: PersistentVolume {name} has no node affinity term: no node is near"
            )
        return tuple(_term(term_requirements(t)) for t in affinity.required.node_selector_terms), driver

    def _unbound(self, volume: Volume, name: str, class_name: str | None) -> tuple[tuple[Term, ...], str]:
        known = self._class(class_name)
        if known is None:
            text = f"StorageClass {class_name!r} does not exist" if class_name else "it has no storage class"
            raise VolumeError(f"volume {volume.name!r}: PersistentVolumeClaim {name} is not bound and {text}")
        if known.volume_binding_mode == "Immediate":
            raise VolumeError(
                f"volume {volume.name!r}: PersistentVolumeClaim {name} is not bound yet "
                f"(StorageClass {known.metadata.name} binds immediately)"
            )
        return (
            tuple(
                _term([requirement(e.key, "In", e.values) for e in term.match_label_expressions])
                for term in known.allowed_topologies
            ),
            known.provisioner,
        )


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
    if volume.ephemeral is not None:
        return f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"
    return ""


def _term(requirements: list[Requirement]) -> Term:
    return tuple(sorted(requirements, key=lambda wanted: wanted.key))


__all__ = ["ATTACHMENTS", "VolumeDemand", "VolumeError", "Volumes"]
