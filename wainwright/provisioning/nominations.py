"""Placements that need no claim: recorded, told, and left to kube-scheduler, which binds them."""

from __future__ import annotations

import msgspec

from wainwright.api.reasons import EventReason
from wainwright.batching.claims import ClaimRecords
from wainwright.kube.events import EventType, ObjectReference
from wainwright.kube.resources import PODS
from wainwright.provisioning.cluster import Events
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.records import Retry, one_line
from wainwright.provisioning.steps import plural
from wainwright.scheduling.plan import Unplaced


class Nominator:
    """Carries out what a batch's plan placed on nodes that exist, and tells of what it could not place."""

    def __init__(self, records: ClaimRecords, events: Events, policy: LaunchPolicy) -> None:
        self._records = records
        self._events = events
        self._policy = policy

    def nominate(self, batch: str) -> str:
        """Safe to repeat; nothing happens for a batch that is not planned. Answers what was done, for the log."""
        nominated, unplaced = self._records.nominate(
            batch,
            keep_ms=milliseconds(self._policy.nomination),
            keep_unready_ms=self._policy.keep_unready_ms,
        )
        for one in nominated:
            on = f"node {one.node}" if one.node else f"the node of claim {one.claim}"
            self._tell(one.uid, one.key, EventReason.NOMINATED, f"expected on {on}; kube-scheduler binds it")
        for uid, key, line in unplaced:
            retry = msgspec.json.decode(line, type=_Told)
            self._tell(uid, key, EventReason.FAILED_SCHEDULING, one_line(retry.unplaced(uid)))
        return f"{plural(len(nominated), 'pod')} nominated, {len(unplaced)} not placed"

    def expire(self) -> int:
        """Gives up room that was kept long enough; how many pods had it. What is still pending of them is found by the
        next resync.
        """
        return len(self._records.expire_nominations())

    def _tell(self, uid: str, key: str, reason: EventReason, message: str) -> None:
        namespace, _, name = key.partition("/")
        kind: EventType = "Warning" if reason is EventReason.FAILED_SCHEDULING else "Normal"
        self._events.event(ObjectReference(PODS, name, namespace, uid), reason, kind, message)


class _Told(Retry, frozen=True, kw_only=True):
    def unplaced(self, uid: str) -> Unplaced:
        return msgspec.convert({"pod": uid, "reasons": self.reasons}, Unplaced)
