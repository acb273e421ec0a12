"""How the autoscalers stand: read from Redis alone, as anyone could with redis-cli (docs/redis.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.batching.store import Store, translated
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.podscaling.records import SourceRecord, decode_record


class SourceState(msgspec.Struct, kw_only=True):
    """load: newest sample, None before the first. age_seconds: since it was measured. message: what it counts, or why
    it cannot be read.
    """

    name: str
    load: float | None
    age_seconds: float | None
    failing: bool
    message: str


class ScalingAct(msgspec.Struct, kw_only=True):
    age_seconds: float
    before: int
    after: int
    reason: str
    why: str


class AutoscalerState(msgspec.Struct, kw_only=True):
    """desired: last wish, -1 for none yet. actual: ready pods, None when unknown. decided_seconds: since its last
    decision.
    """

    name: str
    target: str
    desired: int
    actual: int | None
    panic: bool
    stable_value: float | None
    panic_value: float | None
    target_value: float | None
    verdict: str
    limits: list[str]
    condition: str
    decided_seconds: float | None
    sources: list[SourceState]
    acts: list[ScalingAct]


class KpaStatus(msgspec.Struct, kw_only=True):
    """config: where the settings in force come from, and what is wrong with newer ones."""

    autoscalers: list[AutoscalerState]
    config: str
    inbox: dict[str, int]


def read_kpa_status(store: Store, only: str = "", *, shards: int) -> KpaStatus:
    """only: `namespace/name` of the one to be told of, with its latest acts; empty: all. Raises StoreUnavailable."""
    keys = store.keys
    view = keys.view(POD_AUTOSCALERS.plural)
    with translated():
        pipe: Any = store.raw.pipeline(transaction=False)
        pipe.time()
        pipe.hmget(view, only) if only else pipe.hvals(view)
        pipe.get(keys.kpa_config)
        for shard in range(shards):
            pipe.xlen(keys.kpa_inbox(shard))
        (seconds, micros), texts, config, *lengths = pipe.execute()
        pas = [msgspec.json.decode(text, type=PodAutoscaler) for text in texts if text is not None]
        pas.sort(key=lambda pa: pa.key)
        pipe = store.raw.pipeline(transaction=False)
        for pa in pas:
            pipe.get(keys.kpa_state(pa.key))
            pipe.hget(keys.kpa_specs, pa.key)
            pipe.xrevrange(keys.kpa_log(pa.key), count=10 if only else 1)
        answers = pipe.execute()
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    rows = zip(pas, answers[::3], answers[1::3], answers[2::3], strict=True)
    states = [_state(pa, text, spec, log, now_ms) for pa, text, spec, log in rows]
    return KpaStatus(
        autoscalers=states,
        config=_config(config),
        inbox={str(shard): int(length) for shard, length in enumerate(lengths) if length},
    )


def _state(pa: PodAutoscaler, text: bytes | None, spec: bytes | None, log: Any, now_ms: int) -> AutoscalerState:
    record = decode_record(text)
    last = record.last if record is not None else None
    ready = pa.condition("Ready")
    reference = pa.spec.scale_target_ref
    return AutoscalerState(
        name=pa.key,
        target=f"{reference.kind} {reference.name}",
        desired=record.state.desired if record is not None else -1,
        actual=pa.status.actual_scale,
        panic=record is not None and record.state.panic_since_ms is not None,
        stable_value=last.stable_value if last is not None else None,
        panic_value=last.panic_value if last is not None else None,
        target_value=msgspec.json.decode(spec, type=DeciderSpec).target if spec is not None else None,
        verdict=str(last.verdict) if last is not None else "",
        limits=[str(limit) for limit in last.limits] if last is not None else [],
        condition=_condition(ready),
        decided_seconds=round((now_ms - record.decided_ms) / 1000, 1) if record is not None else None,
        sources=[_source(name, source, now_ms) for name, source in sorted(record.sources.items())]
        if record is not None
        else [],
        acts=[_act(identity, fields, now_ms) for identity, fields in log],
    )


def _condition(ready: Any) -> str:
    if ready is None:
        return "new"
    return "Ready" if ready.status == "True" else f"{ready.reason}: {ready.message}".removesuffix(": ")


def _source(name: str, source: SourceRecord, now_ms: int) -> SourceState:
    values = source.windows.stable.values if source.windows is not None else ()
    return SourceState(
        name=name,
        load=values[-1] if values else None,
        age_seconds=round(now_ms / 1000 - source.last_s, 1) if values else None,
        failing=source.failed_s > source.last_s,
        message=source.message,
    )


def _act(identity: bytes, fields: dict[bytes, bytes], now_ms: int) -> ScalingAct:
    at_ms = int(identity.partition(b"-")[0])
    return ScalingAct(
        age_seconds=round((now_ms - at_ms) / 1000, 1),
        before=int(fields[b"from"]),
        after=int(fields[b"to"]),
        reason=fields[b"reason"].decode(),
        why=fields[b"why"].decode(),
    )


def _config(text: bytes | None) -> str:
    if text is None:
        return "not looked at yet"
    stored: dict[str, Any] = msgspec.json.decode(text)
    faults = stored.get("faults") or []
    if faults:
        told = "; ".join(f"{fault['key']} = {fault['value']!r}: {fault['problem']}" for fault in faults)
        kept = "the last valid one stays in force" if stored.get("data") is not None else "nothing is scaled"
        return f"refused ({told}); {kept}"
    return f"version {stored['seen']}" if stored.get("seen") else "defaults (there is no ConfigMap)"


def render_kpa_status(status: KpaStatus, *, detailed: bool) -> RenderableType:
    """For a terminal of 80 columns. detailed: sources and scaling acts of each."""
    table = Table("PodAutoscaler", "load", "panic load", "a pod", "desired", "actual", "is", title_justify="left")
    for one in status.autoscalers:
        is_ = "panic" if one.panic else one.condition
        table.add_row(
            one.name,
            _number(one.stable_value),
            _number(one.panic_value),
            _number(one.target_value),
            "-" if one.desired < 0 else str(one.desired),
            "-" if one.actual is None else str(one.actual),
            is_,
        )
    parts: list[RenderableType] = [Text(f"config-autoscaler: {status.config}"), table]
    for one in status.autoscalers if detailed else ():
        parts += [*_sources(one.sources), *_acts(one.acts)]
    return Group(*parts)


def _sources(sources: Sequence[SourceState]) -> list[RenderableType]:
    if not sources:
        return [Text("no source has said anything yet", style="yellow")]
    table = Table("source", "load", "age", "counts", title="sources", title_justify="left")
    for one in sources:
        age = "-" if one.age_seconds is None else f"{one.age_seconds:.0f} s"
        table.add_row(one.name, _number(one.load), age, f"FAILING: {one.message}" if one.failing else one.message)
    return [table]


def _acts(acts: Sequence[ScalingAct]) -> list[RenderableType]:
    table = Table("ago", "from", "to", "reason", "why", title="last scaling acts", title_justify="left")
    for one in acts:
        table.add_row(f"{one.age_seconds:.0f} s", str(one.before), str(one.after), one.reason, one.why)
    return [table] if acts else [Text("it was not scaled within a day")]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
