"""Documents sorted by kind: what counts for a plan, checked; what does not, told. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from wainwright.api.nodepools import NodePool
from wainwright.api.syntax import label_key_fault, label_value_fault
from wainwright.api.validation import FieldError, parse_node_pool
from wainwright.sim.apiserver.defaults import apply_defaults
from wainwright.sim.apiserver.kinds import BUILT_IN, Kind
from wainwright.sim.apiserver.types import struct_of
from wainwright.sim.apiserver.validation import validate, validate_metadata
from workers.plan.conform import conformed, unknown_fields, without_nulls
from workers.plan.documents import Document
from workers.plan.findings import Findings

T = TypeVar("T")

NODE_POOL: Final = "NodePool"
KARPENTER_V1: Final = "karpenter.sh/v1"
WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job")
READ: Final = (
    *WORKLOADS,
    "Pod",
    "DaemonSet",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "RuntimeClass",
    "PriorityClass",
    "LimitRange",
    "Namespace",
)
"""Built-in kinds that a plan depends on."""

_OLD: Final = {
    "Provisioner": "write it as a NodePool of karpenter.sh/v1",
    "AWSNodeTemplate": "prices and types come from the catalog; NodeClasses are not read",
    "Machine": "NodeClaims are not read; give Nodes, or use --cluster current",
    "NodeClaim": "NodeClaims are not read; give Nodes, or use --cluster current",
    "CronJob": "its Jobs come and go; give a Job as it is made by it to have its pods counted",
    "HorizontalPodAutoscaler": "the replicas of the manifests are what is planned",
    "PodAutoscaler": "the replicas of the manifests are what is planned",
    "ResourceQuota": "quotas are not applied",
}
_SOFT: Final = re.compile(r"(\.image|\.name|restartPolicy|accessModes|spec\.resources\[storage\])$")
"""What the API server wants and a plan can do without."""


class Item(NamedTuple):
    """An object that can be used. content: with defaults filled in."""

    kind: str
    namespace: str
    name: str
    content: dict[str, Any]
    document: Document

    @property
    def source(self) -> str:
        """`FILE, document N`."""
        return _source(self.document)

    def typed(self, as_type: type[T], findings: Findings) -> T | None:
        """The object as a struct; None, and a fault, where a value is missing or cannot be read."""
        return self.part(self.content, as_type, findings)

    def part(self, content: object, as_type: type[T], findings: Findings, path: str = "") -> T | None:
        """The same for a part of it. path: where the part stands."""
        try:
            return msgspec.convert(content, as_type)
        except msgspec.ValidationError as error:
            message, _, place = str(error).removesuffix("`").partition(" - at `$")
            field = f"{path}{place}".removeprefix(".")
            findings.fault(
                self.document.fault(_lowered(message.removeprefix("Object ")).replace("`", "'"), field=field)
            )
            return None

    @property
    def text(self) -> str:
        """`Deployment web`, `Deployment shop/web`."""
        return f"{self.kind} {self.name}" if self.namespace in ("", "default") else f"{self.kind} {self.key}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Manifests:
    """What was read, by kind, namespace and name; one that comes again takes the place of the first."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str, str], Item] = {}
        self.node_pools: dict[str, NodePool] = {}
        self.refused_pools: dict[str, str] = {}
        """NodePools that do not validate, with why."""

    def add(self, item: Item, findings: Findings) -> None:
        place = (item.kind, item.namespace, item.name)
        if place in self._items:
            findings.warn(
                f"{item.source}: {item.text} is there twice; this one counts, not {self._items[place].source}"
            )
        self._items[place] = item

    def of(self, *kinds: str) -> list[Item]:
        """In the order in which they were read."""
        return [item for item in self._items.values() if item.kind in kinds]

    def typed(self, kind: str, as_type: type[T], findings: Findings) -> list[T]:
        """Those of one kind as structs."""
        return [found for item in self.of(kind) if (found := item.typed(as_type, findings)) is not None]

    def find(self, kind: str, namespace: str, name: str) -> Item | None:
        return self._items.get((kind, namespace, name))

    @property
    def namespaces(self) -> list[str]:
        """Every namespace that something is in."""
        return sorted({item.namespace for item in self._items.values() if item.namespace})


