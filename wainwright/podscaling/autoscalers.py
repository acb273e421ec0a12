"""The autoscalers there are: each PodAutoscaler with its settings derived, its faults named, and its shard."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from wainwright.api.podautoscalers import SOURCE_TYPES, MetricSource, PodAutoscaler
from wainwright.autoscaling.annotations import parse_annotations
from wainwright.autoscaling.arrays import SpecArrays
from wainwright.autoscaling.config import KPA_CLASS, AutoscalerConfig
from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.scale import ScalePolicy, derive_scale_policy
from wainwright.autoscaling.spec import DeciderSpec, Reachability, derive_spec
from wainwright.podscaling.samples import NAME_SEPARATOR
from wainwright.podscaling.sharding import shard_of

_encode = msgspec.json.Encoder().encode
_DETAILS: Final = {
    "pods": "pods",
    "celery": "celery",
    "redisStream": "redis_stream",
    "redisList": "redis_list",
    "prometheus": "prometheus",
    "push": "push",
}
_NEEDS_DETAIL: Final = frozenset(SOURCE_TYPES) - {"pods", "push"}


class TargetKey(NamedTuple):
    """What is scaled."""

    namespace: str
    api_version: str
    kind: str
    name: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Autoscaler(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One PodAutoscaler, ready to be decided. spec_text: the decider's parameters as JSON. faults: in annotations,
    which then count as absent. refused: faults in its spec; it cannot work until they are mended. rival: key of the
    older PodAutoscaler that scales the same target; empty: the target is ours. is_initial_named: an annotation says
    how many pods it starts with.
    """

    key: str
    shard: int
    pa: PodAutoscaler
    target: TargetKey
    spec: DeciderSpec
    spec_text: bytes
    policy: ScalePolicy
    sources: Mapping[str, MetricSource]
    faults: tuple[Fault, ...] = ()
    refused: tuple[Fault, ...] = ()
    rival: str = ""
    is_initial_named: bool = False

    @property
    def uid(self) -> str:
        return self.pa.metadata.uid

    @property
    def is_ours_to_scale(self) -> bool:
        return not self.refused and not self.rival and not self.pa.is_terminating


def spec_faults(pa: PodAutoscaler) -> tuple[Fault, ...]:
    """What the schema cannot say: names are unique, each source says where, and in one way."""
    faults: list[Fault] = []
    seen: set[str] = set()
    if not pa.spec.metrics:
        faults.append(Fault("spec.metrics", "[]", "must name at least one source"))
    if not pa.spec.scale_target_ref.name:
        faults.append(Fault("spec.scaleTargetRef.name", "", "must not be empty"))
    for number, source in enumerate(pa.spec.metrics):
        where = f"spec.metrics[{number}]"
        if source.type not in SOURCE_TYPES:
            faults.append(Fault(f"{where}.type", source.type, f"must be one of {', '.join(SOURCE_TYPES)}"))
            continue
        if source.title in seen:
            faults.append(Fault(f"{where}.name", source.title, "is the name of another source too"))
        if NAME_SEPARATOR in source.title:
            faults.append(Fault(f"{where}.name", source.title, f"must not contain {NAME_SEPARATOR}"))
        seen.add(source.title)
        detail = getattr(source, _DETAILS[source.type])
        if detail is None and source.type in _NEEDS_DETAIL:
            faults.append(Fault(f"{where}.{source.type}", "", "must be there for a source of this type"))
        if getattr(detail, "url", "") and getattr(detail, "connection", ""):
            faults.append(Fault(f"{where}.{source.type}.connection", detail.connection, "excludes url"))
    return tuple(faults)


