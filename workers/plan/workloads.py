"""The pods that workloads make: WORKLOAD-0, WORKLOAD-1, …, less those that are there already. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from wainwright.api.daemonsets import DaemonSet
from wainwright.api.meta import ObjectMeta, OwnerReference
from wainwright.api.pods import PersistentVolumeClaimSource, Pod, PodSpec, Volume
from wainwright.api.volumes import PersistentVolumeClaim
from workers.plan.admission import Admission
from workers.plan.doubts import doubts
from workers.plan.findings import Findings
from workers.plan.manifests import WORKLOADS, Item, Manifests

MOST_PODS: Final = 200_000
"""More than any cluster holds: a slip of the keyboard in `replicas`."""
HASH_LABEL: Final = "pod-template-hash"


class Workforce:
    """What the manifests and the cluster have of pods.

    pending: to be planned, in the order of the manifests; bound: on nodes; claims: made by StatefulSets.
    """

    def __init__(self) -> None:
        self.pending: list[Pod] = []
        self.bound: list[Pod] = []
        self.claims: list[PersistentVolumeClaim] = []


def gather(
    manifests: Manifests, admission: Admission, findings: Findings, created: datetime, present: Iterable[Pod] = ()
) -> Workforce:
    """Pods of the manifests and of their workloads. present: pods of a running cluster, which count for workloads.

    created: when the first new pod was made; each further one a second later, so that the order read is age.
    """
    return _Gathering(manifests, admission, findings, created, tuple(present)).run()


def daemon_sets(manifests: Manifests, admission: Admission, findings: Findings) -> list[DaemonSet]:
    """DaemonSets with what the API server adds to their pods."""
    found = []
    for item in manifests.of("DaemonSet"):
        content = deepcopy(item.content)
        admission.admit(content["spec"].setdefault("template", {}).setdefault("spec", {}), item.namespace, item.text)
        daemon_set = item._replace(content=content).typed(DaemonSet, findings)
        if daemon_set is not None:
            found.append(daemon_set)
    return found


class _Gathering:
    def __init__(
        self,
        manifests: Manifests,
        admission: Admission,
        findings: Findings,
        created: datetime,
        present: tuple[Pod, ...],
    ) -> None:
        self._manifests = manifests
        self._admission = admission
        self._findings = findings
        self._created = created
        self._present = present
        self._age = 0
        self._force = Workforce()
        self._names: set[str] = {pod.key for pod in present}
        self._of_owner: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for pod in present:
            self._note_owner(pod)

    def run(self) -> Workforce:
        given = {item.key: pod for item in self._manifests.of("Pod") if (pod := self._given(item)) is not None}
        self._names |= given.keys()
        for pod in given.values():
            self._note_owner(pod)
        left_out: Counter[str] = Counter()
        for item in self._manifests.of("Pod", *WORKLOADS):
            if item.kind != "Pod":
                self._workload(item)
            elif item.key in given:
                self._place(given[item.key], left_out)
        for why, count in sorted(left_out.items()):
            self._findings.warn(f"ignored: {count} {'pod that is' if count == 1 else 'pods that are'} {why}")
        return self._force

    def _given(self, item: Item) -> Pod | None:
        if any(pod.key == item.key for pod in self._present):
            self._findings.warn(f"{item.source}: {item.text} is in the cluster already")
            return None
        if not item.content["spec"].get("nodeName"):
            self._admission.admit(item.content["spec"], item.namespace, item.text)
        return item.typed(Pod, self._findings)

    def _place(self, pod: Pod, left_out: Counter[str]) -> None:
        if pod.is_terminal:
            left_out["over"] += 1
        elif pod.is_bound:
            self._force.bound.append(pod)
        elif pod.is_daemon:
            left_out["owned by a DaemonSet and not bound yet (the DaemonSet is counted)"] += 1
        elif pod.is_terminating:
            left_out["being deleted"] += 1
        else:
            self._doubt(pod, f"Pod {pod.metadata.name if pod.metadata.namespace == 'default' else pod.key}")
            made = pod.metadata.creation_timestamp or self._next_moment()
            meta = msgspec.structs.replace(pod.metadata, creation_timestamp=made)
            self._force.pending.append(msgspec.structs.replace(pod, metadata=meta))

    def _next_moment(self) -> datetime:
        self._age += 1
        return self._created + timedelta(seconds=self._age - 1)

    def _doubt(self, pod: Pod, what: str) -> None:
        for text in doubts(pod):
            self._findings.warn(f"{what}: {text}")

    def _note_owner(self, pod: Pod) -> None:
        if pod.is_terminal or pod.is_terminating:
            return
        meta = pod.metadata
        for owner in meta.owner_references:
            self._of_owner[meta.namespace, owner.kind, owner.name].add(meta.name)
            suffix = f"-{meta.labels.get(HASH_LABEL, '')}"
            if owner.kind == "ReplicaSet" and owner.name.endswith(suffix) and len(suffix) > 1:
                self._of_owner[meta.namespace, "Deployment", owner.name.removesuffix(suffix)].add(meta.name)

    def _workload(self, item: Item) -> None:
        owners = item.content["metadata"].get("ownerReferences", ())
        if any(self._manifests.find(o.get("kind", ""), item.namespace, o.get("name", "")) for o in owners):
            return  # a Deployment's ReplicaSet: the Deployment says how many
        wanted = self._replicas(item)
        there = self._of_owner[item.namespace, item.kind, item.name]
        if there:
            self._findings.warn(f"{item.text}: {len(there)} of its {wanted} pods are there already")
        missing = max(wanted - len(there), 0)
        if missing > MOST_PODS:
            message = f"more pods than a cluster holds; at most {MOST_PODS} are planned"
            self._findings.fault(item.document.fault(message, field="spec.replicas", value=missing))
            return
        template = deepcopy(item.content["spec"].get("template", {}))
        self._admission.admit(template.setdefault("spec", {}), item.namespace, item.text)
        if not missing:
            return
        spec = item.part(template["spec"], PodSpec, self._findings, "spec.template.spec")
        if spec is None:
            return
        made = list(self._pods(item, template, spec, missing))
        self._doubt(made[0], item.text)
        self._force.pending += made

    def _replicas(self, item: Item) -> int:
        spec, status = item.content["spec"], item.content.get("status", {})
        if item.kind != "Job":
            return int(spec.get("replicas", 1))
        if spec.get("suspend"):
            self._findings.warn(f"{item.text}: is suspended, it makes no pods")
            return 0
        over = ("Complete", "Failed")
        if any(c.get("type") in over and c.get("status") == "True" for c in status.get("conditions", ())):
            return 0
        parallel = int(spec.get("parallelism", 1))
        completions = spec.get("completions")
        if completions is None:
            return parallel
        left = max(int(completions) - int(status.get("succeeded", 0)), 0)
        if left > parallel:
            self._findings.warn(f"{item.text}: {parallel} of its {left} pods run at a time; those are planned")
        return min(parallel, left)

    def _pods(self, item: Item, template: dict[str, Any], spec: PodSpec, count: int) -> Iterator[Pod]:
        meta = template.get("metadata", {})
        labels = {**meta.get("labels", {}), **_added_labels(item, template)}
        owner = OwnerReference(
            api_version=str(item.document.content.get("apiVersion", "")),
            kind=item.kind,
            name=item.name,
            uid=item.content["metadata"]["uid"],
            controller=True,
        )
        claims = self._claim_templates(item) if item.kind == "StatefulSet" else []
        for number in self._numbers(item, count):
            name = f"{item.name}-{number}"
            yield Pod(
                metadata=ObjectMeta(
                    name=name,
                    namespace=item.namespace,
                    uid=f"uid/{item.namespace}/{name}",
                    labels=labels,
                    annotations=meta.get("annotations", {}),
                    owner_references=(owner,),
                    creation_timestamp=self._next_moment(),
                ),
                spec=self._with_claims(item, spec, claims, name) if claims else spec,
            )

    def _numbers(self, item: Item, count: int) -> Iterator[int]:
        number = int(item.content["spec"].get("ordinals", {}).get("start", 0))
        while count:
            name = f"{item.namespace}/{item.name}-{number}"
            if name not in self._names:
                self._names.add(name)
                count -= 1
                yield number
            number += 1

    def _claim_templates(self, item: Item) -> list[PersistentVolumeClaim]:
        """Of a StatefulSet; those without a name are faults, and its pods are planned without them."""
        found = []
        for index, raw in enumerate(item.content["spec"].get("volumeClaimTemplates", ())):
            path = f"spec.volumeClaimTemplates[{index}]"
            claim = item.part(raw, PersistentVolumeClaim, self._findings, path)
            if claim is not None and claim.metadata.name:
                found.append(claim)
            elif claim is not None:
                self._findings.fault(item.document.fault("is required", field=f"{path}.metadata.name"))
        return found

    def _with_claims(self, item: Item, spec: PodSpec, templates: Iterable[PersistentVolumeClaim], pod: str) -> PodSpec:
        """The spec of one pod of a StatefulSet: its claims take the place of volumes of their name."""
        volumes = {volume.name: volume for volume in spec.volumes}
        for template in templates:
            claim = f"{template.metadata.name}-{pod}"
            source = PersistentVolumeClaimSource(claim_name=claim)
            volumes[template.metadata.name] = Volume(name=template.metadata.name, persistent_volume_claim=source)
            if self._manifests.find("PersistentVolumeClaim", item.namespace, claim) is None:
                meta = ObjectMeta(name=claim, namespace=item.namespace)
                self._force.claims.append(msgspec.structs.replace(template, metadata=meta))
        return msgspec.structs.replace(spec, volumes=tuple(volumes.values()))


def _added_labels(item: Item, template: dict[str, Any]) -> dict[str, str]:
    """What the controllers put on all pods of one revision. The hash stands for the template, as theirs does.

    What StatefulSets put on each single pod (its name, its index) is left out: it would make every pod one of a kind.
    """
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]
    match item.kind:
        case "Deployment":
            return {HASH_LABEL: digest}
        case "StatefulSet":
            return {"controller-revision-hash": f"{item.name}-{digest}"[:63]}
        case _:
            return {}
