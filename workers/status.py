"""What `wainwright status` tells: read from Redis alone, as anyone could with redis-cli (docs/redis.md)."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from config.celery import QUEUES
from config.settings import Settings
from wainwright.batching.store import Store, translated

RECENT_PLANS = 5


class PoolStatus(msgspec.Struct, kw_only=True):
    """pending: pods in the open window. closes_in_seconds: None without one. price: dollars an hour."""

    name: str
    nodes: int = 0
    price: float = 0.0
    pending: int = 0
    closes_in_seconds: float | None = None


class PlanStatus(msgspec.Struct, kw_only=True):
    id: str
    age_seconds: float
    pods: int
    claims: int
    unplaced: int
    price: float
    lower_bound: float
    solve_ms: int


class WatchStatus(msgspec.Struct, kw_only=True):
    """age_seconds: since the watch last showed life; stale: for longer than a live one can be silent
    (WAINWRIGHT_WATCHER_STALE_SECONDS); from 30 s on nothing is decided on it any more.
    """

    kind: str
    age_seconds: float
    stale: bool


class Status(msgspec.Struct, kw_only=True):
    """The state of one Wainwright. batches, claims, queues: counts by state or name."""

    view_complete: bool
    view_epoch: str
    watches: list[WatchStatus]
    pools: list[PoolStatus]
    batches: dict[str, int]
    claims: dict[str, int]
    queues: dict[str, int]
    plans: list[PlanStatus]
    pods_waiting: int
    pods_planned: int
    pods_retrying: int
    set_aside: int
    solving: str
    workers: list[str]
    ticks: dict[str, float]


def read_status(store: Store, settings: Settings) -> Status:
    """Raises StoreUnavailable."""
    keys = store.keys
    with translated():
        r: Any = store.redis
        pipe = r.pipeline(transaction=False)
        pipe.time()
        pipe.hgetall(keys.view_meta)
        pipe.hgetall(keys.nodepools)
        pipe.zrange(keys.windows, 0, -1, withscores=True)
        pipe.zrange(keys.claims, 0, -1)
        pipe.zrevrange(keys.plans, 0, RECENT_PLANS - 1)
        pipe.hlen(keys.view_pending)
        pipe.hlen(keys.planned)
        pipe.zcard(keys.retry)
        pipe.hlen(keys.dead)
        pipe.hget(keys.lock("solve"), "holder")
        pipe.keys(keys.worker("*"))
        pipe.keys(keys.tick("*"))
        for state in ("closed", "planned", "done"):
            pipe.zcard(keys.batches(state))
        for queue in QUEUES:
            pipe.llen(f"{settings.redis.prefix}celery:{queue}")
        answers: list[Any] = pipe.execute()
        (seconds, micros), meta, names, windows, claim_names, plan_ids, *counts = answers
        waiting, planned, retrying, dead, solving, workers, ticks, *rest = counts
        pipe = r.pipeline(transaction=False)
        for name in claim_names:
            pipe.hmget(keys.claim(name), "state", "nodepool", "price")
        for plan in plan_ids:
            pipe.hmget(keys.plan(plan), "created_ms", "pods", "claims", "unplaced", "price", "lower_bound", "solve_ms")
        for pool in sorted(names):
            pipe.xlen(keys.pending(pool))
        for tick in ticks:
            pipe.hget(tick, "at_ms")
        details = pipe.execute()
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    claims = details[: len(claim_names)]
    plans = details[len(claim_names) : len(claim_names) + len(plan_ids)]
    lengths = details[len(claim_names) + len(plan_ids) :][: len(names)]
    tick_times = details[len(claim_names) + len(plan_ids) + len(names) :]
    due = dict(windows)
    pools = {name: PoolStatus(name=name) for name in sorted(names)}
    for pool, length in zip(pools.values(), lengths, strict=True):
        pool.pending = int(length)
        if pool.name in due:
            pool.closes_in_seconds = round((due[pool.name] - now_ms) / 1000, 3)
    by_state: dict[str, int] = {}
    for state, pool_name, price in claims:
        by_state[state or "unknown"] = by_state.get(state or "unknown", 0) + 1
        if pool_name in pools and state not in ("failing", "failed"):
            pools[pool_name].nodes += 1
            pools[pool_name].price = round(pools[pool_name].price + float(price or 0), 6)
    return Status(
        view_complete=meta.get("complete") == "1",
        view_epoch=meta.get("epoch", ""),
        watches=[
            WatchStatus(
                kind=field.removeprefix("progress:"),
                age_seconds=round((now_ms - int(value)) / 1000, 1),
                stale=now_ms - int(value) > settings.watcher.stale_seconds * 1000,
            )
            for field, value in sorted(meta.items())
            if field.startswith("progress:")
        ],
        pools=list(pools.values()),
        batches=dict(zip(("closed", "planned", "done"), (int(n) for n in rest[:3]), strict=True)),
        claims=dict(sorted(by_state.items())),
        queues=dict(zip(QUEUES, (int(n) for n in rest[3:]), strict=True)),
        plans=[
            PlanStatus(
                id=plan,
                age_seconds=round((now_ms - int(created)) / 1000, 1),
                pods=int(pods),
                claims=int(made),
                unplaced=int(left),
                price=float(price),
                lower_bound=float(bound or 0),
                solve_ms=int(took),
            )
            for plan, (created, pods, made, left, price, bound, took) in zip(plan_ids, plans, strict=True)
            if created is not None
        ],
        pods_waiting=int(waiting),
        pods_planned=int(planned),
        pods_retrying=int(retrying),
        set_aside=int(dead),
        solving=solving or "",
        workers=sorted(name.removeprefix(keys.worker("")) for name in workers),
        ticks={
            tick.removeprefix(keys.tick("")): round((now_ms - int(at)) / 1000, 1)
            for tick, at in sorted(zip(ticks, tick_times, strict=True))
            if at is not None
        },
    )


def render_status(status: Status) -> RenderableType:
    """For a terminal of 80 columns."""
    stale = [watch for watch in status.watches if watch.stale]
    if not status.view_epoch:
        view = Text("cluster view: none; is a watcher running?", style="bold red")
    elif stale:
        kinds = ", ".join(f"{watch.kind} ({watch.age_seconds:.0f} s)" for watch in stale)
        view = Text(f"cluster view: STALE, no sign of life from the watch of {kinds}", style="bold red")
    elif not status.view_complete:
        view = Text("cluster view: not complete yet, the watcher is listing", style="yellow")
    else:
        oldest = max((watch.age_seconds for watch in status.watches), default=0.0)
        view = Text(f"cluster view: complete, every watch alive within {oldest:.0f} s")
    pools = Table("NodePool", "nodes", "$/h", "in window", "closes in", title="NodePools", title_justify="left")
    for pool in status.pools:
        closes = "-" if pool.closes_in_seconds is None else f"{pool.closes_in_seconds:.1f} s"
        pools.add_row(pool.name, str(pool.nodes), f"{pool.price:.3f}", str(pool.pending), closes)
    plans = Table(
        "plan", "age", "pods", "claims", "left", "$/h", "gap", "solve", title="last plans", title_justify="left"
    )
    for plan in status.plans:
        plans.add_row(
            plan.id,
            f"{plan.age_seconds:.0f} s",
            str(plan.pods),
            str(plan.claims),
            str(plan.unplaced),
            f"{plan.price:.3f}",
            f"{plan.price / plan.lower_bound - 1:.1%}" if plan.lower_bound else "-",
            f"{plan.solve_ms} ms",
        )
    pods = f"pods: {status.pods_waiting} waiting, {status.pods_planned} planned, {status.pods_retrying} to be retried"
    aside = Text(f"set aside: {status.set_aside} (wainwright dead)", style="yellow") if status.set_aside else Text("")
    return Group(
        view,
        pools,
        plans,
        Text(pods),
        Text("claims: " + (_counts(status.claims) or "none")),
        Text("batches: " + _counts(status.batches) + ("; solving now" if status.solving else "")),
        Text("queues: " + _counts(status.queues)),
        Text(f"processes: {len(status.workers)} ({', '.join(sorted({w.split('@')[0] for w in status.workers}))})"),
        Text("last ticks: " + ", ".join(f"{task} {age:.0f} s ago" for task, age in status.ticks.items())),
        aside,
    )


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items())
