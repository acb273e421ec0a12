"""Claims' records in Redis: leases, the check before the cloud is called, moves from state to state, adoption.

Every method is one atomic script that checks the state it comes from and the caller's lease; repeating one, late or on
two hosts at once, changes nothing. The rules are those of design §4, modelled in reference/launch_protocol.pml.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, TypeVar
from uuid import uuid4

import msgspec

from wainwright.api.nodepools import NodeClassReference, NodeSelectorRequirement
from wainwright.api.nodes import Taint
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.errors import FenceLost, StoreUnavailable
from wainwright.scheduling.instance_types import OfferingKey
from wainwright.scheduling.snapshot import Option

LEASE_MS: Final = 4000
RENEW_SECONDS: Final = 1.0

T = TypeVar("T")


class State(StrEnum):
    """Where a claim's record is. `failed` is kept for an hour, so that its end can be read."""

    PLANNED = "planned"
    CREATED = "created"
    LAUNCHED = "launched"
    DONE = "done"
    FAILING = "failing"
    FAILED = "failed"


class Verdict(StrEnum):
    """What the record says to a launcher whose NodeClaim exists, before it calls the cloud (design §4, rule 1)."""

    GO = "go"
    STOP = "stop"
    WITHDRAW = "withdraw"
    OTHER = "other"
    WAIT = "wait"


class Role(StrEnum):
    """How a pod of a claim gets to its node: bound by us, left to kube-scheduler, or left to it on a claim made for
    others.
    """

    BIND = "bind"
    NOMINATE = "nominate"
    REST = "rest"


class ClaimPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a claim. key: namespace/name. node_pool, batch, entry: where its gate stands (empty: adopted)."""

    uid: str
    role: Role
    key: str
    node_pool: str = ""
    batch: str = ""
    entry: str = ""

    @classmethod
    def parse(cls, uid: str, meta: str) -> ClaimPod:
        role, key, node_pool, batch, entry = meta.split("|")
        return cls(uid=uid, role=Role(role), key=key, node_pool=node_pool, batch=batch, entry=entry)

    @property
    def meta(self) -> str:
        """Value of its field in `claim:<name>:pods`."""
        return f"{self.role}|{self.key}|{self.node_pool}|{self.batch}|{self.entry}"

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A claim's record as it was when the lease was taken. Times: ms of the Redis server's clock, 0 where not set."""

    name: str
    state: State
    plan: str = ""
    node_pool: str = ""
    node_pool_uid: str = ""
    node_class: NodeClassReference = NodeClassReference()
    uid: str = ""
    options: tuple[Option, ...] = ()
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    annotations: dict[str, str] = {}
    expire_after: str = ""
    termination_grace_period: str = ""
    requests: dict[str, int] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    attempts: str = ""
    provider_id: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    deaths: int = 0
    created_ms: int = 0
    launched_ms: int = 0
    deadline_ms: int = 0
    allowed_until_ms: int = 0
    others_until_ms: int = 0
    pods: tuple[ClaimPod, ...] = ()

    @property
    def unanswered_until_ms(self) -> int:
        """Until then a request to the cloud may arrive that was allowed and whose answer nobody noted."""
        return max(self.allowed_until_ms, self.others_until_ms)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster view shows of a claim's surroundings. now_ms: when, by the Redis server's clock.

    node_pool: JSON of the NodePool under the claim's name for it, empty when there is none.
    pods: the claim's, each with the JSON that the view has under its name (perhaps another pod's, or empty).
    """

    now_ms: int
    meta: dict[str, str]
    node_pool: str
    pods: tuple[tuple[ClaimPod, str], ...]


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeClaim to give a record. disputed: another listed claim has a pod of it; settled: its node has joined."""

    name: str
    state: State
    settled: bool
    disputed: bool
    fields: dict[str, str]
    pods: tuple[ClaimPod, ...]


