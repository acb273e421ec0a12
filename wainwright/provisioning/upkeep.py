"""What runs by the clock: claims moved along (lifecycle), and hints for whatever nobody works on (sweep)."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import msgspec

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node
from wainwright.api.reasons import EventReason
from wainwright.batching import shards
from wainwright.batching.claims import ClaimRecords
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound, ViewNotReady
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS, NODES
from wainwright.kube.view import ViewReading, read_view
from wainwright.provisioning.binding import Workers
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.lifecycle import AdoptLate, DeleteClaim, Missing, NodeMissing, Ready, Step, Upset, decide
from wainwright.provisioning.nominations import Nominator
from wainwright.provisioning.objects import adoption
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.ports import Hints
from wainwright.provisioning.steps import Marked, plural

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Upkeep:
    """Moves claims along that nobody holds. Every pass looks at everything anew and may be repeated or run twice."""

    def __init__(
        self,
        store: Store,
        records: ClaimRecords,
        kube: KubeApi,
        nominator: Nominator,
        hints: Hints,
        events: Events,
        workers: Workers,
        clock: Clock,
        policy: LaunchPolicy,
    ) -> None:
        self._store = store
        self._records = records
        self._kube = kube
        self._nominator = nominator
        self._hints = hints
        self._events = events
        self._workers = workers
        self._clock = clock
        self._policy = policy
        self._decoded: dict[str, dict[bytes, Any]] = {}

    def lifecycle(self) -> str:
        """One pass over all claims; answers what was done, for the log. Does nothing on an incomplete view.

        Raises StoreUnavailable. What Kubernetes refuses is tried again in the next pass.
        """
        records = self._records.survey()
        try:
            view = read_view(self._store, ("nodeclaims", "nodes"))
        except ViewNotReady as error:
            return str(error)
        expired = self._nominator.expire()
        claims, nodes = self._objects(view, "nodeclaims", NodeClaim), self._objects(view, "nodes", Node)
        steps = decide(claims, nodes, records, self._clock.now(), self._policy)
        done = [what for what in self._workers.map(self._take, steps) if what]
        counts = {what: done.count(what) for what in sorted(set(done))}
        told = [f"{count} {what}" for what, count in counts.items()]
        if expired:
            told.append(f"{plural(expired, 'nomination')} ran out")
        return ", ".join(told)

    def _objects(self, view: ViewReading, kind: str, as_type: type[T]) -> list[T]:
        """The view's objects; only those that changed since the last pass are decoded, as there is one every second."""
        known, decoder = self._decoded.get(kind, {}), msgspec.json.Decoder(as_type)
        fresh: dict[bytes, T] = {text: known.get(text) or decoder.decode(text) for text in view.raw[kind]}
        self._decoded[kind] = fresh
        return list(fresh.values())

    def _take(self, step: Step) -> str:
        """One step; what it came to, empty for nothing."""
        try:
            match step:
                case AdoptLate():
                    return self._adopt(step)
                case Upset():
                    return self._upset(step)
                case Missing():
                    return self._confirm_missing(step)
                case NodeMissing():
                    return self._confirm_node_missing(step)
                case DeleteClaim():
                    return self._delete(step)
                case Ready():
                    return self._open(step)
        except (Conflict, NotFound):
            return "changed meanwhile"
        except (KubeError, KubeUnavailable) as error:
            logger.warning("action=upkeep_refused step=%s error=%s", type(step).__name__, error)
            return "refused"

    def _adopt(self, step: AdoptLate) -> str:
        # The view may lag: a claim that has just gone has no record any more either.
        claim = self._kube.get(NODE_CLAIMS, step.claim.name, as_type=NodeClaim)
        if not self._records.adopt_late(adoption(claim), request_ms=self._policy.request_ms):
            return ""
        self._hints.launch(step.claim.name)
        return "without a record: withdrawn"

    def _upset(self, step: Upset) -> str:
        if not self._records.upset(step.name, step.uid, step.reason, step.message):
            return ""
        about = ObjectReference(NODE_CLAIMS, step.name, "", step.uid)
        self._events.event(about, EventReason.TERMINATING, "Normal", step.message)
        self._hints.launch(step.name)
        return "being deleted"

    def _confirm_missing(self, step: Missing) -> str:
        try:
            found = self._kube.get(NODE_CLAIMS, step.name, as_type=Marked).metadata.uid
        except NotFound:
            found = ""
        if found == step.uid:
            return ""
        if not self._records.upset(step.name, step.uid, "NodeClaimGone", "its NodeClaim is gone"):
            return ""
        self._hints.launch(step.name)
        return "gone"

    def _confirm_node_missing(self, step: NodeMissing) -> str:
        try:
            self._kube.get(NODES, step.node, as_type=Marked)
        except NotFound:
            meta = step.claim.metadata
            message = f"node {step.node} is gone"
            return self._delete(DeleteClaim(name=meta.name, uid=meta.uid, reason="NodeGone", message=message))
        return ""

    def _delete(self, step: DeleteClaim) -> str:
        self._kube.delete(NODE_CLAIMS, step.name, uid=step.uid)
        about = ObjectReference(NODE_CLAIMS, step.name, "", step.uid)
        self._events.event(about, EventReason.TERMINATING, "Warning", f"{step.reason}: {step.message}")
        return "deleted"

    def _open(self, step: Ready) -> str:
        if step.opens:
            # First: should we die in between, the next pass does both; the other way round, it would see nothing to do.
            keep_ms = milliseconds(self._policy.nomination)
            self._records.begin_nominations(step.node, step.claim, keep_ms=keep_ms)
        if step.node_patch is not None:
            self._kube.merge_patch(NODES, step.node, step.node_patch)
        if step.opens:
            self._records.wake_retries(f"node {step.node} is ready")
        if step.status_patch is not None:
            self._kube.merge_patch(NODE_CLAIMS, step.claim, step.status_patch, subresource="status")
        return "ready" if step.opens else "updated"

    def sweep(self, shard_count: int) -> str:
        """Hints again whatever is due and held by nobody; answers how much of what, for the log."""
        told = []
        waiting = shards.overdue(self._store, shard_count)
        for shard in waiting:
            self._hints.window(shard)
        if waiting:
            told.append(plural(len(waiting), "shard"))
        overdue = self._records.overdue()
        if overdue.solve:
            self._hints.solve()
            told.append("solve")
        for claim in overdue.claims:
            self._hints.launch(claim)
        for batch in overdue.nominations:
            self._hints.nominate(batch)
        told += [plural(len(overdue.claims), "claim")] if overdue.claims else []
        told += [plural(len(overdue.nominations), "nomination")] if overdue.nominations else []
        return ", ".join(told)