def sort_documents(documents: Iterable[Document], findings: Findings) -> Manifests:
    """Every document checked and put in its place. What cannot be used is a fault, what does not count a warning."""
    manifests = Manifests()
    ignored: Counter[str] = Counter()
    for document in documents:
        if document.kind == NODE_POOL:
            _node_pool(document, manifests, findings)
        elif document.kind in READ:
            _built_in(document, manifests, findings)
        elif not document.kind:
            _without_kind(document, findings)
        else:
            ignored[document.kind] += 1
    for kind, count in sorted(ignored.items()):
        findings.warn(_ignored(kind, count))
    return manifests


def _ignored(kind: str, count: int) -> str:
    what = f"ignored: {count} {kind}" + ("" if count == 1 else " objects")
    if kind in _OLD:
        return f"{what}: {_OLD[kind]}"
    if kind in _KIND_NAMES or kind.endswith("NodeClass"):
        return f"{what}: does not matter for capacity"
    near = get_close_matches(kind, (*READ, NODE_POOL), n=1, cutoff=0.75)
    return f"{what}: not a kind that is read here" + (f"; did you mean {near[0]}?" if near else "")


def _without_kind(document: Document, findings: Findings) -> None:
    if document.content.get("schema") == "packing-scenario/v1":
        findings.fault(document.fault("is a packing scenario; give it with --scenario"))
    elif document.content.get("schema") == "packing-catalog/v1":
        findings.fault(document.fault("is a catalog; give it with --catalog"))
    else:
        value = document.content.get("kind")
        findings.fault(document.fault("must name what it is, as Deployment or NodePool", field="kind", value=value))


_KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in reversed(BUILT_IN)}
_KIND_NAMES: Final = frozenset(_KINDS) | {"CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "Gateway"}


def _built_in(document: Document, manifests: Manifests, findings: Findings) -> None:
    kind = _KINDS[document.kind]
    _check_version(document, kind, findings)
    struct = struct_of(kind.group, kind.name)
    assert struct is not None, kind.name
    content, faults, unknown = conformed(document.content, struct)
    for fault in faults:
        findings.fault(document.fault(fault.message, field=fault.field, value=_showable(fault.value)))
    for text in unknown:
        findings.warn(f"{_place(document)}: {text}; ignored here, the API server would refuse it")
    if faults:
        return
    item = _named(document, kind, content, findings)
    if item is None or not _is_valid(document, kind, item.content, findings):
        return
    manifests.add(item, findings)


def _check_version(document: Document, kind: Kind, findings: Findings) -> None:
    version = document.content.get("apiVersion")
    if version != kind.api_version:
        given = f"apiVersion {version!r}" if version is not None else "no apiVersion"
        findings.warn(f"{_place(document)}: has {given}; read as {kind.api_version}")


def _named(document: Document, kind: Kind, content: dict[str, Any], findings: Findings) -> Item | None:
    metadata = content.setdefault("metadata", {})
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + "0"
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    if not metadata.get("uid"):
        metadata["uid"] = _uid(kind, metadata.get("namespace", ""), str(metadata.get("name", "")))
    faults = list(validate_metadata(kind, {**metadata, "ownerReferences": []}))
    for fault in faults:
        value = _at(document.content, fault.field)
        findings.fault(document.fault(_lowered(fault.message), field=fault.field, value=_showable(value)))
    if faults:
        return None
    return Item(kind.name, metadata.get("namespace", ""), metadata["name"], content, document)


def _uid(kind: Kind, namespace: str, name: str) -> str:
    """The same for the same name; of a Job, a label value (its pods carry it as one)."""
    return f"uid/{namespace}/{name}" if kind.name == "Pod" else f"{namespace}.{name}"[:63].strip("-.")


def _is_valid(document: Document, kind: Kind, content: dict[str, Any], findings: Findings) -> bool:
    _select_own_labels(document, kind, content, findings)
    apply_defaults(kind, content)
    sound = True
    for fault in _faults(kind, content):
        if _SOFT.search(fault.path) and "required" in fault.message:
            findings.warn(f"{_place(document)}: {fault.path}: {fault.message}; counted all the same")
        else:
            sound = False
            findings.fault(document.fault(fault.message, field=fault.path, value=fault.value))
    return sound


def _select_own_labels(document: Document, kind: Kind, content: dict[str, Any], findings: Findings) -> None:
    """A workload without a selector, which most must have, is taken to select the labels of its template."""
    if kind.name not in (*WORKLOADS, "DaemonSet") or kind.name == "Job":
        return
    spec = content.setdefault("spec", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if kind.name == "ReplicationController":
        spec["selector"] = {"matchLabels": spec.get("selector") or labels}
    elif not spec.get("selector"):
        spec["selector"] = {"matchLabels": labels}
        findings.warn(f"{_place(document)}: spec.selector: is required; taken to be the labels of the template")


def _faults(kind: Kind, content: dict[str, Any]) -> Iterator[FieldError]:
    for fault in validate(kind, content):
        yield FieldError(path=fault.field, value=_at(content, fault.field), message=_lowered(fault.message))
    if kind.name in READ:
        template = content.get("spec", {}).get("template", {}) if kind.name != "Pod" else {}
        labels = template.get("metadata", {}).get("labels", {})
        for key, value in labels.items():
            if message := label_key_fault(key) or label_value_fault(value):
                yield FieldError(path=f"spec.template.metadata.labels[{key}]", value=value, message=message)


def _lowered(message: str) -> str:
    """The API server's message as the end of one of our sentences; its regular expressions say less than words."""
    if "RFC 1123" in message:
        return "must be lower-case letters, digits, '-' or '.', and begin and end with a letter or digit"
    text = re.sub(r"^(Invalid value|Unsupported value|Duplicate value): (\"[^\"]*\"|[^:]*): ", "", message)
    text = text.replace("Required value", "is required")
    return text[:1].lower() + text[1:]


def _at(content: Any, path: str) -> Any:
    """What stands at a path as `spec.containers[0].name`; None where nothing does."""
    for name, place in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", path):
        step = name or place
        if isinstance(content, dict):
            content = content.get(step)
        elif isinstance(content, list) and step.isdecimal() and int(step) < len(content):
            content = content[int(step)]
        else:
            return None
    return content


def _node_pool(document: Document, manifests: Manifests, findings: Findings) -> None:
    version = document.content.get("apiVersion")
    if isinstance(version, str) and version.startswith("karpenter.sh/") and version != KARPENTER_V1:
        findings.fault(
            document.fault(f"must be {KARPENTER_V1}; convert the older form first", field="apiVersion", value=version)
        )
        return
    if version != KARPENTER_V1:
        findings.warn(f"{_place(document)}: has apiVersion {version!r}; read as {KARPENTER_V1}")
    content = without_nulls(document.content)
    for text in unknown_fields(content, NodePool):
        findings.warn(f"{_place(document)}: {text}; ignored here, the API server would refuse it")
    pool, faults = parse_node_pool(content)
    name = pool.name if pool is not None else str(_at(content, "metadata.name") or "")
    if pool is not None and not name:
        faults = [FieldError(path="metadata.name", value=name, message="is required")]
    for fault in faults:
        findings.fault(document.fault(fault.message, field=fault.path, value=_showable(fault.value)))
    if faults or pool is None:
        if name:
            manifests.refused_pools[name] = "; ".join(str(fault) for fault in faults)
        return
    if pool.spec.replicas is not None:
        findings.warn(f"{_place(document)}: has a fixed number of replicas; it gets no nodes for pending pods")
        manifests.refused_pools[name] = "it has a fixed number of replicas"
        return
    if name in manifests.node_pools:
        findings.warn(f"{_place(document)}: NodePool {name} is there twice; this one counts")
    manifests.refused_pools.pop(name, None)
    manifests.node_pools[name] = pool


def _showable(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float, list, dict, tuple)) else str(value)


def _source(document: Document) -> str:
    return f"{document.file}, document {document.number}"


def _place(document: Document) -> str:
    return f"{_source(document)} ({document.what})" if document.what else _source(document)
