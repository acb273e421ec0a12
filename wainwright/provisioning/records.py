"""A plan as it is recorded: what the record script writes, and what a replay reads back. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Plan, PlannedClaim, SolveBudget, Unplaced
from wainwright.scheduling.snapshot import Snapshot

NOMINATE = "nominate"
"""The effect of a batch that needs no claim: events for placements on nodes, and for pods not placed."""


class BatchItem(NamedTuple):
    """A pod in a batch. entry: its id in `pending:<pool>`, which `seen` holds until the item's gate opens."""

    uid: PodUid
    pod: str
    pool: str
    batch: str
    entry: str

    def meta(self, role: str) -> str:
        return f"{role}|{self.pod}|{self.pool}|{self.batch}|{self.entry}"


class SolveInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan was computed from. catalogs: version by NodePool; the texts stand under `catalog:<version>`."""

    snapshot: Snapshot
    pods: tuple[Pod, ...]
    now: datetime
    work_units: int
    improvement_units: int
    catalogs: dict[str, str]

    @classmethod
    def of(cls, snapshot: Snapshot, pods: Sequence[Pod], now: datetime, budget: SolveBudget) -> SolveInput:
        return cls(
            snapshot=msgspec.structs.replace(snapshot, catalogs={}),
            pods=tuple(pods),
            now=now,
            work_units=budget.work_units,
            improvement_units=budget.improvement_units,
            catalogs={pool: catalog.version for pool, catalog in sorted(snapshot.catalogs.items())},
        )

    @property
    def budget(self) -> SolveBudget:
        return SolveBudget(work_units=self.work_units, improvement_units=self.improvement_units)

    def with_catalogs(self, texts: Mapping[str, Catalog]) -> Snapshot:
        return msgspec.structs.replace(
            self.snapshot, catalogs={pool: texts[version] for pool, version in self.catalogs.items()}
        )


def claim_name(claim: PlannedClaim, plan_id: str, number: int) -> str:
    """`<nodepool>-<plan id>-<number>`: never used twice, at most 63 characters."""
    return f"{claim.node_pool[:40].rstrip('-.')}-{plan_id}-{number}"


def back_off_ms(attempts: int) -> int:
    """How long a pod that was tried `attempts` times waits: 5 s, doubling, 60 s at most."""
    return min(60_000, 5_000 << min(max(attempts - 1, 0), 10))


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that could not be placed, as `retries` holds it."""

    pod: str
    pool: str
    attempts: int
    first_ms: int
    last_ms: int
    plan: str
    reasons: tuple[dict[str, Any], ...] = ()


def one_line(unplaced: Unplaced) -> str:
    """The reasons of a pod that was not placed, as one line for events and logs."""
    parts = [f"{r.where}{f' ({r.count})' if r.count > 1 else ''}: {r.message}" for r in unplaced.reasons]
    return "; ".join(parts) or "no reason was given"


def why_claim(claim: PlannedClaim) -> str:
    """What the pods of a new claim are told: the first option, and how many others are left."""
    first = claim.options[0]
    return (
        f"a new node for {len(claim.pods)} pods: {first.instance_type} in {first.zone} ({first.capacity_type}) at "
        f"{first.price:.4g} $/h, the cheapest of {len(claim.options)} options that hold them"
    )