def define(pa: PodAutoscaler, config: AutoscalerConfig, shards: int) -> Autoscaler | None:
    """The autoscaler of a PodAutoscaler; None when its class is another one's."""
    annotations, faults = parse_annotations(pa.metadata.annotations, config)
    if (annotations.autoscaler_class or config.pod_autoscaler_class) != KPA_CLASS:
        return None
    reachability = Reachability(pa.spec.reachability.lower())
    sources = {source.title: source for source in pa.spec.metrics}
    spec = derive_spec(
        config,
        annotations,
        container_concurrency=pa.spec.container_concurrency,
        reachability=reachability,
        source_reports_by_itself=all(source.type == "push" for source in sources.values()),
    )
    policy = derive_scale_policy(
        config,
        annotations,
        reachability=reachability,
        sees_load_at_zero=any(source.sees_load_at_zero for source in sources.values()),
    )
    reference = pa.spec.scale_target_ref
    return Autoscaler(
        key=pa.key,
        shard=shard_of(pa.key, shards),
        pa=pa,
        target=TargetKey(pa.metadata.namespace, reference.api_version, reference.kind, reference.name),
        spec=spec,
        spec_text=_encode(spec),
        # Nothing buffers requests here, so there is nothing to probe before zero.
        policy=msgspec.structs.replace(policy, probes_buffer=False),
        sources=sources,
        faults=faults,
        refused=spec_faults(pa),
        is_initial_named=annotations.initial_scale is not None,
    )


def with_rivals(autoscalers: Iterable[Autoscaler]) -> list[Autoscaler]:
    """Where several want one target, the oldest has it (then the first by name), and the others say whose it is."""
    by_target: defaultdict[TargetKey, list[Autoscaler]] = defaultdict(list)
    for one in autoscalers:
        by_target[one.target].append(one)
    judged: list[Autoscaler] = []
    for rivals in by_target.values():
        if len(rivals) == 1:
            judged += rivals
            continue
        first, *rest = sorted(rivals, key=lambda one: (one.pa.metadata.creation_timestamp or _NEVER, one.key))
        judged.append(first)
        judged += [msgspec.structs.replace(one, rival=first.key) for one in rest]
    return judged


_NEVER: Final = datetime.fromisoformat("9999-01-01T00:00:00+00:00")


class Roster:
    """Every autoscaler as of one state of the view and the configuration."""

    def __init__(self, autoscalers: Sequence[Autoscaler], shards: int) -> None:
        self.by_key = {one.key: one for one in sorted(autoscalers, key=lambda one: one.key)}
        by_shard: list[list[Autoscaler]] = [[] for _ in range(shards)]
        for one in self.by_key.values():
            by_shard[one.shard].append(one)
        self._shards = [Chosen(one) for one in by_shard]

    def shard(self, number: int) -> Chosen:
        return self._shards[number]

    def named(self, keys: Iterable[str]) -> Chosen:
        """Those that exist."""
        return Chosen([self.by_key[key] for key in dict.fromkeys(keys) if key in self.by_key])


class Chosen:
    """Autoscalers that are decided together. working: those that can work; aside: the others."""

    def __init__(self, autoscalers: Sequence[Autoscaler]) -> None:
        self.working = [one for one in autoscalers if one.is_ours_to_scale]
        self.aside = [one for one in autoscalers if not one.is_ours_to_scale]

    @cached_property
    def specs(self) -> SpecArrays:
        """Of the working ones, in their order."""
        return SpecArrays.of([one.spec for one in self.working])


class RosterCache:
    """Builds rosters, and derives anew only what changed since the last one. Thread-safe."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._lock = threading.Lock()
        self._config: AutoscalerConfig | None = None
        self._defined: dict[bytes, Autoscaler | None] = {}
        self._decoder = msgspec.json.Decoder(PodAutoscaler)
        self._stamp: tuple[str, ...] = ()
        self._roster = Roster((), shards)

    def known(self, stamp: tuple[str, ...], config: AutoscalerConfig) -> Roster | None:
        """The last roster, if it was built under this stamp (of the view) and configuration."""
        with self._lock:
            return self._roster if stamp == self._stamp and config == self._config else None

    def build(self, stamp: tuple[str, ...], config: AutoscalerConfig, texts: Iterable[bytes]) -> Roster:
        """From the PodAutoscalers as JSON. What is no PodAutoscaler is left out (the view names it in `dead`)."""
        with self._lock:
            old = self._defined if config == self._config else {}
            new: dict[bytes, Autoscaler | None] = {}
            for text in texts:
                if text in old:
                    new[text] = old[text]
                    continue
                try:
                    pa = self._decoder.decode(text)
                    new[text] = define(pa, config, self._shards)
                except ValueError:
                    continue
            self._defined, self._config, self._stamp = new, config, stamp
            self._roster = Roster(with_rivals(one for one in new.values() if one is not None), self._shards)
            return self._roster
