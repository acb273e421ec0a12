"""The comparison of cloud and claims (design §4, rule 6): what belongs to no claim is terminated, and a claim whose
instance vanished goes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from wainwright.api import names
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node
from wainwright.api.reasons import EventReason
from wainwright.clock import Clock
from wainwright.cloud.errors import CloudError, InstanceNotFound
from wainwright.cloud.port import CloudProvider, Instance
from wainwright.errors import KubeError, KubeUnavailable, TemporaryError
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS, NODES
from wainwright.provisioning.attempts import uid_of
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.objects import is_planned_claim
from wainwright.provisioning.steps import plural
from wainwright.provisioning.termination import Terminator

logger = logging.getLogger(__name__)

YOUNG: Final = timedelta(seconds=30)
"""An instance younger than this is left alone whatever the comparison says."""


class GarbageCollector:
    """Compares, and cleans up. cluster: this cluster's name in the cloud."""

    def __init__(
        self,
        kube: KubeApi,
        cloud: CloudProvider,
        terminator: Terminator,
        events: Events,
        clock: Clock,
        cluster: str,
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._terminator = terminator
        self._events = events
        self._clock = clock
        self._cluster = cluster

    def collect(self) -> str:
        """One comparison; answers what was done, for the log. Raises CloudError, KubeError, KubeUnavailable when not
        even the lists could be read.
        """
        # The cloud first: an instance in its list has a NodeClaim that is older than it, so a later list of NodeClaims,
        # consistent from Kubernetes, shows that NodeClaim unless it is really gone.
        instances = self._cloud.list(self._cluster)
        nodes, _ = self._kube.list(NODES, Node)
        claims, _ = self._kube.list(NODE_CLAIMS, NodeClaim)
        now = self._clock.now()
        ended = sum(self._end(instance) for instance in orphans(instances, claims, now))
        gone = sum(self._vanished(claim) for claim in without_instance(claims, instances))
        removed = sum(self._remove(node, instances) for node in orphaned_nodes(nodes, claims))
        told = [
            f"{count} {what}"
            for count, what in (
                (ended, "instances without a claim terminated"),
                (gone, "claims without an instance deleted"),
                (removed, "nodes without a claim removed"),
            )
            if count
        ]
        return ", ".join(told) or plural(len(instances), "instance")

    def _end(self, instance: Instance) -> bool:
        logger.warning(
            "action=orphan_terminated instance=%s claim=%s token=%s", instance.id, instance.node_claim, instance.token
        )
        try:
            self._cloud.delete(instance.provider_id)
        except InstanceNotFound:
            return False
        except CloudError as error:
            logger.warning("action=orphan_kept instance=%s error=%s", instance.id, error)
            return False
        return True

    def _vanished(self, claim: NodeClaim) -> bool:
        """Deletes a claim whose instance is gone, or ends without us; its node and pods go with it."""
        try:
            if self._cloud.get(claim.status.provider_id).state.is_live:
                return False
        except InstanceNotFound:
            pass
        except CloudError:
            return False
        meta = claim.metadata
        try:
            self._kube.delete(NODE_CLAIMS, meta.name, uid=meta.uid)
        except (KubeError, KubeUnavailable):
            return False
        message = f"InstanceVanished: {claim.status.provider_id} ended, not by us"
        self._events.event(ObjectReference.of(NODE_CLAIMS, meta), EventReason.TERMINATING, "Warning", message)
        return True

    def _remove(self, node: Node, instances: Iterable[Instance]) -> bool:
        """Removes a Node of ours that has lost its NodeClaim, once its machine is gone."""
        if any(instance.provider_id == node.spec.provider_id for instance in instances):
            return False
        try:
            self._terminator.remove_node(node)
        except (KubeError, KubeUnavailable, TemporaryError) as error:
            logger.warning("action=node_kept node=%s error=%s", node.metadata.name, error)
            return False
        return True


def orphans(instances: Iterable[Instance], claims: Iterable[NodeClaim], now: datetime) -> list[Instance]:
    """Live instances that belong to no NodeClaim: none has the name and UID in their token, or it has another instance.

    Young ones are left out.
    """
    owners = {(claim.name, claim.metadata.uid): claim.status.provider_id for claim in claims}

    def is_orphan(instance: Instance) -> bool:
        owned = owners.get((instance.node_claim, uid_of(instance.token)))
        return owned is None or owned not in ("", instance.provider_id)

    return [i for i in instances if i.state.is_live and now - i.launched_at > YOUNG and is_orphan(i)]


def without_instance(claims: Iterable[NodeClaim], instances: Iterable[Instance]) -> list[NodeClaim]:
    """NodeClaims of ours without a live instance in the cloud's list (which may be older: ask again before acting)."""
    known = {instance.provider_id for instance in instances if instance.state.is_live}
    return [
        claim
        for claim in claims
        if is_planned_claim(claim)
        and not claim.is_terminating
        and claim.status.provider_id
        and claim.status.provider_id not in known
    ]


def orphaned_nodes(nodes: Iterable[Node], claims: Iterable[NodeClaim]) -> list[Node]:
    """Nodes that we made (our finalizer, a NodeClaim as owner) whose NodeClaim is gone. nodes: read before claims."""
    uids = {claim.metadata.uid for claim in claims}
    found = []
    for node in nodes:
        owners = [owner.uid for owner in node.metadata.owner_references if owner.kind == NODE_CLAIMS.kind]
        if owners and names.TERMINATION_FINALIZER in node.metadata.finalizers and not uids.intersection(owners):
            found.append(node)
    return found
