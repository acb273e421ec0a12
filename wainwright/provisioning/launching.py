"""Carrying out one claim, from wherever its last holder stopped (design §7, by the rules of §4).

Whoever holds the claim's lease does it; every step looks first, then acts. The model of all this is
reference/launch_protocol.pml: change both together.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from wainwright.api.reasons import EventReason
from wainwright.batching.claims import ClaimRecord, ClaimRecords, Lease, State
from wainwright.cloud.errors import CloudError, Throttled
from wainwright.errors import FenceLost, StoreUnavailable, TemporaryError, WainwrightError
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS
from wainwright.provisioning.buying import Buyer
from wainwright.provisioning.cluster import Events
from wainwright.provisioning.failing import FailingClaims
from wainwright.provisioning.joining import Joiner
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.steps import ClaimFails, NotOurs, Outcome


class Keeper(Protocol):
    """Renews leases while they are worked under (LeaseKeeper)."""

    def hold(self, lease: Lease) -> None: ...

    def drop(self, lease: Lease) -> None: ...


class Launcher:
    """Carries out claims, one per call; any number of them beside each other."""

    def __init__(
        self,
        records: ClaimRecords,
        buyer: Buyer,
        joiner: Joiner,
        failing: FailingClaims,
        events: Events,
        keeper: Keeper,
        policy: LaunchPolicy,
    ) -> None:
        self._records = records
        self._buyer = buyer
        self._joiner = joiner
        self._failing = failing
        self._events = events
        self._keeper = keeper
        self._policy = policy

    def launch(self, name: str) -> Outcome:
        """Brings a claim as far as it goes now. Safe to call late, twice, or on many hosts at once.

        Raises StoreUnavailable when not even the lease could be taken.
        """
        taken = self._records.take(name)
        if taken is None:
            return Outcome.SKIPPED
        lease, record = taken
        self._keeper.hold(lease)
        try:
            return self._carry_on(lease, record)
        except (FenceLost, StoreUnavailable):
            # Redis went away, or the claim is another's: nothing may be changed, the sweep hands it on.
            return Outcome.LOST
        except NotOurs:
            return self._leave(lease, 0, Outcome.STOPPED)
        except (WainwrightError, CloudError) as error:
            return self._leave(lease, self._wait_ms(error), Outcome.WAITING, str(error))
        finally:
            self._keeper.drop(lease)

    def _carry_on(self, lease: Lease, record: ClaimRecord) -> Outcome:
        while True:
            try:
                if record.state is State.FAILING:
                    launched = self._failing.carry_on(lease, record)
                    if launched is None:
                        return Outcome.FAILED
                elif record.state is State.LAUNCHED:
                    launched = self._joiner.resume(record)
                else:
                    launched = self._buyer.obtain(lease, record)
                self._joiner.finish(lease, record, launched)
            except ClaimFails as failure:
                self._records.begin_failing(lease, failure.reason, str(failure))
                about = ObjectReference(NODE_CLAIMS, record.name, "", record.uid)
                self._events.event(about, EventReason.CLAIM_FAILED, "Warning", f"{failure.reason}: {failure}")
                record = msgspec.structs.replace(self._records.read(lease), reason=failure.reason)
            else:
                return Outcome.DONE

    def _wait_ms(self, error: Exception) -> int:
        if isinstance(error, Throttled):
            return min(round(error.retry_after_seconds * 1000), milliseconds(self._policy.longest_wait))
        if isinstance(error, TemporaryError) and error.retry_after is not None:
            return round(error.retry_after * 1000)
        return milliseconds(self._policy.retry)

    def _leave(self, lease: Lease, wait_ms: int, outcome: Outcome, why: str = "") -> Outcome:
        try:
            if why:
                self._records.remark(lease, why)
            self._records.release(lease, wait_ms=wait_ms)
        except (FenceLost, StoreUnavailable):
            return Outcome.LOST
        return outcome