class Surveyed(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `ClaimRecords.survey`. bound_ago_ms: since its binds were over, None while they are not."""

    name: str
    state: State
    uid: str
    node: str
    launched_ms: int
    is_held: bool
    bound_ago_ms: int | None = None


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody works on though it is due. solve: closed batches wait and nobody solves."""

    claims: tuple[str, ...]
    nominations: tuple[str, ...]
    solve: bool


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """A pod left to kube-scheduler, which is expected to bind it to `node`. key: namespace/name."""

    uid: str
    key: str
    node: str
    claim: str = ""


class Lease:
    """The right to work on one claim. Renewed by a LeaseKeeper until it is released; each taking has its own holder id.

    `is_lost` may lag by a renewal: scripts check the lease themselves, this only saves a loser some work.
    """

    def __init__(self, name: str, holder: str) -> None:
        self.name = name
        self.holder = holder
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def lose(self) -> None:
        self._lost.set()

    def demand(self) -> None:
        """Raises FenceLost when it is known to be lost."""
        if self.is_lost:
            raise FenceLost(f"the lease on claim {self.name} was lost")


class ClaimRecords:
    """Claims' records. Thread-safe. Every method may raise StoreUnavailable; then it may or may not have happened."""

    def __init__(self, store: Store, *, worker: str = "", lease_ms: int = LEASE_MS) -> None:
        self._store = store
        self._worker = worker or uuid4().hex[:8]
        self._lease_ms = lease_ms

    @property
    def lease_seconds(self) -> float:
        return self._lease_ms / 1000

    # Leases ----------------------------------------------------------------------------------------------------------

    def take(self, name: str) -> tuple[Lease, ClaimRecord] | None:
        """The lease on a claim with its record; None when it is unknown, over, held, or to be looked at later.

        A lease that lapsed without being released counts as its holder's death.
        """
        lease = Lease(name, f"{self._worker}/{uuid4().hex[:12]}")
        answer = self._store.run("claim_take", name, lease.holder, self._lease_ms)
        if answer[0] != "taken":
            return None
        return lease, parse_record(name, _pairs(answer[1]), _pairs(answer[2]))

    def renew(self, leases: Sequence[Lease]) -> None:
        """Renews them all; those that turn out lost say so from now on."""
        if leases:
            pairs = [text for lease in leases for text in (lease.name, lease.holder)]
            lost = set(self._store.run("claim_renew", self._lease_ms, *pairs))
            for lease in leases:
                if lease.name in lost:
                    lease.lose()

    def release(self, lease: Lease, *, wait_ms: int = 0) -> None:
        """Gives it back; the claim is due again wait_ms from now. Nothing happens when it is not held any more."""
        self._store.run("claim_release", lease.name, lease.holder, max(0, wait_ms))

    # Steps -----------------------------------------------------------------------------------------------------------

    def look(self, name: str) -> View:
        """What the view shows of the claim's pods and NodePool, in one step. Whether it may be used: check_view."""
        now_ms, meta, pool, *pods = self._store.run("claim_look", name)
        return View(
            now_ms=int(now_ms),
            meta=_pairs(meta),
            node_pool=pool,
            pods=tuple((ClaimPod.parse(uid, text), seen) for uid, text, seen in pods),
        )

    def read(self, lease: Lease) -> ClaimRecord:
        """The record as it is now. Raises FenceLost."""
        answer = self._store.run("claim_read", lease.name, lease.holder)
        if not answer:
            raise FenceLost(f"the lease on claim {lease.name} was lost")
        return parse_record(lease.name, _pairs(answer[0]), _pairs(answer[1]))

    def check(self, lease: Lease, uid: str, *, allowed_for_ms: int, deadline_ms: int, attempts: str) -> Verdict:
        """May the cloud be called for the NodeClaim with this UID? GO notes until when the request may arrive.

        allowed_for_ms: the request's life from now. deadline_ms: how long the claim may go without an instance, counted
        from its first GO. attempts: JSON, for people.
        """
        answer = self._store.run("claim_check", lease.name, lease.holder, uid, allowed_for_ms, deadline_ms, attempts)
        return Verdict(answer)

    def answered(self, lease: Lease) -> int:
        """An answer to the last allowed request was received. How many ms others may still arrive (0: none).

        Raises FenceLost.
        """
        left = int(self._store.run("claim_answered", lease.name, lease.holder))
        if left < 0:
            raise FenceLost(f"the lease on claim {lease.name} was lost")
        return left

    def move(
        self, lease: Lease, come_from: Iterable[State], to: State, fields: Mapping[str, str] | None = None
    ) -> None:
        """From one of the states come_from (or `to` itself) to `to`, setting fields. Raises FenceLost when the claim is
        elsewhere or not held.
        """
        self._change(lease, "|".join(come_from), to, fields or {})

    def note(self, lease: Lease, state: State, fields: Mapping[str, str]) -> None:
        """Sets fields of a claim that is in `state`. Raises FenceLost."""
        self._change(lease, state, "", fields)

    def remark(self, lease: Lease, message: str) -> None:
        """Notes what holds the claim up, for people. Raises FenceLost."""
        self._change(
            lease, f"{State.PLANNED}|{State.CREATED}|{State.LAUNCHED}|{State.FAILING}", "", {"message": message}
        )

    def _change(self, lease: Lease, come_from: str, to: str, fields: Mapping[str, str]) -> None:
        flat = [text for pair in fields.items() for text in pair]
        if self._store.run("claim_move", lease.name, lease.holder, come_from, to, *flat) != 1:
            raise FenceLost(f"claim {lease.name} is not in {come_from.replace('|', ' or ')}, or not held")

    def begin_failing(self, lease: Lease, reason: str, message: str) -> None:
        """reason: one CamelCase word. The claim still holds its pods. Raises FenceLost."""
        states = (State.PLANNED, State.CREATED, State.LAUNCHED)
        self.move(lease, states, State.FAILING, {"reason": reason, "message": message})

    def is_still_failing(self, lease: Lease) -> bool:
        """The look at the record between the NodeClaim's deletion and the instance's end (design §4, rule 3)."""
        try:
            self.note(lease, State.FAILING, {})
        except FenceLost:
            return False
        return True

    def over(self, lease: Lease, why: str) -> int:
        """The NodeClaim of a failing claim is gone: its pods are queued anew (how many), its effects are over.

        Raises FenceLost.
        """
        count = int(self._store.run("claim_over", lease.name, lease.holder, why))
        if count < 0:
            raise FenceLost(f"claim {lease.name} is not failing, or not held")
        return count

    def done(
        self,
        lease: Lease,
        *,
        bound: Sequence[str],
        settled: Sequence[str],
        unbound: Sequence[str],
        nominated: Sequence[str] = (),
        keep_ms: int,
        why_unbound: str = "",
    ) -> int:
        """A launched claim is carried out (pod UIDs by fate); unbound ones are queued anew (how many). The last effect
        of a batch flushes it. settled: bound elsewhere, or gone. keep_ms: how long the room of those left to
        kube-scheduler (nominated, and whatever rests on the claim) is kept at most.

        Raises FenceLost.
        """
        outcome = {"bound": bound, "settled": settled, "nominated": nominated, "unbound": unbound}
        count = int(
            self._store.run("claim_done", lease.name, lease.holder, keep_ms, msgspec.json.encode(outcome), why_unbound)
        )
        if count < 0:
            raise FenceLost(f"claim {lease.name} is not launched, or not held")
        return count

    # Without a lease -------------------------------------------------------------------------------------------------

    def adopt(self, adoptions: Sequence[Adoption], *, epoch: str, fence: str, request_ms: int) -> int:
        """Gives listed NodeClaims records where they have none, and marks this data as adopted. How many got one.

        epoch, fence: of the watcher that listed them. Raises FenceLost when another one is at work by now.
        """
        count = self._adopt(adoptions, epoch, fence, request_ms)
        if count < 0:
            raise FenceLost(f"epoch {epoch} with fence {fence} is over")
        return count

    def adopt_late(self, adoption: Adoption, *, request_ms: int) -> bool:
        """A NodeClaim that turned up without a live record after the adoption becomes failing. False: it has one, or
        nothing was adopted yet.
        """
        return self._adopt((adoption,), "", "", request_ms) > 0

    def _adopt(self, adoptions: Sequence[Adoption], epoch: str, fence: str, request_ms: int) -> int:
        listed = [
            {
                "name": adoption.name,
                "state": adoption.state,
                "settled": adoption.settled,
                "disputed": adoption.disputed,
                "fields": [text for pair in adoption.fields.items() for text in pair],
                "pods": [(pod.uid, pod.meta) for pod in adoption.pods],
            }
            for adoption in adoptions
        ]
        return int(self._store.run("claim_adopt", epoch, fence, request_ms, msgspec.json.encode(listed)))

    def upset(self, name: str, uid: str, reason: str, message: str) -> bool:
        """A claim that was done becomes failing, since its NodeClaim is being deleted or gone. False: not done, held,
        or another NodeClaim's.
        """
        return bool(self._store.run("claim_upset", name, uid, reason, message))

    def survey(self) -> list[Surveyed]:
        """Every claim with a live record."""
        return [
            Surveyed(
                name=name,
                state=State(state),
                uid=uid,
                node=node,
                launched_ms=int(launched),
                is_held=bool(held),
                bound_ago_ms=None if int(ago) < 0 else int(ago),
            )
            for name, state, uid, node, launched, held, ago in self._store.run("claim_survey")
        ]

    def overdue(self, most: int = 1000) -> Overdue:
        """What nobody works on though it is due. Calling it counts as a hint: the same comes again only later."""
        claims, nominations, closed = self._store.run("sweep", most)
        return Overdue(claims=tuple(claims), nominations=tuple(nominations), solve=bool(closed))

    def wake_retries(self, why: str) -> None:
        """Something changed that could help pods that were not placed: they are looked at again soon."""
        self._store.run("wake_retries", why)

    # Nominations and offerings ---------------------------------------------------------------------------------------

    def nominate(
        self, batch: str, *, keep_ms: int, keep_unready_ms: int
    ) -> tuple[tuple[Nomination, ...], tuple[tuple[str, str, str], ...]]:
        """Carries out a planned batch's placements that need no claim of its own; its effect `nominate` is over.

        Answers whom to tell: the pods nominated, and those not placed (UID, namespace/name, JSON of their retry).
        """
        told, unplaced = self._store.run("batch_nominate", batch, keep_ms, keep_unready_ms)
        nominated = tuple(Nomination(uid=uid, key=key, node=node, claim=claim) for uid, key, node, claim in told)
        return nominated, tuple((uid, key, line) for uid, key, line in unplaced)

    def begin_nominations(self, node: str, claim: str, *, keep_ms: int) -> int:
        """The node is Ready and untainted: from now on its nominated pods' room is kept for keep_ms at most."""
        return int(self._store.run("nominations_begin", node, claim, keep_ms))

    def expire_nominations(self, most: int = 5000) -> tuple[str, ...]:
        """UIDs of pods whose room is not kept any more; what is still pending of them is provisionable again."""
        return tuple(self._store.run("nominations_expire", most))

    def remember_unavailable(self, offerings: Iterable[OfferingKey], *, for_ms: int) -> None:
        self._store.run("offerings_unavailable", for_ms, *(str(offering) for offering in offerings))

    def remember_refused(self, node_pool_uid: str, reason: str, message: str, *, for_ms: int) -> None:
        """The cloud refused a launch for this NodePool for good: nothing is planned for it meanwhile."""
        self._store.run("pool_refused", node_pool_uid, for_ms, reason, message)

    def unavailable(self) -> frozenset[OfferingKey]:
        """Offerings without capacity now."""
        members = self._store.run("offerings_read")
        return frozenset(OfferingKey(*member.split("/", 2)) for member in members)


class LeaseKeeper:
    """One thread that renews every lease this process holds, every `renew_seconds`.

    A lease that could not be renewed for its whole length is lost, whatever Redis may say later.
    """

    def __init__(self, records: ClaimRecords, clock: Clock, *, renew_seconds: float = RENEW_SECONDS) -> None:
        self._records = records
        self._clock = clock
        self._renew_seconds = renew_seconds
        self._lock = threading.Lock()
        self._held: dict[Lease, float] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def hold(self, lease: Lease) -> None:
        """Renews the lease from now on."""
        with self._lock:
            self._held[lease] = self._clock.monotonic_seconds()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)
                self._thread.start()
        self._wake.set()

    def drop(self, lease: Lease) -> None:
        """Renews it no more; releasing it is the caller's."""
        with self._lock:
            self._held.pop(lease, None)

    def renew_once(self) -> None:
        """Renews what is held; those that lapsed meanwhile are lost."""
        with self._lock:
            leases = [lease for lease in self._held if not lease.is_lost]
        asked_at = self._clock.monotonic_seconds()
        try:
            self._records.renew(leases)
        except StoreUnavailable:
            with self._lock:
                for lease in leases:
                    if asked_at - self._held.get(lease, asked_at) > self._records.lease_seconds:
                        lease.lose()
            return
        with self._lock:
            for lease in leases:
                if lease in self._held:
                    self._held[lease] = asked_at

    def _run(self) -> None:
        while True:
            self._wake.wait()
            with self._lock:
                if not self._held:
                    self._wake.clear()
                    continue
            self._clock.sleep(self._renew_seconds)
            self.renew_once()


