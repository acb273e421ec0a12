"""What can be made to go wrong in the simulated cloud."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from wainwright.scheduling.instance_types import OfferingKey


class Operation(StrEnum):
    """What a fault can be limited to."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    FIND = "find"
    GET = "get"
    LIST = "list"
    CATALOG = "catalog"


_LAUNCH_ONLY = (Operation.LAUNCH,)


class SoldOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Offerings without room, until replaced. `*` matches everything."""

    capacity_type: str = "*"
    instance_type: str = "*"
    zone: str = "*"

    @property
    def pattern(self) -> OfferingKey:
        return OfferingKey(self.capacity_type, self.instance_type, self.zone)


class Throttle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most `burst` requests at once and `per_second` after that."""

    per_second: float
    burst: int = 1
    operations: tuple[Operation, ...] = _LAUNCH_ONLY


class Hang(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait before doing anything. next: how many requests meet it; None: all."""

    seconds: float
    next: int | None = None
    operations: tuple[Operation, ...] = _LAUNCH_ONLY


class LoseAnswers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do what was asked, then close the connection without an answer."""

    next: int | None = None
    operations: tuple[Operation, ...] = _LAUNCH_ONLY


class Fail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer with an internal error and do nothing: to the caller, the outcome is unknown."""

    next: int | None = None
    operations: tuple[Operation, ...] = _LAUNCH_ONLY


class Refuse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Refuse launches for good. node_pool: whose; empty: everyone's."""

    next: int | None = None
    reason: str = "UnauthorizedOperation"
    message: str = "you are not authorized to perform this operation"
    node_pool: str = ""


class NeverBoot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Launch, but no kubelet ever reports."""

    next: int | None = None


class Faults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All that goes wrong at present. Kept in memory only: a service that starts anew has none."""

    sold_out: tuple[SoldOut, ...] = ()
    throttle: Throttle | None = None
    hang: Hang | None = None
    lose_answers: LoseAnswers | None = None
    fail: Fail | None = None
    refuse: Refuse | None = None
    never_boot: NeverBoot | None = None


class FaultBoard:
    """Hands each request its faults, and counts down those that are for the next few only."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._tokens = 0.0
        self._refilled_at: datetime | None = None

    def replace(self, faults: Faults) -> None:
        self.faults = faults
        self._tokens = float(faults.throttle.burst) if faults.throttle else 0.0
        self._refilled_at = None

    def throttled_for(self, operation: Operation, now: datetime) -> float:
        """Seconds after which to come again; 0: go ahead."""
        throttle = self.faults.throttle
        if throttle is None or operation not in throttle.operations:
            return 0.0
        passed = now - (self._refilled_at or now)
        self._refilled_at = now
        self._tokens = min(
            throttle.burst, self._tokens + max(passed, timedelta(0)).total_seconds() * throttle.per_second
        )
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / throttle.per_second if throttle.per_second > 0 else 60.0

    def hang_seconds(self, operation: Operation) -> float:
        """How long this request waits."""
        fault = self.faults.hang
        return fault.seconds if fault and operation in fault.operations and self._take("hang", fault.next) else 0.0

    def loses_answer(self, operation: Operation) -> bool:
        """Is this request done, and not answered?"""
        fault = self.faults.lose_answers
        return bool(fault and operation in fault.operations and self._take("lose_answers", fault.next))

    def fails(self, operation: Operation) -> bool:
        """Is this request answered with an internal error?"""
        fault = self.faults.fail
        return bool(fault and operation in fault.operations and self._take("fail", fault.next))

    def refusal(self, node_pool: str) -> Refuse | None:
        """Why this launch is refused for good; None: it is not."""
        fault = self.faults.refuse
        meets = fault is not None and fault.node_pool in ("", node_pool) and self._take("refuse", fault.next)
        return fault if meets else None

    def boots(self) -> bool:
        """Will the instance launched now ever boot?"""
        fault = self.faults.never_boot
        return not (fault and self._take("never_boot", fault.next))

    def _take(self, name: str, left: int | None) -> bool:
        """Use the fault once, if it is not used up."""
        if left is None:
            return True
        if left <= 0:
            return False
        fault = getattr(self.faults, name)
        used = msgspec.structs.replace(fault, next=left - 1) if left > 1 else None
        self.faults = msgspec.structs.replace(self.faults, **{name: used})
        return True
