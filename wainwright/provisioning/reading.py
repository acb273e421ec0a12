"""Reads everything a solve looks at in one atomic step: the cluster view, the claims' records, the live plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.nodes import Taint
from wainwright.api.pods import Pod, PodStatus, Toleration
from wainwright.batching.store import Store, translated
from wainwright.kube.view import KINDS_BY_NAME, check_view
from wainwright.provisioning.snapshots import ClaimState, ClusterState
from wainwright.scheduling.instance_types import OfferingKey

T = TypeVar("T")

SOLVE_KINDS: Final = (
    "nodeclaims",
    "nodes",
    "pods",
    "nodepools",
    "daemonsets",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
)
"""What a solve looks at; the view has other kinds too."""


class ClusterReader:
    """Reads ClusterStates; keeps what it decoded, so that the next reading decodes only what changed.

    One per process; not for several threads at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoders = {kind: msgspec.json.Decoder(KINDS_BY_NAME[kind].as_type) for kind in SOLVE_KINDS}
        self._known: dict[str, dict[bytes, tuple[int, Any]]] = {kind: {} for kind in SOLVE_KINDS}
        """By kind and name: hash of the text (the texts of 10,000 pods take 13 MB), what it was decoded to."""

    def fetch(self) -> list[Any]:
        """Everything as Redis has it at one instant. Raises StoreUnavailable."""
        store, keys = self._store, self._store.keys
        with translated():
            pipe = store.raw.pipeline(transaction=True)
            pipe.time()
            pipe.hgetall(keys.view_meta)
            pipe.hgetall(keys.planned)
            pipe.zrange(keys.unavailable, 0, -1, withscores=True)
            pipe.hgetall(keys.refused)
            for kind in SOLVE_KINDS:
                pipe.hgetall(keys.view(kind))
            store.queue(pipe, "claims_read")
            answers: list[Any] = pipe.execute()
        return answers

    def decode(self, answers: list[Any]) -> ClusterState:
        """What `fetch` answered, as structs. Raises ViewNotReady with the reason."""
        (seconds, microseconds), meta, planned, unavailable, refused, *kinds, claims = answers
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        check_view(_text(meta), now_ms)
        objects = {kind: self._decode(kind, raw) for kind, raw in zip(SOLVE_KINDS, kinds, strict=True)}
        return ClusterState(
            epoch=meta[b"epoch"].decode(),
            version=int(meta.get(b"version", b"0")),
            read_at=datetime.fromtimestamp(now_ms / 1000, tz=UTC),
            pods=objects["pods"],
            nodes=objects["nodes"],
            node_claims=objects["nodeclaims"],
            node_pools=objects["nodepools"],
            daemon_sets=objects["daemonsets"],
            persistent_volume_claims=objects["persistentvolumeclaims"],
            persistent_volumes=objects["persistentvolumes"],
            storage_classes=objects["storageclasses"],
            csi_nodes=objects["csinodes"],
            namespaces={item.metadata.name: item.metadata.labels for item in objects["namespaces"]},
            claims=tuple(_claim(name, fields) for name, fields in claims),
            planned={PodUid(uid.decode()): value.decode().split(" ")[0] for uid, value in planned.items()},
            unavailable=frozenset(
                OfferingKey(*member.decode().split("/", 2)) for member, until in unavailable if until > now_ms
            ),
            refused=_refused(refused, now_ms),
        )

    def _decode(self, kind: str, raw: Mapping[bytes, bytes]) -> tuple[Any, ...]:
        known, decoder = self._known[kind], self._decoders[kind]
        fresh: dict[bytes, tuple[int, Any]] = {}
        for name, text in raw.items():
            old, digest = known.get(name), hash(text)
            if old is None or old[0] != digest:
                thing = decoder.decode(text)
                old = digest, lean(thing) if kind == "pods" else thing
            fresh[name] = old
        self._known[kind] = fresh
        return tuple(item for _, item in fresh.values())


def lean(pod: Pod) -> Pod:
    """A bound pod with no more status than decisions need, and with tolerations that equal pods share: 40 % less."""
    if not pod.is_bound:
        return pod
    spec = msgspec.structs.replace(pod.spec, tolerations=_shared(pod.spec.tolerations))
    return msgspec.structs.replace(pod, spec=spec, status=_status(pod.status.phase))


@lru_cache(maxsize=1000)
def _shared(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations


@lru_cache(maxsize=10)
def _status(phase: str) -> PodStatus:
    return PodStatus(phase=phase)


def _text(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in raw.items()}


class _Refusal(msgspec.Struct):
    reason: str
    message: str
    until_ms: float


def _refused(entries: Mapping[bytes, bytes], now_ms: int) -> dict[str, str]:
    """Sentences by UID of NodePool, for those that are refused still."""
    found = {uid.decode(): msgspec.json.decode(text, type=_Refusal) for uid, text in entries.items()}
    return {
        uid: f"the cloud refused its last launch for good ({refusal.reason}: {refusal.message}); it is asked again in "
        f"{(refusal.until_ms - now_ms) / 1000:.0f} s at the earliest"
        for uid, refusal in sorted(found.items())
        if refusal.until_ms > now_ms
    }


def _claim(name: bytes, flat: list[bytes]) -> ClaimState:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))

    def of(field: bytes, kind: type[T], default: bytes) -> T:
        return msgspec.json.decode(fields.get(field) or default, type=kind)

    return ClaimState(
        name=name.decode(),
        state=fields[b"state"].decode(),
        node=fields.get(b"node", b"").decode(),
        node_pool=fields.get(b"nodepool", b"").decode(),
        labels=of(b"labels", dict[str, str], b"{}"),
        taints=of(b"taints", tuple[Taint, ...], b"[]"),
        allocatable=of(b"allocatable", dict[str, int], b"{}"),
        capacity=of(b"capacity", dict[str, int], b"{}"),
        price=float(fields.get(b"price") or 0),
    )
