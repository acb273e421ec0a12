"""How a claim fails, strictly in order (design §4, rule 3): nothing that was bought for it is lost sight of, and its
pods are queued anew only once nothing can be bought for it any more.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.reasons import ConditionType
from wainwright.batching.claims import ClaimRecord, ClaimRecords, Lease, State, View
from wainwright.cloud.errors import InstanceNotFound
from wainwright.cloud.port import CloudProvider, Instance, InstanceState
from wainwright.errors import Conflict, FenceLost, NotFound
from wainwright.kube.resources import NODE_CLAIMS
from wainwright.provisioning.attempts import decode_attempts, token, uid_of
from wainwright.provisioning.cluster import KubeApi
from wainwright.provisioning.durations import parse_duration
from wainwright.provisioning.objects import attempts_of, has_condition
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.steps import Launched, NotYet, is_wanted, launched_fields, surroundings
from wainwright.provisioning.termination import Terminator

LOOKS: Final = 3
"""How often a NodeClaim that changes between a look and its deletion is looked at again in one visit."""


class FailingClaims:
    """Carries failing claims on."""

    def __init__(
        self, records: ClaimRecords, kube: KubeApi, cloud: CloudProvider, terminator: Terminator, policy: LaunchPolicy
    ) -> None:
        self._records = records
        self._kube = kube
        self._cloud = cloud
        self._terminator = terminator
        self._policy = policy

    def carry_on(self, lease: Lease, record: ClaimRecord) -> Launched | None:
        """The instance, where there is one and the claim is wanted after all (it is `launched` then); else None: the
        NodeClaim and all that was bought are gone, its pods are queued anew.

        Raises NotYet while something has to be waited for, FenceLost.
        """
        view = surroundings(self._records, record.name)
        left_ms = record.unanswered_until_ms - view.now_ms
        if left_ms > 0:
            raise NotYet("a request to the cloud may still arrive", left_ms)
        claim, instances, taken = self._look_and_mark(lease, record, view)
        if taken is not None:
            return taken
        if not self._records.is_still_failing(lease):
            raise FenceLost(f"claim {record.name} is not failing any more")
        self._end(record, claim, instances)
        lease.demand()
        self._records.over(lease, f"{record.reason}: {record.message}".strip(": "))
        self._records.wake_retries(f"claim {record.name} failed")
        return None

    def _look_and_mark(
        self, lease: Lease, record: ClaimRecord, view: View
    ) -> tuple[NodeClaim | None, list[Instance], Launched | None]:
        """The NodeClaim, being deleted (None: there is none), and what the cloud has for it; or what was taken."""
        for _ in range(LOOKS):
            lease.demand()
            claim = self._node_claim(record.name)
            instances = self._instances(record, claim)
            if claim is None or claim.is_terminating:
                return claim, instances, None
            meta = claim.metadata
            mine = [i for i in instances if i.state.is_live and uid_of(i.token) == meta.uid]
            if mine and is_kept(view, record, claim):
                fields = {**launched_fields(mine[0]), "uid": meta.uid, "reason": "", "message": ""}
                self._records.move(lease, (State.FAILING,), State.LAUNCHED, fields)
                return claim, instances, Launched(node_claim=claim, instance=mine[0])
            try:
                self._kube.delete(NODE_CLAIMS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
            except Conflict:
                continue
            except NotFound:
                return None, instances, None
            return claim, instances, None
        raise NotYet("its NodeClaim keeps changing", milliseconds(self._policy.poll))

    def _node_claim(self, name: str) -> NodeClaim | None:
        try:
            return self._kube.get(NODE_CLAIMS, name, as_type=NodeClaim)
        except NotFound:
            return None

    def _instances(self, record: ClaimRecord, claim: NodeClaim | None) -> list[Instance]:
        """All that the cloud has under any token that was ever allowed for this claim, but for what is terminated."""
        attempts = (*decode_attempts(record.attempts), *(attempts_of(claim) if claim is not None else ()))
        last = max((attempt.number for attempt in attempts), default=1)
        uids = sorted({record.uid, claim.metadata.uid if claim is not None else ""} - {""})
        found: dict[str, Instance] = {}
        for uid in uids:
            for number in range(1, last + 1):
                instance = self._cloud.find(token(uid, number))
                if instance is not None and instance.state is not InstanceState.TERMINATED:
                    found[instance.id] = instance
        known = {instance.provider_id for instance in found.values()}
        for provider_id in sorted(_provider_ids(record, claim) - known):
            try:
                instance = self._cloud.get(provider_id)
            except InstanceNotFound:
                continue
            found[instance.id] = instance
        return [found[identity] for identity in sorted(found)]

    def _end(self, record: ClaimRecord, claim: NodeClaim | None, instances: list[Instance]) -> None:
        """Node, instance, NodeClaim, in this order. Raises NotYet until each is gone."""
        node_name = record.node or (claim.status.node_name if claim is not None else "") or record.name
        provider_ids = _provider_ids(record, claim) | {instance.provider_id for instance in instances}
        node = self._terminator.find_node(node_name, provider_ids)
        if node is not None and any(instance.state.is_live for instance in instances):
            self._terminator.drain(node, drain_deadline(claim))
        self._terminator.end(instances)
        if node is not None:
            self._terminator.remove_node(node)
        if claim is not None:
            self._terminator.let_go(claim)


def is_kept(view: View, record: ClaimRecord, claim: NodeClaim) -> bool:
    """Is a failing claim with a live instance better kept? If one of its pods is still there for it, or if its node has
    joined the cluster: then it serves whoever runs on it by now, and going is not a matter of launching any more.
    """
    return is_wanted(view, record) or has_condition(claim.status.conditions, ConditionType.REGISTERED)


def drain_deadline(claim: NodeClaim | None) -> datetime | None:
    """When a claim's terminationGracePeriod is over; None: it has none."""
    if claim is None or claim.metadata.deletion_timestamp is None or claim.spec.termination_grace_period is None:
        return None
    grace = parse_duration(claim.spec.termination_grace_period)
    return None if grace is None else claim.metadata.deletion_timestamp + grace


def _provider_ids(record: ClaimRecord, claim: NodeClaim | None) -> set[str]:
    return {record.provider_id, claim.status.provider_id if claim is not None else ""} - {""}
