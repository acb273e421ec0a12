"""One solve pass: all closed batches, one plan, recorded in one step by whoever holds the solve lock."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.batching.locks import Lock, Renewal
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.cloud.errors import CloudError
from wainwright.cloud.port import CloudProvider
from wainwright.errors import ViewNotReady
from wainwright.provisioning.ports import Hints
from wainwright.provisioning.reading import ClusterReader
from wainwright.provisioning.records import BatchItem, Retry, SolveInput, record_payload
from wainwright.provisioning.snapshots import ClusterState, build_snapshot, usable_node_pools
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Plan, Reason, ReasonCode, SolveBudget, Unplaced
from wainwright.scheduling.solver import solve

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


class SolvePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: a solve is stopped then and keeps what it has. keep_*: how long and how many plans stay readable,
    and how many bytes of their inputs.

    work_units, improvement_units: see SolveBudget.
    """

    max_pods: int = 20_000
    work_units: int = 500_000_000
    improvement_units: int = 2_000_000
    seconds: float = 30.0
    preferences: str = "Respect"
    min_values: str = "Strict"
    keep_seconds: float = 86_400.0
    keep_plans: int = 200
    keep_bytes: int = 256_000_000


class SolveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did. plan: id of what was recorded; empty when nothing was closed, or recording was refused.

    spent_ms: by phase, in order: take, read, decode, prepare, solve, encode, record.
    """

    plan: str = ""
    batches: int = 0
    pods: int = 0
    claims: int = 0
    unplaced: int = 0
    refused: str = ""
    spent_ms: dict[str, float] = {}


class _Laps:
    """What each phase of a pass took."""

    def __init__(self, clock: Clock) -> None:
        self.spent_ms: dict[str, float] = {}
        self._clock = clock
        self.began_seconds = self._at = clock.monotonic_seconds()

    def over(self, phase: str) -> None:
        now = self._clock.monotonic_seconds()
        self.spent_ms[phase] = (now - self._at) * 1000
        self._at = now


class SolvePass:
    """Solves closed batches. One per process."""

    def __init__(self, store: Store, cloud: CloudProvider, hints: Hints, policy: SolvePolicy, clock: Clock) -> None:
        self._store = store
        self._cloud = cloud
        self._hints = hints
        self._policy = policy
        self._clock = clock
        self._reader = ClusterReader(store)

    def run(self, lock: Lock, renewal: Renewal) -> SolveReport:
        """Takes what is closed, solves it, records the plan, hints those who carry it out.

        lock: the `solve` lock, acquired; renewal: what keeps it alive meanwhile.
        Raises ViewNotReady, StoreUnavailable; the batches stay closed and are taken again.
        """
        laps = _Laps(self._clock)
        taken = self._take(lock)
        if not taken:
            return SolveReport()
        laps.over("take")
        answers = self._reader.fetch()
        laps.over("read")
        try:
            state = self._reader.decode(answers)
        except ViewNotReady:
            # Nobody died: without this, a view that takes a while would have its batches suspected and set aside.
            self._store.run("solve_put_back", lock.holder, lock.fence or 0)
            raise
        del answers
        laps.over("decode")
        pods, items = provisionable(state, taken)
        node_pools, catalogs, refusals = self._catalogs(state)
        snapshot = build_snapshot(
            state,
            node_pools,
            catalogs,
            preference_policy=self._policy.preferences,
            min_values_policy=self._policy.min_values,
        )
        laps.over("prepare")
        deadline = laps.began_seconds + self._policy.seconds
        budget = SolveBudget(
            work_units=self._policy.work_units,
            improvement_units=self._policy.improvement_units,
            stop=lambda: renewal.lost or self._clock.monotonic_seconds() > deadline,
        )
        plan = with_refusals(solve(snapshot, pods, state.read_at, budget), refusals)
        laps.over("solve")
        plan_id = "".join(secrets.choice(_ALPHABET) for _ in range(8))
        payload, claims, nominate = record_payload(
            plan,
            plan_id,
            items=items,
            batches=taken,
            node_pools={pool.name: pool for pool in node_pools},
            catalogs=catalogs,
            retries=self._retries([left.pod for left in plan.unplaced]),
            now_ms=int(state.read_at.timestamp() * 1000),
            keep_ms=int(self._policy.keep_seconds * 1000),
            keep_plans=self._policy.keep_plans,
            keep_bytes=self._policy.keep_bytes,
            facts={f"{phase}_ms": f"{spent:.0f}" for phase, spent in laps.spent_ms.items()},
        )
        source = msgspec.json.encode(SolveInput.of(snapshot, pods, state.read_at, budget))
        summary = f"{len(pods)} pods, {len(claims)} claims, {len(plan.unplaced)} not placed, {plan.price:.4g} $/h"
        laps.over("encode")
        answer = self._store.run("record", lock.holder, lock.fence or 0, state.epoch, payload, source, summary)
        laps.over("record")
        if int(answer[0]) == 0:
            return SolveReport(batches=len(taken), pods=len(pods), refused=str(answer[1]))
        for claim in claims:
            self._hints.launch(claim)
        for batch in nominate:
            self._hints.nominate(batch)
        return SolveReport(
            plan=plan_id,
            batches=len(taken),
            pods=len(pods),
            claims=len(claims),
            unplaced=len(plan.unplaced),
            spent_ms=laps.spent_ms,
        )

    def _take(self, lock: Lock) -> dict[str, list[BatchItem]]:
        """Closed batches by id, fresh ones first; one that keeps killing its solver is split or parked on the way."""
        while True:
            taken = self._store.run("solve_take", lock.holder, lock.fence or 0, self._policy.max_pods) or []
            batches: dict[str, list[BatchItem]] = {}
            for batch, _kind, pool, text, advice in taken:
                if advice in ("split", "park"):
                    if self._store.run(f"batch_{advice}", lock.holder, lock.fence or 0, batch):
                        break
                    return {}
                batches[batch] = [
                    BatchItem(uid=PodUid(uid), pod=pod, pool=pool, batch=batch, entry=entry)
                    for uid, pod, entry in msgspec.json.decode(text, type=list[tuple[str, str, str]])
                ]
            else:
                return batches

    def _catalogs(self, state: ClusterState) -> tuple[tuple[NodePool, ...], dict[str, Catalog], tuple[Reason, ...]]:
        """The NodePools that can be used now, their catalogs, and a reason for each that cannot."""
        pools: list[NodePool] = []
        catalogs: dict[str, Catalog] = {}
        refusals: list[Reason] = []
        usable = usable_node_pools(state.node_pools)
        for pool in usable:
            if why := state.refused.get(pool.metadata.uid):
                refusals.append(Reason(where=f"nodepool/{pool.name}", code=ReasonCode.OFFERING, message=why))
                continue
            try:
                catalogs[pool.name] = self._cloud.instance_types(pool)
                pools.append(pool)
            except CloudError as error:
                code = ReasonCode.NO_INSTANCE_TYPES
                refusals.append(Reason(where=f"nodepool/{pool.name}", code=code, message=str(error)))
        for pool in state.node_pools:
            if pool not in usable:
                bad = [c for c in pool.status.conditions if c.status == "False" and c.type != "Ready"]
                message = "; ".join(c.message for c in bad) or "it is being deleted or has a fixed number of replicas"
                where = f"nodepool/{pool.name}"
                refusals.append(Reason(where=where, code=ReasonCode.INVALID, message=f"not used: {message}"))
        return tuple(pools), catalogs, tuple(refusals)

    def _retries(self, uids: Sequence[PodUid]) -> dict[PodUid, Retry]:
        if not uids:
            return {}
        texts = self._store.read(lambda redis: redis.hmget(self._store.keys.retries, list(uids)))
        return {
            uid: msgspec.json.decode(text, type=Retry)
            for uid, text in zip(uids, texts, strict=True)
            if text is not None
        }


def provisionable(
    state: ClusterState, batches: Mapping[str, Sequence[BatchItem]]
) -> tuple[list[Pod], dict[PodUid, BatchItem]]:
    """The pods of the batches that still want capacity, as the view has them now, each once; and their items.

    Dropped are pods that are gone, bound, no longer provisionable, or covered by a live plan.
    """
    by_uid = {pod.uid: pod for pod in state.pods}
    pods: list[Pod] = []
    items: dict[PodUid, BatchItem] = {}
    for members in batches.values():
        for item in members:
            pod = by_uid.get(item.uid)
            if pod is None or not pod.is_provisionable or item.uid in state.planned or item.uid in items:
                continue
            pods.append(pod)
            items[item.uid] = item
    return pods, items


def with_refusals(plan: Plan, refusals: tuple[Reason, ...]) -> Plan:
    """The plan, each pod that was not placed told also why the NodePools that were left out could not take it."""
    if not refusals or not plan.unplaced:
        return plan
    unplaced = tuple(Unplaced(pod=left.pod, reasons=(*left.reasons, *refusals)) for left in plan.unplaced)
    return msgspec.structs.replace(plan, unplaced=unplaced)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded plan beside the one that the same input gives now."""

    recorded: Plan
    again: Plan

    @property
    def is_same(self) -> bool:
        """Equal in everything but refusals of NodePools that were left out of the solve."""
        return _comparable(self.recorded) == _comparable(self.again)


def _comparable(plan: Plan) -> tuple[object, ...]:
    return (plan.claims, plan.placements, tuple(left.pod for left in plan.unplaced), plan.price, plan.relaxed)


def replay(store: Store, plan_id: str) -> Replay | None:
    """Solves the recorded input of a plan again; None when the plan or its input is not kept any more."""
    keys = store.keys
    fields = store.read(lambda redis: redis.hmget(keys.plan(plan_id), ["plan"]))
    source = store.read(lambda redis: redis.get(keys.plan_input(plan_id)))
    if fields[0] is None or source is None:
        return None
    given = msgspec.json.decode(source, type=SolveInput)
    catalogs: dict[str, Catalog] = {}
    for version in sorted(set(given.catalogs.values())):
        text = store.read(lambda redis, version=version: redis.get(keys.catalog(version)))  # type: ignore[misc]
        if text is None:
            return None
        catalogs[version] = msgspec.json.decode(text, type=Catalog)
    again = solve(given.with_catalogs(catalogs), given.pods, given.now, given.budget)
    return Replay(recorded=msgspec.json.decode(fields[0], type=Plan), again=again)
