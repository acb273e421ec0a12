"""Ready pods of targets, from the cluster view: read once for all autoscalers, and only when pods changed."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import Condition, LabelSelector
from wainwright.api.workloads import Workload
from wainwright.batching.store import Store, translated
from wainwright.podscaling.autoscalers import Autoscaler
from wainwright.podscaling.sources.pods import PodAddress
from wainwright.podscaling.targets import VIEWED

_PODS: Final = "pods"


class _Meta(Resource):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class _Status(Resource):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(Resource):
    """What is read of a pod here: a fraction of it."""

    metadata: _Meta
    status: _Status = _Status()

    @property
    def can_be_asked(self) -> bool:
        status = self.status
        return (
            status.phase == "Running"
            and bool(status.pod_ip)
            and self.metadata.deletion_timestamp is None
            and any(c.type == "Ready" and c.status == "True" for c in status.conditions)
        )


_POD: Final = msgspec.json.Decoder(_Pod)
_WORKLOAD: Final = msgspec.json.Decoder(Workload)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Does the selector match? None matches nothing."""
    if selector is None or any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for one in selector.match_expressions:
        value = labels.get(one.key)
        match one.operator:
            case "In":
                fits = value in one.values
            case "NotIn":
                fits = value not in one.values
            case "Exists":
                fits = value is not None
            case _:
                fits = value is None
        if not fits:
            return False
    return True


class PodIndex:
    """Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._version = ""
        self._by_namespace: Mapping[str, Sequence[_Pod]] = {}

    def ready(self, autoscalers: Iterable[Autoscaler]) -> dict[str, list[PodAddress]]:
        """Pods that can be asked, by autoscaler; of targets in the view only. Raises StoreUnavailable."""
        wanted = [one for one in autoscalers if (one.target.group, one.target.kind) in VIEWED]
        if not wanted:
            return {}
        keys = self._store.keys
        kinds = [VIEWED[one.target.group, one.target.kind].plural for one in wanted]
        with translated():
            pipe: Any = self._store.raw.pipeline(transaction=False)
            pipe.hmget(keys.view_meta, "epoch", f"rv:{_PODS}")
            for kind in sorted(set(kinds)):
                names = [one.target.key for one, of in zip(wanted, kinds, strict=True) if of == kind]
                pipe.hmget(keys.view(kind), names)
            meta, *answers = pipe.execute()
        texts = {kind: iter(answer) for kind, answer in zip(sorted(set(kinds)), answers, strict=True)}
        pods = self._pods(b"/".join(part or b"" for part in meta).decode())
        found: dict[str, list[PodAddress]] = {}
        for one, kind in zip(wanted, kinds, strict=True):
            text = next(texts[kind])
            if text is None:
                continue
            selector = _WORKLOAD.decode(text).spec.selector
            found[one.key] = [
                PodAddress(pod.metadata.name, pod.status.pod_ip, pod.metadata.creation_timestamp)
                for pod in pods.get(one.target.namespace, ())
                if selects(selector, pod.metadata.labels)
            ]
        return found

    def _pods(self, version: str) -> Mapping[str, Sequence[_Pod]]:
        with self._lock:
            if version == self._version:
                return self._by_namespace
            with translated():
                texts: Any = self._store.raw.hvals(self._store.keys.view(_PODS))
            by_namespace: defaultdict[str, list[_Pod]] = defaultdict(list)
            for text in texts:
                pod = _POD.decode(text)
                if pod.can_be_asked:
                    by_namespace[pod.metadata.namespace].append(pod)
            self._version, self._by_namespace = version, by_namespace
            return by_namespace
