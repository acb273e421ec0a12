"""What the simulated cloud knows: every launch ever made, and what became of it. Time comes in as `now`; no I/O.

Changes are events. Deciding (`launch`, `terminate`) makes an event and changes nothing; `apply` changes the state and
nothing else does, so that replaying the events that were written down gives the same state. What merely takes time
(booting, going away, being forgotten) follows from the events' dates when `advance` is called.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from datetime import datetime, timedelta
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from wainwright.api.names import (
    ARCH_LABEL,
    CAPACITY_TYPE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)
from wainwright.cloud.errors import (
    InstanceNotFound,
    InstanceTerminated,
    InsufficientCapacity,
    RequestExpired,
    RequestRefused,
    TokenMismatch,
)
from wainwright.cloud.port import REQUEST_LIFETIME, Instance, InstanceState, LaunchRequest
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering, OfferingKey
from wainwright.scheduling.snapshot import Option

CLOCK_SKEW: Final = timedelta(seconds=5)
"""How far in the future a request may be dated."""
FORGET_AFTER: Final = timedelta(minutes=5)
"""How long a terminated instance stays listed."""


class Launched(msgspec.Struct, frozen=True, kw_only=True, tag="launched"):
    """An instance came to be."""

    instance: Instance
    request: LaunchRequest


class Terminating(msgspec.Struct, frozen=True, kw_only=True, tag="terminating"):
    """An instance is on its way out and gone at `gone_at`. cause: `deleted` (asked for) or `interrupted`."""

    instance_id: str
    at: datetime
    gone_at: datetime
    cause: str = "deleted"


Event = Launched | Terminating


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the record of all launches. ended_at: when its termination began."""

    token: str
    node_claim: str
    node_pool: str
    instance_id: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float
    launched_at: datetime
    ended_at: datetime | None = None
    ended_by: str = ""


class LaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Every launch since the state file began. doubles: claims that had two live instances at one time."""

    launches: tuple[Launch, ...]
    by_token: dict[str, int]
    by_claim: dict[str, int]
    doubles: tuple[str, ...]


class _Step(IntEnum):
    BOOTED = 0
    GONE = 1
    FORGOTTEN = 2


class _Machine:
    """A launch and what became of it. Mutable: the state's own."""

    __slots__ = ("ended", "instance", "request", "revision")

    def __init__(self, instance: Instance, request: LaunchRequest, revision: int) -> None:
        self.instance = instance
        self.request = request
        self.revision = revision
        self.ended: Terminating | None = None


