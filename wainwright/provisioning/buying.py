"""Steps 1 to 3 of carrying out a claim (design §7): are its pods there, its NodeClaim, its instance.

Claim first, check after, then buy (design §4, rule 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from wainwright.api import names
from wainwright.api.meta import Condition
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.reasons import ConditionType, EventReason
from wainwright.batching.claims import ClaimRecord, ClaimRecords, Lease, State, Verdict, View
from wainwright.clock import Clock
from wainwright.cloud.errors import (
    CloudUnavailable,
    InstanceTerminated,
    InsufficientCapacity,
    NodeClassNotReady,
    RequestExpired,
    RequestRefused,
    Throttled,
)
from wainwright.cloud.port import CloudProvider, Instance
from wainwright.errors import AlreadyExists, Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS
from wainwright.kube.status import condition_json, merged_conditions
from wainwright.provisioning.attempts import (
    LAUNCHED,
    Attempt,
    encode_attempts,
    ended,
    first_attempt,
    next_attempt,
    request_of,
    token,
)
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.objects import (
    KeptOptions,
    adoption,
    attempts_of,
    first_request,
    kept_options,
    node_claim_body,
)
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.steps import (
    ClaimFails,
    Launched,
    Marked,
    NotOurs,
    NotYet,
    is_wanted,
    launched_fields,
    plural,
    surroundings,
    uid_precondition,
)
from wainwright.scheduling.instance_types import OfferingKey


class Buyer:
    """Gets claims their instances. cluster: this cluster's name in the cloud."""

    def __init__(
        self,
        records: ClaimRecords,
        kube: KubeApi,
        cloud: CloudProvider,
        events: Events,
        clock: Clock,
        policy: LaunchPolicy,
        cluster: str,
    ) -> None:
        self._records = records
        self._kube = kube
        self._cloud = cloud
        self._events = events
        self._clock = clock
        self._policy = policy
        self._cluster = cluster

    def obtain(self, lease: Lease, record: ClaimRecord) -> Launched:
        """From `planned` or `created` to `launched`.

        Raises ClaimFails (nothing was bought, or what was is found by its token), NotOurs, FenceLost, and what says
        "later": TemporaryError, Throttled, NodeClassNotReady.
        """
        view = surroundings(self._records, record.name)
        self._demand_node_pool(record, view)
        if not is_wanted(view, record):
            raise ClaimFails("PodsGone", "none of the pods it was planned for waits for it any more")
        node_claim = self._node_claim(record)
        if record.deadline_ms and view.now_ms > record.deadline_ms:
            seconds = self._policy.deadline.total_seconds()
            raise ClaimFails(
                "LaunchTimeout", f"no instance within {seconds:g} s; last: {record.message or 'no answer'}"
            )
        node_claim, instance = self._instance(lease, record, node_claim)
        fields = {
            **launched_fields(instance),
            "uid": node_claim.metadata.uid,
            "attempts": encode_attempts(ended(attempts_of(node_claim), LAUNCHED)),
            "allowed_until_ms": "0",
        }
        self._records.move(lease, (State.CREATED,), State.LAUNCHED, fields)
        self._remember(instance.sold_out)
        message = (
            f"launched {instance.instance_type} in {instance.zone} ({instance.capacity_type}), "
            f"{instance.price:.4g} $/h, for {plural(len(record.pods), 'pod')} of plan {record.plan}"
        )
        about = ObjectReference.of(NODE_CLAIMS, node_claim.metadata)
        self._events.event(about, EventReason.LAUNCHED, "Normal", message)
        return Launched(node_claim=node_claim, instance=instance)

    def _demand_node_pool(self, record: ClaimRecord, view: View) -> None:
        """Raises ClaimFails unless the NodePool that it was planned for is still the one under that name."""
        name = record.node_pool
        if not view.node_pool:
            raise ClaimFails("NodePoolGone", f"there is no NodePool {name} any more")
        pool = msgspec.json.decode(view.node_pool, type=Marked).metadata
        if record.node_pool_uid and pool.uid != record.node_pool_uid:
            raise ClaimFails("NodePoolReplaced", f"NodePool {name} was made anew since this was planned")
        if pool.deletion_timestamp is not None:
            raise ClaimFails("NodePoolGone", f"NodePool {name} is being deleted")

    # The NodeClaim ----------------------------------------------------------------------------------------------------

    def _node_claim(self, record: ClaimRecord) -> NodeClaim:
        """The claim's NodeClaim, created if it never was."""
        if record.state is State.PLANNED:
            try:
                return self._create_node_claim(record)
            except AlreadyExists:
                pass  # made by a holder before us, or in a call of ours whose answer was lost
        try:
            node_claim = self._kube.get(NODE_CLAIMS, record.name, as_type=NodeClaim)
        except NotFound as error:
            raise ClaimFails("NodeClaimGone", "its NodeClaim was deleted") from error
        if record.uid and record.uid != node_claim.metadata.uid:
            raise ClaimFails("NodeClaimReplaced", "its NodeClaim was deleted and made anew")
        if node_claim.is_terminating:
            raise ClaimFails("NodeClaimDeleted", "its NodeClaim is being deleted")
        return node_claim

    def _create_node_claim(self, record: ClaimRecord) -> NodeClaim:
        options = KeptOptions.of(record).unpack()
        if not options:
            raise ClaimFails("NoOptions", "the plan keeps no way to launch it")
        request = first_request(record, self._cluster, named=self._cloud.names_nodes, now=self._clock.now())
        attempt = first_attempt(request, options, self._records.unavailable())
        try:
            stored = self._kube.create(NODE_CLAIMS, node_claim_body(record, (attempt,)))
        except AlreadyExists:
            raise
        except KubeError as error:
            raise ClaimFails("NodeClaimRefused", str(error)) from error
        return msgspec.convert(stored, NodeClaim)

    # The instance -----------------------------------------------------------------------------------------------------

    def _instance(self, lease: Lease, record: ClaimRecord, node_claim: NodeClaim) -> tuple[NodeClaim, Instance]:
        """The claim's instance, by the open attempt or those after it."""
        options = kept_options(node_claim).unpack()
        while True:
            attempts = attempts_of(node_claim)
            if attempts and attempts[-1].outcome == LAUNCHED:
                return node_claim, self._launched_before(lease, node_claim, attempts)
            if not attempts or not attempts[-1].is_open:
                raise ClaimFails("AttemptsUnreadable", f"somebody changed annotation {names.ATTEMPTS_ANNOTATION}")
            # Dated before the check: whoever sleeps after it launches nothing once the permission has run out.
            request = request_of(attempts[-1], node_claim.metadata.uid, options, self._clock.now())
            self._check(lease, node_claim, attempts)
            try:
                return node_claim, self._cloud.create(request)
            except CloudUnavailable as error:
                # Whether something was launched is unknown: the same request again, by whoever comes next.
                raise NotYet(f"the cloud did not answer: {error}", milliseconds(self._policy.retry)) from error
            except InsufficientCapacity as error:
                others_ms = self._records.answered(lease)
                self._remember(error.offerings)
                if others_ms > 0:
                    raise NotYet("another request of this attempt may still arrive", others_ms) from error
                after = next_attempt(attempts, options, self._records.unavailable(), error.offerings)
                if after is None:
                    raise ClaimFails("InsufficientCapacity", str(error)) from error
                node_claim = self._write_attempts(node_claim, after)
            except RequestRefused as error:
                self._records.answered(lease)
                self._tell_refusal(node_claim, error.reason, str(error))
                for_ms = milliseconds(self._policy.refused)
                self._records.remember_refused(record.node_pool_uid, error.reason, str(error), for_ms=for_ms)
                raise ClaimFails(error.reason, str(error)) from error
            except InstanceTerminated as error:
                self._records.answered(lease)
                raise ClaimFails("InstanceTerminated", str(error)) from error
            except RequestExpired as error:
                self._records.answered(lease)
                raise NotYet(str(error), 0) from error
            except NodeClassNotReady as error:
                self._records.answered(lease)
                self._tell_refusal(node_claim, "NodeClassNotReady", str(error))
                raise
            except Throttled:
                self._records.answered(lease)
                raise

    def _launched_before(self, lease: Lease, node_claim: NodeClaim, attempts: Sequence[Attempt]) -> Instance:
        """The instance of an attempt that ended well, where only Redis has forgotten that it did."""
        self._check(lease, node_claim, attempts)
        instance = self._cloud.find(token(node_claim.metadata.uid, attempts[-1].number))
        if instance is None or not instance.state.is_live:
            raise ClaimFails("InstanceGone", "what was launched for it is gone")
        return instance

    def _check(self, lease: Lease, node_claim: NodeClaim, attempts: Sequence[Attempt]) -> None:
        """Returns for those who may call the cloud; the others are told what to do by what it raises."""
        lease.demand()
        meta = node_claim.metadata
        verdict = self._records.check(
            lease,
            meta.uid,
            allowed_for_ms=self._policy.request_ms,
            deadline_ms=milliseconds(self._policy.deadline),
            attempts=encode_attempts(attempts),
        )
        match verdict:
            case Verdict.GO:
                return
            case Verdict.STOP:
                raise NotOurs(f"claim {meta.name} is somebody else's")
            case Verdict.WAIT:
                raise NotOurs(f"claim {meta.name} waits until the claims are adopted")
            case Verdict.WITHDRAW:
                self._records.adopt_late(adoption(node_claim), request_ms=self._policy.request_ms)
                raise NotOurs(f"claim {meta.name} came too late and is withdrawn")
            case Verdict.OTHER:
                self._delete_exactly(node_claim)
                raise NotOurs(f"claim {meta.name} has another NodeClaim")
            case _:
                assert_never(verdict)

    def _delete_exactly(self, node_claim: NodeClaim) -> None:
        meta = node_claim.metadata
        try:
            self._kube.delete(NODE_CLAIMS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        except (NotFound, Conflict):
            return

    def _write_attempts(self, node_claim: NodeClaim, attempts: Sequence[Attempt]) -> NodeClaim:
        """Writes the attempts to the NodeClaim before the next one is asked for."""
        meta = node_claim.metadata
        annotations = {names.ATTEMPTS_ANNOTATION: encode_attempts(attempts)}
        body = {"metadata": uid_precondition(meta.uid, meta.resource_version, annotations=annotations)}
        try:
            return msgspec.convert(self._kube.merge_patch(NODE_CLAIMS, meta.name, body), NodeClaim)
        except NotFound as error:
            raise ClaimFails("NodeClaimGone", "its NodeClaim was deleted") from error
        except Conflict as error:
            raise NotYet("the NodeClaim changed meanwhile", 0) from error

    def _remember(self, offerings: Sequence[OfferingKey]) -> None:
        if offerings:
            self._records.remember_unavailable(offerings, for_ms=milliseconds(self._policy.unavailable))

    def _tell_refusal(self, node_claim: NodeClaim, reason: str, message: str) -> None:
        """Condition Launched=False with the cloud's reason. Best effort: the next visit tells it again."""
        meta = node_claim.metadata
        told = Condition(type=ConditionType.LAUNCHED, status="False", reason=reason, message=message)
        conditions = merged_conditions(node_claim.status.conditions, (told,), self._clock.now())
        if conditions is None:
            return
        status = {"conditions": [condition_json(condition) for condition in conditions]}
        body = {"metadata": uid_precondition(meta.uid), "status": status}
        try:
            self._kube.merge_patch(NODE_CLAIMS, meta.name, body, subresource="status")
        except (KubeError, KubeUnavailable):
            return
