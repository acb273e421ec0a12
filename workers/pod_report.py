"""What `wainwright pod` tells: everything that was decided for one pod, from the records."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.api.pods import Pod
from wainwright.batching.store import Store, translated
from wainwright.provisioning.records import Retry


class PodDecision(msgspec.Struct, kw_only=True):
    """at_ms: when, by the Redis server's clock."""

    at_ms: int
    what: str
    why: str = ""
    plan: str = ""
    claim: str = ""
    node: str = ""
    uid: str = ""


class PodReport(msgspec.Struct, kw_only=True):
    """state: one sentence. decisions: oldest first, kept a day."""

    pod: str
    uid: str = ""
    state: str
    decisions: list[PodDecision]
    claim: dict[str, str] = {}
    reasons: list[dict[str, Any]] = []
    next_try_seconds: float | None = None


def read_pod_report(store: Store, namespace: str, name: str) -> PodReport | None:
    """None when the pod is neither in the cluster view nor in any record. Raises StoreUnavailable."""
    keys, key = store.keys, f"{namespace}/{name}"
    with translated():
        r: Any = store.redis
        now_ms = store.now_ms()
        text = r.hget(keys.view("pods"), key)
        entries = r.xrange(keys.pod(key))
        decisions = [
            PodDecision(
                at_ms=int(str(entry).split("-")[0]),
                **{field: value for field, value in fields.items() if field in PodDecision.__struct_fields__},
            )
            for entry, fields in entries
        ]
        pod = None if text is None else msgspec.json.decode(text, type=Pod)
        uid = pod.uid if pod is not None else (decisions[-1].uid if decisions else "")
        if not uid:
            return None
        queued = r.hget(keys.seen, uid)
        planned = r.hget(keys.planned, uid)
        retry = r.hget(keys.retries, uid)
        due = r.zscore(keys.retry, uid)
        dead = r.hget(keys.dead, f"pod/{uid}")
        claim_name = next((d.claim for d in reversed(decisions) if d.claim and d.uid == uid), "")
        claim = r.hgetall(keys.claim(claim_name)) if claim_name else {}
    shown = ("state", "nodepool", "instance_type", "zone", "capacity_type", "price", "node", "reason", "message")
    known = {"name": claim_name} | {field: claim[field] for field in shown if claim.get(field)} if claim else {}
    report = PodReport(pod=key, uid=uid, state="", decisions=decisions, claim=known)
    if retry is not None:
        report.reasons = list(msgspec.json.decode(retry, type=Retry).reasons)
        report.next_try_seconds = None if due is None else round(max(0.0, due - now_ms) / 1000, 1)
    report.state = _state(pod, queued, planned, report, dead)
    return report


def _state(pod: Pod | None, queued: str | None, planned: str | None, report: PodReport, dead: str | None) -> str:
    if pod is None:
        return "it does not exist any more"
    if pod.is_bound:
        return f"{pod.status.phase or 'bound'} on node {pod.spec.node_name}"
    if dead is not None:
        return f"set aside: {msgspec.json.decode(dead)['reason']}"
    if planned is not None:
        target, _, plan = planned.partition(" ")
        return f"planned for {target} by plan {plan}, not bound yet"
    if queued is not None:
        return f"in the batch window or batch of NodePool {queued.split('/')[0]}"
    if report.reasons:
        again = f"; tried again in {report.next_try_seconds:.0f} s" if report.next_try_seconds is not None else ""
        return f"could not be placed{again}"
    if not pod.is_provisionable:
        return "nothing to do: kube-scheduler has not found it unschedulable, or it is not ours to place"
    return "waiting to be queued"


def render_pod_report(report: PodReport) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{report.pod}: {report.state}", style="bold")]
    if report.reasons:
        table = Table("where", "rule", "why", title="why it was not placed", title_justify="left")
        for reason in report.reasons:
            count = int(reason.get("count", 1))
            where = reason["where"] + (f" ({count})" if count > 1 else "")
            table.add_row(where, reason["code"], reason["message"])
        parts.append(table)
    if report.claim:
        parts.append(Text("claim " + ", ".join(f"{name} {value}" for name, value in report.claim.items())))
    if report.decisions:
        table = Table("when (UTC)", "what", "plan", "on", "why", title="decisions", title_justify="left")
        for decision in report.decisions:
            table.add_row(
                _clock(decision.at_ms), decision.what, decision.plan, decision.node or decision.claim, decision.why
            )
        parts.append(table)
    return Group(*parts)


def _clock(at_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%M:%S.%f")[:-3]