class CloudState:
    """Instances by id, by token, and in order of change.

    revision: grows with every change. forgotten_revision: the last change of any instance that is listed no more; who
    has seen less than that must read everything.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.revision = 0
        self.forgotten_revision = 0
        self._machines: dict[str, _Machine] = {}
        self._listed: dict[str, _Machine] = {}
        """By id, least recently changed first."""
        self._ids_by_token: dict[str, str] = {}
        self._reserved: Counter[str] = Counter()
        self._live_by_claim: Counter[str] = Counter()
        self._doubles: set[str] = set()
        self._due: list[tuple[datetime, _Step, str]] = []
        self.catalog = catalog
        self._offerings: dict[tuple[OfferingKey, str], tuple[InstanceType, Offering]] = {}
        self.offer(catalog)

    def offer(self, catalog: Catalog) -> None:
        """Replace the catalog; instances that run go on."""
        self.catalog = catalog
        self._offerings = {
            (OfferingKey(offering.capacity_type, machine.name, offering.zone), offering.reservation_id): (
                machine,
                offering,
            )
            for machine in catalog.instance_types
            for offering in machine.offerings
        }

    # deciding

    def launch(
        self,
        request: LaunchRequest,
        *,
        now: datetime,
        boots_at: datetime | None,
        sold_out: tuple[OfferingKey, ...] = (),
    ) -> Launched | Instance:
        """The event that launches, or the instance that the same request launched before.

        boots_at: when its kubelet will report; None: never. sold_out: patterns of offerings without room.
        Raises RequestExpired, RequestRefused, TokenMismatch, InstanceTerminated, InsufficientCapacity.
        """
        if now - request.issued_at > REQUEST_LIFETIME:
            age = (now - request.issued_at).total_seconds()
            raise RequestExpired(
                f"the request is {age:.1f} s old; it may be {REQUEST_LIFETIME.total_seconds():g} s at most"
            )
        if request.issued_at - now > CLOCK_SKEW:
            raise RequestExpired(f"the request is dated {request.issued_at.isoformat()}, which is in the future")
        if (known := self.find(request.token)) is not None:
            if not _equal_but_for_date(self._machines[known.id].request, request):
                raise TokenMismatch(f"token {request.token} was used before with another request")
            if not known.state.is_live:
                raise InstanceTerminated(known)
            return known
        machine, option, price, passed_over = self._choose(request, sold_out)
        return Launched(
            instance=self._instance(request, machine, option, price, now, boots_at, passed_over),
            request=request,
        )

    def _choose(
        self, request: LaunchRequest, sold_out: tuple[OfferingKey, ...]
    ) -> tuple[InstanceType, Option, float, tuple[OfferingKey, ...]]:
        """The cheapest option that has room, at today's price; with what was cheaper and had none."""
        if not request.token or not request.options:
            raise RequestRefused("InvalidRequest", "a launch request needs a token and at least one option")
        known = [
            (found[1].price, place, option, *found)
            for place, option in enumerate(request.options)
            if (found := self._offerings.get((option.key, option.reservation_id))) is not None
        ]
        if not known:
            names = ", ".join(str(option.key) for option in request.options[:5])
            raise RequestRefused("UnknownOffering", f"no such offerings: {names}")
        known.sort(key=lambda candidate: candidate[:2])
        without_room: list[OfferingKey] = []
        for price, _, option, machine, offering in known:
            if self._has_room(option, offering, sold_out):
                return machine, option, price, tuple(without_room)
            without_room.append(option.key)
        raise InsufficientCapacity(tuple(dict.fromkeys(without_room)))

    def _has_room(self, option: Option, offering: Offering, sold_out: tuple[OfferingKey, ...]) -> bool:
        if not offering.available or any(matches_offering(pattern, option.key) for pattern in sold_out):
            return False
        return not offering.reservation_id or self._reserved[offering.reservation_id] < offering.reservation_capacity

    def _instance(
        self,
        request: LaunchRequest,
        machine: InstanceType,
        option: Option,
        price: float,
        now: datetime,
        boots_at: datetime | None,
        passed_over: tuple[OfferingKey, ...],
    ) -> Instance:
        identity = "i-" + hashlib.sha256(request.token.encode()).hexdigest()[:17]
        node_name = request.node_name or identity
        wanted_os = request.labels.get(OS_LABEL, "linux")
        labels = {
            **request.labels,
            **machine.labels,
            INSTANCE_TYPE_LABEL: machine.name,
            ZONE_LABEL: option.zone,
            CAPACITY_TYPE_LABEL: option.capacity_type,
            ARCH_LABEL: machine.arch,
            OS_LABEL: wanted_os if wanted_os in machine.os else machine.os[0] if machine.os else "linux",
            HOSTNAME_LABEL: node_name,
        }
        if self.catalog.region:
            labels[REGION_LABEL] = self.catalog.region
        return Instance(
            id=identity,
            provider_id=f"simulated:///{option.zone}/{identity}",
            token=request.token,
            cluster=request.cluster,
            node_claim=request.node_claim,
            node_pool=request.node_pool,
            instance_type=machine.name,
            zone=option.zone,
            capacity_type=option.capacity_type,
            price=price,
            state=InstanceState.PENDING,
            launched_at=now,
            node_name=node_name,
            image_id="simulated",
            reservation_id=option.reservation_id,
            capacity=machine.capacity,
            allocatable=machine.allocatable,
            labels=labels,
            tags=request.tags,
            boots_at=boots_at,
            sold_out=passed_over,
        )

    def terminate(self, instance_id: str, *, now: datetime, delay: timedelta, cause: str = "deleted") -> Event | None:
        """The event that begins its termination; None while that is under way. Raises InstanceNotFound afterwards."""
        instance = self.get(instance_id)
        if instance.state is InstanceState.TERMINATING:
            return None
        return Terminating(instance_id=instance_id, at=now, gone_at=now + delay, cause=cause)

    # changing

    def apply(self, event: Event) -> None:
        """Make the event so."""
        match event:
            case Launched(instance=instance, request=request):
                self._machines[instance.id] = _Machine(instance, request, 0)
                self._ids_by_token[instance.token] = instance.id
                self._live_by_claim[instance.node_claim] += 1
                if self._live_by_claim[instance.node_claim] > 1:
                    self._doubles.add(instance.node_claim)
                if instance.reservation_id:
                    self._reserved[instance.reservation_id] += 1
                if instance.boots_at is not None:
                    heapq.heappush(self._due, (instance.boots_at, _Step.BOOTED, instance.id))
                self._changed(instance.id)
            case Terminating(instance_id=instance_id, gone_at=gone_at):
                machine = self._machines[instance_id]
                if machine.ended is None:
                    self._live_by_claim[machine.instance.node_claim] -= 1
                    if machine.instance.reservation_id:
                        self._reserved[machine.instance.reservation_id] -= 1
                machine.ended = event
                heapq.heappush(self._due, (gone_at, _Step.GONE, instance_id))
                self._set_state(machine, InstanceState.TERMINATING)

    def advance(self, now: datetime) -> None:
        """Let everything happen that is due by now."""
        while self._due and self._due[0][0] <= now:
            at, step, instance_id = heapq.heappop(self._due)
            machine = self._machines[instance_id]
            match step:
                case _Step.BOOTED:
                    if machine.instance.state is InstanceState.PENDING:
                        self._set_state(machine, InstanceState.RUNNING)
                case _Step.GONE:
                    if machine.instance.state is not InstanceState.TERMINATED:
                        self._set_state(machine, InstanceState.TERMINATED)
                        heapq.heappush(self._due, (at + FORGET_AFTER, _Step.FORGOTTEN, instance_id))
                case _Step.FORGOTTEN:
                    self.forgotten_revision = max(self.forgotten_revision, machine.revision)
                    self._listed.pop(instance_id, None)

    def _set_state(self, machine: _Machine, state: InstanceState) -> None:
        machine.instance = msgspec.structs.replace(machine.instance, state=state)
        self._changed(machine.instance.id)

    def _changed(self, instance_id: str) -> None:
        self.revision += 1
        machine = self._machines[instance_id]
        machine.revision = self.revision
        self._listed.pop(instance_id, None)
        self._listed[instance_id] = machine

    # reading

    @property
    def next_due(self) -> datetime | None:
        """When `advance` will have something to do; None: nothing is under way."""
        return self._due[0][0] if self._due else None

    def find(self, token: str) -> Instance | None:
        """What was ever launched under this token."""
        instance_id = self._ids_by_token.get(token)
        return None if instance_id is None else self._machines[instance_id].instance

    def get(self, instance_id: str) -> Instance:
        """Raises InstanceNotFound when it is terminated or never was."""
        machine = self._machines.get(instance_id)
        if machine is None:
            raise InstanceNotFound(f"there is no instance {instance_id}")
        if machine.instance.state is InstanceState.TERMINATED:
            raise InstanceNotFound(f"instance {instance_id} is terminated")
        return machine.instance

    def instances(self, *, changed_since: int = 0) -> list[Instance]:
        """What is listed and has changed after that revision, least recently changed first."""
        changed = []
        for machine in reversed(self._listed.values()):
            if machine.revision <= changed_since:
                break
            changed.append(machine.instance)
        changed.reverse()
        return changed

    def record(self) -> LaunchRecord:
        """Every launch ever made, in order."""
        launches = tuple(
            Launch(
                token=machine.instance.token,
                node_claim=machine.instance.node_claim,
                node_pool=machine.instance.node_pool,
                instance_id=machine.instance.id,
                instance_type=machine.instance.instance_type,
                zone=machine.instance.zone,
                capacity_type=machine.instance.capacity_type,
                price=machine.instance.price,
                launched_at=machine.instance.launched_at,
                ended_at=machine.ended.at if machine.ended else None,
                ended_by=machine.ended.cause if machine.ended else "",
            )
            for machine in self._machines.values()
        )
        return LaunchRecord(
            launches=launches,
            by_token=dict(Counter(launch.token for launch in launches)),
            by_claim=dict(Counter(launch.node_claim for launch in launches)),
            doubles=tuple(sorted(self._doubles)),
        )


def _equal_but_for_date(a: LaunchRequest, b: LaunchRequest) -> bool:
    return msgspec.structs.replace(a, issued_at=b.issued_at) == b


def matches_offering(pattern: OfferingKey, key: OfferingKey) -> bool:
    """Does the pattern (`*` matches everything, `general-*` what begins so) name this offering?"""
    return (
        fnmatchcase(key.capacity_type, pattern.capacity_type)
        and fnmatchcase(key.instance_type, pattern.instance_type)
        and fnmatchcase(key.zone, pattern.zone)
    )