def record_payload(
    plan: Plan,
    plan_id: str,
    *,
    items: Mapping[PodUid, BatchItem],
    batches: Mapping[str, Sequence[BatchItem]],
    node_pools: Mapping[str, NodePool],
    catalogs: Mapping[str, Catalog],
    retries: Mapping[PodUid, Retry],
    now_ms: int,
    keep_ms: int,
    keep_plans: int,
    keep_bytes: int,
    facts: Mapping[str, str],
) -> tuple[bytes, list[str], list[str]]:
    """The record script's payload (its shape: lua/record.lua), the claims' names, the batches to nominate.

    items: the pods that were solved; whoever is in `batches` but not in `items` was dropped (gone, bound, covered).
    """
    effects: dict[str, set[str]] = defaultdict(set)
    claims: list[dict[str, Any]] = []
    for number, claim in enumerate(plan.claims):
        name = claim_name(claim, plan_id, number)
        pods = [items[uid] for uid in claim.pods]
        claims.append(
            {
                "name": name,
                "fields": _claim_fields(claim, node_pools[claim.node_pool]),
                "pods": [(item.uid, item.meta("bind")) for item in pods],
                "why": why_claim(claim),
            }
        )
        for item in pods:
            effects[item.batch].add(name)
    rests, nodes = [], []
    for placement in plan.placements:
        item = items[placement.pod]
        if placement.claim:
            rests.append((item.uid, item.meta("rest"), placement.claim))
        else:
            nodes.append((item.uid, item.meta("nominate"), placement.node))
        effects[item.batch].add(NOMINATE)
    unplaced = []
    over: dict[str, list[tuple[str, str]]] = {batch: [] for batch in batches}
    for left in plan.unplaced:
        item = items[left.pod]
        before = retries.get(left.pod)
        attempts = 1 if before is None else before.attempts + 1
        retry = Retry(
            pod=item.pod,
            pool=item.pool,
            attempts=attempts,
            first_ms=now_ms if before is None else before.first_ms,
            last_ms=now_ms,
            plan=plan_id,
            reasons=tuple(msgspec.to_builtins(reason) for reason in left.reasons),
        )
        due_ms = now_ms + back_off_ms(attempts)
        text = msgspec.json.encode(retry).decode()
        unplaced.append((item.uid, item.pod, due_ms, text, one_line(left)))
        over[item.batch].append((item.uid, item.entry))
        effects[item.batch].add(NOMINATE)
    for batch, members in batches.items():
        over[batch] += [(item.uid, item.entry) for item in members if item.uid not in items]
    fields = {
        "batches": msgspec.json.encode(list(batches)).decode(),
        "plan": msgspec.json.encode(plan).decode(),
        "price": f"{plan.price:.6g}",
        "worst_price": f"{plan.worst_price:.6g}",
        "lower_bound": f"{plan.lower_bound:.6g}",
        "pods": str(len(items)),
        "claims": str(len(plan.claims)),
        "unplaced": str(len(plan.unplaced)),
        "catalogs": msgspec.json.encode({pool: c.version for pool, c in sorted(catalogs.items())}).decode(),
        **facts,
    }
    payload = {
        "plan": plan_id,
        "fields": [part for pair in fields.items() for part in pair],
        "catalogs": {c.version: msgspec.json.encode(c).decode() for c in catalogs.values()},
        "keep_ms": keep_ms,
        "keep_plans": keep_plans,
        "keep_bytes": keep_bytes,
        "batches": [
            {"id": batch, "pool": members[0].pool if members else "", "over": over[batch]}
            for batch, members in batches.items()
        ],
        "claims": claims,
        "rests": rests,
        "nodes": nodes,
        "unplaced": unplaced,
        "effects": {batch: sorted(names) for batch, names in effects.items()},
    }
    nominate = [batch for batch, names in effects.items() if NOMINATE in names]
    return msgspec.json.encode(payload), [claim["name"] for claim in claims], nominate


def _claim_fields(claim: PlannedClaim, pool: NodePool) -> list[str]:
    template = pool.spec.template

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    fields = {
        "nodepool": claim.node_pool,
        "nodepool_uid": pool.metadata.uid,
        "node_class": text(template.spec.node_class_ref),
        "requirements": text(claim.requirements),
        "labels": text(claim.labels),
        "annotations": text(template.metadata.annotations),
        "taints": text(claim.taints),
        "startup_taints": text(claim.startup_taints),
        "expire_after": template.spec.expire_after,
        "termination_grace_period": template.spec.termination_grace_period or "",
        "options": text(claim.options),
        "requests": text(claim.requests),
        "capacity": text(claim.capacity),
        "allocatable": text(claim.allocatable),
        "price": f"{claim.price:.6g}",
    }
    return [part for pair in fields.items() for part in pair]
