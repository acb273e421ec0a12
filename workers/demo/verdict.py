"""What the demo found, and whether it is right: read back from Kubernetes, the cloud and Redis."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.pods import Pod
from wainwright.batching.store import Store, translated
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import NODE_CLAIMS, PODS
from wainwright.provisioning.solving import Replay, replay
from workers.demo.burst import BurstVerdict, render_burst
from workers.demo.observer import Observer


class NodesOfType(msgspec.Struct, kw_only=True):
    """price: dollars an hour of all of them."""

    node_pool: str
    instance_type: str
    capacity_type: str
    count: int
    price: float


class BatchLine(msgspec.Struct, kw_only=True):
    """window_ms: how long its window was open."""

    batch: str
    pods: int
    window_ms: int


class Verdict(msgspec.Struct, kw_only=True):
    """faults: what is wrong; the demo succeeds when there is none. *_seconds: as seen outside."""

    pods: int
    placeable: int
    running: int
    bound_p50_seconds: float
    bound_p99_seconds: float
    took_seconds: float
    nodes: list[NodesOfType]
    batches: list[BatchLine]
    not_placed: dict[str, str]
    launches: int
    restarts: dict[str, int]
    largest_plan: str
    largest_plan_price: float
    largest_plan_lower_bound: float
    replay_same: bool
    burst: BurstVerdict | None
    faults: list[str]

    @property
    def price(self) -> float:
        return sum(line.price for line in self.nodes)


def cloud_record(url: str) -> dict[str, Any]:
    """`GET /v1/launches` of the simulated cloud."""
    with urllib.request.urlopen(f"{url}/v1/launches", timeout=10) as answer:  # noqa: S310 - our own loopback service
        record: dict[str, Any] = json.load(answer)
    return record


def cloud_instances(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/v1/instances", timeout=10) as answer:  # noqa: S310 - our own loopback service
        instances: list[dict[str, Any]] = json.load(answer)["instances"]
    return instances


def judge(
    kube: KubeClient,
    store: Store,
    cloud_url: str,
    observer: Observer,
    *,
    unplaceable: Sequence[str],
    expected: int,
    took_seconds: float,
    restarts: dict[str, int],
    burst: BurstVerdict | None = None,
) -> Verdict:
    """unplaceable: prefixes of names of pods that must end with a reason. expected: number of pods asked for."""
    pods = [pod for pod in kube.list(PODS, Pod, label_selector="demo=wainwright")[0] if not pod.is_terminating]
    claims = kube.list(NODE_CLAIMS, NodeClaim)[0]
    record, instances = cloud_record(cloud_url), cloud_instances(cloud_url)
    live = [i for i in instances if i["state"] in ("pending", "running")]
    faults: list[str] = []

    def is_unplaceable(pod: Pod) -> bool:
        return any(pod.metadata.name.startswith(f"{prefix}-") for prefix in unplaceable)

    placeable = [pod for pod in pods if not is_unplaceable(pod)]
    running = [pod for pod in placeable if pod.status.phase in ("Running", "Succeeded")]
    if len(pods) < expected:
        faults.append(f"{expected} pods were asked for, {len(pods)} exist")
    idle = [pod for pod in placeable if pod.status.phase not in ("Running", "Succeeded")]
    faults += [f"{pod.key} is {pod.status.phase or 'Pending'}, not Running" for pod in idle[:5]]
    if len(idle) > 5:
        faults.append(f"and {len(idle) - 5} more pods that do not run")
    faults += [f"launched twice: {doubled}" for doubled in record["doubles"]]
    claimed = Counter(instance["node_claim"] for instance in live)
    for claim, count in claimed.items():
        if count > 1:
            faults.append(f"claim {claim} has {count} instances")
        if claim not in {c.name for c in claims}:
            faults.append(f"the instance of {claim} has no NodeClaim")
    by_uid: Counter[str] = Counter()
    for live_claim in claims:
        for uid in json.loads(live_claim.metadata.annotations.get("wainwright.dev/pods", "[]")):
            by_uid[uid if isinstance(uid, str) else uid[0]] += 1
    for uid, count in by_uid.items():
        if count > 1:
            faults.append(f"{count} NodeClaims were made for pod {uid}")
    not_placed = _not_placed(store, [pod for pod in pods if is_unplaceable(pod)])
    for name, why in not_placed.items():
        if not why:
            faults.append(f"{name} was not placed and no reason is recorded")
    plan, again = _replay(store)
    if again is not None and not again.is_same:
        faults.append(f"plan {plan} solved again from its recorded input came out differently")
    waits = sorted(
        seen.bound_at - seen.pending_at
        for seen in observer.pods.values()
        if seen.bound_at is not None and seen.pending_at is not None
    )
    return Verdict(
        pods=len(pods),
        placeable=len(placeable),
        running=len(running),
        bound_p50_seconds=round(_percentile(waits, 0.50), 2),
        bound_p99_seconds=round(_percentile(waits, 0.99), 2),
        took_seconds=round(took_seconds, 1),
        nodes=_nodes(live),
        batches=_batches(store),
        not_placed=not_placed,
        launches=int(record["launches"] if isinstance(record["launches"], int) else len(record["launches"])),
        restarts={name: count for name, count in restarts.items() if count},
        largest_plan=plan,
        largest_plan_price=0.0 if again is None else again.recorded.price,
        largest_plan_lower_bound=0.0 if again is None else again.recorded.lower_bound,
        replay_same=again is not None and again.is_same,
        burst=burst,
        faults=[*faults, *(burst.faults if burst is not None else ())],
    )


def _percentile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def _nodes(instances: Sequence[dict[str, Any]]) -> list[NodesOfType]:
    prices: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    for instance in instances:
        key = (instance["node_pool"], instance["instance_type"], instance["capacity_type"])
        prices[key] += instance["price"]
        counts[key] += 1
    return [
        NodesOfType(node_pool=key[0], instance_type=key[1], capacity_type=key[2], count=counts[key], price=prices[key])
        for key in sorted(counts)
    ]


def _batches(store: Store) -> list[BatchLine]:
    with translated():
        redis: Any = store.redis
        names = [
            name for state in ("done", "planned", "closed") for name in redis.zrange(store.keys.batches(state), 0, -1)
        ]
        records = [redis.hmget(store.keys.batch(name), "size", "window_ms", "closed_ms") for name in names]
    lines = [
        (int(closed or 0), BatchLine(batch=name, pods=int(size or 0), window_ms=int(window or 0)))
        for name, (size, window, closed) in zip(names, records, strict=True)
    ]
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def _not_placed(store: Store, pods: Sequence[Pod]) -> dict[str, str]:
    with translated():
        redis: Any = store.redis
        texts = redis.hmget(store.keys.retries, [pod.uid for pod in pods]) if pods else []
    found: dict[str, str] = {}
    for pod, text in zip(pods, texts, strict=True):
        reasons = [] if text is None else json.loads(text)["reasons"]
        found[pod.key] = "; ".join(f"{r['where']}: {r['message']}" for r in reasons)
    return found


def _replay(store: Store) -> tuple[str, Replay | None]:
    """The largest plan still kept, solved again."""
    with translated():
        redis: Any = store.redis
        plans = redis.zrevrange(store.keys.plans, 0, -1)
        sizes = [int(redis.hget(store.keys.plan(plan), "pods") or 0) for plan in plans]
    for _, plan in sorted(zip(sizes, plans, strict=True), reverse=True):
        again = replay(store, plan)
        if again is not None:
            return plan, again
    return "", None


def _about_largest_plan(verdict: Verdict) -> str:
    price, bound = verdict.largest_plan_price, verdict.largest_plan_lower_bound
    proof = f"no plan for its pods can cost less than {bound:.3f}: gap {price / bound - 1:.1%}" if bound else "no bound"
    same = "the same" if verdict.replay_same else "DIFFERENT"
    return f"largest plan {verdict.largest_plan}: {price:.3f} $/h; {proof}; solved again: {same}"


def render_verdict(verdict: Verdict) -> RenderableType:
    """For a terminal of 80 columns."""
    nodes = Table("NodePool", "instance type", "capacity", "nodes", "$/h", title="nodes", title_justify="left")
    for line in verdict.nodes:
        nodes.add_row(line.node_pool, line.instance_type, line.capacity_type, str(line.count), f"{line.price:.3f}")
    nodes.add_section()
    nodes.add_row("", "all", "", str(sum(line.count for line in verdict.nodes)), f"{verdict.price:.3f}")
    batches = Table("batch", "pods", "window open", title="batches", title_justify="left")
    for batch in verdict.batches[:20]:
        batches.add_row(batch.batch, str(batch.pods), f"{batch.window_ms / 1000:.2f} s")
    if len(verdict.batches) > 20:
        batches.add_row(f"and {len(verdict.batches) - 20} more", "", "")
    lines = [
        Text(f"pending to bound: p50 {verdict.bound_p50_seconds:.2f} s, p99 {verdict.bound_p99_seconds:.2f} s"),
        Text(f"launches: {verdict.launches}; processes killed and restarted: {verdict.restarts or 'none'}"),
        Text(_about_largest_plan(verdict)),
    ]
    if verdict.burst is not None:
        lines.append(Text(render_burst(verdict.burst)))
    parts: list[RenderableType] = [nodes, batches, *lines]
    if verdict.not_placed:
        by_reason = Counter(verdict.not_placed.values())
        table = Table("pods", "why", title="not placed", title_justify="left")
        for reason, count in by_reason.most_common(5):
            table.add_row(str(count), reason)
        parts.append(table)
    if verdict.faults:
        parts.append(Text("FAILED", style="bold red"))
        parts += [Text(f"- {fault}", style="red") for fault in verdict.faults]
    else:
        parts.append(
            Text(
                f"OK: {verdict.running} of {verdict.placeable} placeable pods run, nothing was launched twice "
                f"({verdict.took_seconds:.1f} s)",
                style="bold green",
            )
        )
    return Group(*parts)