def parse_record(name: str, fields: Mapping[str, str], pods: Mapping[str, str]) -> ClaimRecord:
    """A record from its hash and the hash of its pods. Raises msgspec.ValidationError or KeyError if it is none."""

    def of(field: str, kind: type[T], default: Literal["{}", "[]"]) -> T:
        return msgspec.json.decode(fields.get(field) or default, type=kind)

    def ms(field: str) -> int:
        return int(fields.get(field) or 0)

    return ClaimRecord(
        name=name,
        state=State(fields["state"]),
        plan=fields.get("plan", ""),
        node_pool=fields.get("nodepool", ""),
        node_pool_uid=fields.get("nodepool_uid", ""),
        node_class=of("node_class", NodeClassReference, "{}"),
        uid=fields.get("uid", ""),
        options=of("options", tuple[Option, ...], "[]"),
        requirements=of("requirements", tuple[NodeSelectorRequirement, ...], "[]"),
        labels=of("labels", dict[str, str], "{}"),
        taints=of("taints", tuple[Taint, ...], "[]"),
        startup_taints=of("startup_taints", tuple[Taint, ...], "[]"),
        annotations=of("annotations", dict[str, str], "{}"),
        expire_after=fields.get("expire_after", ""),
        termination_grace_period=fields.get("termination_grace_period", ""),
        requests=of("requests", dict[str, int], "{}"),
        capacity=of("capacity", dict[str, int], "{}"),
        allocatable=of("allocatable", dict[str, int], "{}"),
        attempts=fields.get("attempts", ""),
        provider_id=fields.get("provider_id", ""),
        node=fields.get("node", ""),
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        deaths=ms("deaths"),
        created_ms=ms("created_ms"),
        launched_ms=ms("launched_ms"),
        deadline_ms=ms("deadline_ms"),
        allowed_until_ms=ms("allowed_until_ms"),
        others_until_ms=ms("others_until_ms"),
        pods=tuple(sorted((ClaimPod.parse(uid, meta) for uid, meta in pods.items()), key=lambda pod: pod.uid)),
    )


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
