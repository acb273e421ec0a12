"""Volumes of the manifests as the solver takes them, with guesses where a cluster would know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from wainwright.api.meta import ObjectMeta
from wainwright.api.pods import Pod
from wainwright.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.volumes import DEFAULT_CLASS
from workers.plan.findings import Findings
from workers.plan.manifests import Manifests

WAIT = "WaitForFirstConsumer"


class Storage(NamedTuple):
    claims: tuple[PersistentVolumeClaim, ...]
    volumes: tuple[PersistentVolume, ...]
    classes: tuple[StorageClass, ...]


def read_storage(manifests: Manifests, findings: Findings, made: Iterable[PersistentVolumeClaim] = ()) -> Storage:
    """What the manifests hold; a claim that a volume is reserved for is bound to it. made: claims of StatefulSets."""
    reserved: dict[str, str] = {}
    for item in manifests.of("PersistentVolume"):
        reference = item.content.get("spec", {}).get("claimRef", {})
        if reference.get("name"):
            reserved[f"{reference.get('namespace', 'default')}/{reference['name']}"] = item.name
    claims = []
    for claim in (*manifests.typed("PersistentVolumeClaim", PersistentVolumeClaim, findings), *made):
        volume = reserved.get(claim.metadata.key, "")
        if volume and not claim.spec.volume_name:
            claim = msgspec.structs.replace(  # noqa: PLW2901
                claim, spec=msgspec.structs.replace(claim.spec, volume_name=volume)
            )
        claims.append(claim)
    volumes = manifests.typed("PersistentVolume", PersistentVolume, findings)
    classes = manifests.typed("StorageClass", StorageClass, findings)
    return Storage(tuple(claims), tuple(volumes), tuple(classes))


def with_guesses(storage: Storage, pods: Sequence[Pod], findings: Findings) -> Storage:
    """The same with every StorageClass that unbound claims of these pods need, each binding where its pod goes.

    Without a cluster a class that was not given is taken to exist, and one that binds immediately to wait.
    """
    classes = {each.metadata.name: each for each in storage.classes}
    default = next((n for n, c in sorted(classes.items()) if c.metadata.annotations.get(DEFAULT_CLASS) == "true"), None)
    for wanted in _classes_wanted(storage, pods):
        name = default if wanted is None else wanted
        if name == "":
            continue  # no class on purpose: it waits for a volume made by hand
        if name is None:
            name = default = "default"
            findings.warn("no default StorageClass is given; claims without a class are taken to fit any zone")
            annotations = {DEFAULT_CLASS: "true"}
            meta = ObjectMeta(name=name, annotations=annotations)
            classes[name] = StorageClass(metadata=meta, volume_binding_mode=WAIT)
        elif name not in classes:
            findings.warn(f"StorageClass {name} is not given; its volumes are taken to fit any zone")
            classes[name] = StorageClass(metadata=ObjectMeta(name=name), volume_binding_mode=WAIT)
        elif classes[name].volume_binding_mode == "Immediate":
            findings.warn(
                f"StorageClass {name} binds immediately: where its volumes will be is not known; they are taken to fit "
                f"where their pods go ({WAIT} makes it so)"
            )
            classes[name] = msgspec.structs.replace(classes[name], volume_binding_mode=WAIT)
    return storage._replace(classes=tuple(classes[name] for name in sorted(classes)))


def _classes_wanted(storage: Storage, pods: Sequence[Pod]) -> list[str | None]:
    claims = {claim.metadata.key: claim for claim in storage.claims}
    wanted: dict[str | None, None] = {}
    for pod in pods:
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                claim = claims.get(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
                if claim is not None and not claim.spec.volume_name:
                    wanted[claim.spec.storage_class_name] = None
            elif volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
                raw = volume.ephemeral.volume_claim_template.spec.get("storageClassName")
                wanted[raw if isinstance(raw, str) else None] = None
    return sorted(wanted, key=lambda name: (name is None, name or ""))
