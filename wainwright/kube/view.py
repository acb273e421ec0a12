"""The cluster view in Redis: what is kept of each kind, how it is written, how it is read.

Written by the one active watcher: every write carries its epoch and fence and is refused under others. Read by whoever
decides: in one atomic step, and refused while it is incomplete or stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from wainwright.api.daemonsets import DaemonSet
from wainwright.api.meta import ObjectMeta
from wainwright.api.namespaces import Namespace
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Node
from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.api.pods import Pod
from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.api.workloads import Workload
from wainwright.batching.store import Argument, Store, translated
from wainwright.errors import FenceLost, ViewNotReady
from wainwright.kube import resources
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import Resource

T = TypeVar("T")

STALE_SECONDS: Final = 30.0
"""A view none of whose watches showed life for this long must not be decided on (design §4)."""


class Kind(NamedTuple):
    """A watched kind. name: `view:<name>`. required: its absence from the API server (no CRD) is an error."""

    name: str
    resource: Resource
    as_type: type[Any]
    required: bool


def _kind(resource: Resource, as_type: type[Any], *, required: bool = True) -> Kind:
    return Kind(resource.plural, resource, as_type, required)


KINDS: Final = (
    _kind(resources.NODE_CLAIMS, NodeClaim),
    _kind(resources.NODES, Node),
    _kind(resources.PODS, Pod),
    _kind(resources.NODE_POOLS, NodePool),
    _kind(resources.DAEMON_SETS, DaemonSet),
    _kind(resources.NAMESPACES, Namespace),
    _kind(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, required=False),
    _kind(resources.PERSISTENT_VOLUMES, PersistentVolume, required=False),
    _kind(resources.STORAGE_CLASSES, StorageClass, required=False),
    _kind(resources.CSI_NODES, CsiNode, required=False),
    _kind(resources.POD_AUTOSCALERS, PodAutoscaler, required=False),
    _kind(resources.DEPLOYMENTS, Workload, required=False),
    _kind(resources.STATEFUL_SETS, Workload, required=False),
)
"""In the order in which they are listed: a pod on a node, a node of a claim are then never older than what they
refer to (design §4)."""
ORDERED_KINDS: Final = 3
"""How many of them must be listed one after the other; the rest follows in any order."""
KINDS_BY_NAME: Final = {kind.name: kind for kind in KINDS}


class EpochOver(FenceLost):
    """The view is in another epoch, or Redis came back empty: list anew under a new one."""


class Fenced(FenceLost):
    """The view was written under a higher fence."""

    def __init__(self, mine: int, fence: int) -> None:
        super().__init__(f"the view was written under fence {fence}, ours is {mine}")
        self.fence = fence


# What is kept ---------------------------------------------------------------------------------------------------------

_KEPT_DOMAINS: Final = ("karpenter.sh/", "wainwright.dev/", "autoscaling.knative.dev/", "serving.knative.dev/")
_KEPT_ANNOTATIONS: Final = frozenset(
    {"controller.kubernetes.io/pod-deletion-cost", "cluster-autoscaler.kubernetes.io/safe-to-evict"}
)
_encode = msgspec.json.Encoder().encode


def trimmed(thing: T) -> T:
    """The object without annotations that nothing here reads (a pod's can be larger than the rest of it)."""
    meta: ObjectMeta = thing.metadata  # type: ignore[attr-defined]
    if not meta.annotations:
        return thing
    kept = {k: v for k, v in meta.annotations.items() if k.startswith(_KEPT_DOMAINS) or k in _KEPT_ANNOTATIONS}
    if len(kept) == len(meta.annotations):
        return thing
    replaced: T = msgspec.structs.replace(thing, metadata=msgspec.structs.replace(meta, annotations=kept))  # type: ignore[type-var]
    return replaced


def shape(thing: Pod | Node) -> int:
    """Changes whenever something does that matters for where pods can go; annotations and heartbeats do not."""
    meta = thing.metadata
    if isinstance(thing, Pod):
        return hash(_encode((meta.labels, thing.spec)))
    status = thing.status
    return hash(_encode((meta.labels, thing.spec, status.allocatable, thing.is_ready, meta.deletion_timestamp is None)))


class PodState(StrEnum):
    """What the view says of a pod besides the object."""

    PROVISIONABLE = "p"
    UNBOUND = "u"
    BOUND = "b"

    @classmethod
    def of(cls, pod: Pod) -> PodState:
        if pod.is_provisionable:
            return cls.PROVISIONABLE
        return cls.BOUND if pod.is_bound else cls.UNBOUND


# Writing --------------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """One change of the view. thing: the pod of a `put` that waits for capacity; else None, so that nothing is kept."""

    op: str
    kind: str
    key: str
    uid: str
    resource_version: str
    state: str
    value: bytes
    thing: Pod | None = None

    @classmethod
    def put(cls, kind: str, thing: Any, *, shape_changed: bool = False) -> Change:
        """thing: an object of wainwright.api. shape_changed: see `shape`."""
        meta: ObjectMeta = thing.metadata
        state, waiting = "", None
        if isinstance(thing, Pod):
            pod_state = PodState.of(thing)
            state = pod_state.value
            waiting = thing if pod_state is PodState.PROVISIONABLE else None
        if shape_changed:
            state += "c"
        return cls("put", kind, meta.key, meta.uid, meta.resource_version, state, _encode(trimmed(thing)), waiting)

    @classmethod
    def delete(cls, kind: str, meta: ObjectMeta) -> Change:
        return cls("del", kind, meta.key, meta.uid, meta.resource_version, "", b"")

    @classmethod
    def undecodable(cls, kind: str, bad: Undecodable) -> Change:
        reason = _encode({"reason": f"cannot be decoded: {bad.why}", "what": bad.key})
        return cls("bad", kind, bad.key, bad.uid, bad.resource_version, "", reason)

    @classmethod
    def progress(cls, kind: str, resource_version: str) -> Change:
        return cls("progress", kind, "", "", resource_version, "", b"")

    @classmethod
    def listed(cls, kind: str, resource_version: str, keys: Collection[str], unbound: Collection[str]) -> Change:
        """keys: all that exist. unbound: for pods, the UIDs of those not bound."""
        value = _encode({"keys": list(keys), "unbound": list(unbound)})
        return cls("listed", kind, "", "", resource_version, "", value)


class ViewWriter:
    """The view under one epoch and fence. Every method raises Fenced when a watcher with a higher fence has written,
    EpochOver when the epoch is another, and StoreUnavailable (all may be repeated).
    """

    def __init__(self, store: Store, *, epoch: str, fence: int, holder: str) -> None:
        self.epoch = epoch
        self.fence = fence
        self._store = store
        self._holder = holder

    def begin(self) -> str:
        """Starts the epoch with an empty view; the epoch in which claims were adopted, or "" for data without."""
        answer = self._store.run("view_begin", self.epoch, self.fence, self._holder, *KINDS_BY_NAME)
        if answer[0] == "fenced":
            raise Fenced(self.fence, int(answer[1]))
        return str(answer[1])

    def apply(self, changes: Sequence[Change]) -> list[Pod]:
        """Carries the changes out in order, all in one step; the pods among them that wait for capacity and are
        nowhere yet. Without changes it only asks whether we may still write.
        """
        arguments: list[Argument] = []
        for change in changes:
            arguments += change[:7]
        answer = self._checked("view_apply", *arguments)
        waiting = [changes[int(number) - 1].thing for number in answer[1:]]
        return [pod for pod in waiting if pod is not None]

    def complete(self, kinds: Iterable[str] = KINDS_BY_NAME) -> bool:
        """Marks the view complete; False while a kind was not listed or claims were not adopted."""
        return bool(self._checked("view_complete", *kinds) == [])

    def missing(self) -> list[tuple[str, str]]:
        """UID and key of the pods that wait for capacity and are nowhere; none while the view is incomplete."""
        answer = self._checked("view_missing")
        return list(zip(answer[::2], answer[1::2], strict=True))

    def _checked(self, script: str, *arguments: Argument) -> list[Any]:
        """What follows after `ok`; the answer as it is when it is another one that is no refusal."""
        answer = self._store.run(script, self.epoch, self.fence, *arguments)
        if answer[0] == "fenced":
            raise Fenced(self.fence, int(answer[1]))
        if answer[0] == "epoch":
            raise EpochOver(f"the view is not in epoch {self.epoch} any more")
        if answer[0] == "incomplete":
            return []
        return list(answer[1:] if answer[0] == "ok" else answer)


# Reading --------------------------------------------------------------------------------------------------------------


class ViewReading:
    """The view as it was at one instant. kinds read: those asked for; objects are decoded when asked for."""

    def __init__(
        self, meta: Mapping[str, str], raw: Mapping[str, Sequence[bytes]], now_ms: int, extra: Sequence[Any] = ()
    ) -> None:
        self.epoch = meta.get("epoch", "")
        self.complete = meta.get("complete") == "1"
        self.version = int(meta.get("version", "0"))
        self.now_ms = now_ms
        self.progress_age_seconds = {
            field.removeprefix("progress:"): max(0.0, (now_ms - int(value)) / 1000)
            for field, value in meta.items()
            if field.startswith("progress:")
        }
        self.raw = raw
        self.extra = extra

    def objects(self, kind: str, as_type: type[T] | None = None) -> list[T]:
        """The objects of a kind. as_type: another struct than the usual one, to decode less."""
        decoder = msgspec.json.Decoder(as_type or KINDS_BY_NAME[kind].as_type)
        return [decoder.decode(text) for text in self.raw[kind]]

    @property
    def pods(self) -> list[Pod]:
        return self.objects("pods")

    @property
    def nodes(self) -> list[Node]:
        return self.objects("nodes")

    @property
    def node_claims(self) -> list[NodeClaim]:
        return self.objects("nodeclaims")

    @property
    def node_pools(self) -> list[NodePool]:
        return self.objects("nodepools")


def check_view(meta: Mapping[str, str], now_ms: int, *, stale_seconds: float = STALE_SECONDS) -> None:
    """Raises ViewNotReady, with the reason, unless the view is there, complete, and every watch showed life lately."""
    if not meta.get("epoch"):
        raise ViewNotReady("there is no cluster view: no watcher has written one yet")
    if meta.get("complete") != "1":
        raise ViewNotReady("the cluster view is not complete yet: the watcher is still listing")
    for field, value in sorted(meta.items()):
        if field.startswith("progress:") and now_ms - int(value) > stale_seconds * 1000:
            kind, age = field.removeprefix("progress:"), (now_ms - int(value)) / 1000
            raise ViewNotReady(f"the watch of {kind} has shown no sign of life for {age:.0f} s")


def read_view(
    store: Store,
    kinds: Iterable[str] | Mapping[str, Sequence[str]],
    *,
    extra: Sequence[tuple[str, ...]] = (),
    require_ready: bool = True,
) -> ViewReading:
    """The view in one atomic step. kinds: whole kinds, or for each kind the keys wanted (missing ones are left out).

    extra: Redis commands carried out in the same step; their raw answers are in `extra`. require_ready: False reads
    also what must not be decided on. Raises ViewNotReady with the reason, StoreUnavailable.
    """
    wanted = {kind: kinds[kind] if isinstance(kinds, Mapping) else None for kind in kinds}
    with translated():
        pipe = store.raw.pipeline(transaction=True)
        pipe.time()
        pipe.hgetall(store.keys.view_meta)
        for kind, names in wanted.items():
            if names is None:
                pipe.hvals(store.keys.view(kind))
            elif names:
                pipe.hmget(store.keys.view(kind), list(names))
        for command in extra:
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        answers = pipe.execute()
    (seconds, microseconds), raw_meta, *rest = answers
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    meta = {field.decode(): value.decode() for field, value in raw_meta.items()}
    if require_ready:
        check_view(meta, now_ms)
    raw: dict[str, Sequence[bytes]] = {}
    for kind, names in wanted.items():
        raw[kind] = [text for text in rest.pop(0) if text is not None] if names is None or names else []
    return ViewReading(meta, raw, now_ms, rest)
