"""Steps 4 to 6 of carrying out a claim (design §7): the NodeClaim's status, the Node, the binds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wainwright.api import names
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node, Taint
from wainwright.api.pods import Pod
from wainwright.api.reasons import ConditionType, EventReason
from wainwright.api.volumes import PersistentVolumeClaim
from wainwright.batching.claims import ClaimPod, ClaimRecord, ClaimRecords, Lease, State
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.cloud.errors import InstanceNotFound
from wainwright.cloud.port import CloudProvider, Instance
from wainwright.errors import AlreadyExists, Conflict, NotFound
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS, NODES, PODS
from wainwright.provisioning.attempts import LAUNCHED, encode_attempts, ended
from wainwright.provisioning.binding import Binder, can_be_bound_directly, volume_claims
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.objects import (
    attempts_of,
    has_condition,
    instance_labels,
    launched_status,
    node_body,
    node_patch,
)
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.steps import ClaimFails, Launched, NotYet, own_pods, surroundings, uid_precondition
from wainwright.scheduling.taints import tolerates


class Joiner:
    """Makes nodes of instances, and binds the pods they are for."""

    def __init__(
        self,
        records: ClaimRecords,
        store: Store,
        kube: KubeApi,
        cloud: CloudProvider,
        binder: Binder,
        events: Events,
        clock: Clock,
        policy: LaunchPolicy,
    ) -> None:
        self._records = records
        self._store = store
        self._kube = kube
        self._cloud = cloud
        self._binder = binder
        self._events = events
        self._clock = clock
        self._policy = policy

    def resume(self, record: ClaimRecord) -> Launched:
        """What the next holder of a launched claim needs. Raises ClaimFails when NodeClaim or instance are gone."""
        try:
            node_claim = self._kube.get(NODE_CLAIMS, record.name, as_type=NodeClaim)
        except NotFound as error:
            raise ClaimFails("NodeClaimGone", "its NodeClaim was deleted") from error
        if record.uid and node_claim.metadata.uid != record.uid:
            raise ClaimFails("NodeClaimReplaced", "its NodeClaim was deleted and made anew")
        if node_claim.is_terminating:
            raise ClaimFails("NodeClaimDeleted", "its NodeClaim is being deleted")
        try:
            instance = self._cloud.get(record.provider_id or node_claim.status.provider_id)
        except InstanceNotFound as error:
            raise ClaimFails("InstanceGone", str(error)) from error
        if not instance.state.is_live:
            raise ClaimFails("InstanceGone", f"instance {instance.id} is {instance.state}")
        return Launched(node_claim=node_claim, instance=instance)

    def finish(self, lease: Lease, record: ClaimRecord, launched: Launched) -> None:
        """From `launched` to `done`. Binding never makes a claim fail: what stays unbound is queued anew.

        Raises ClaimFails when the NodeClaim is gone, FenceLost, and TemporaryErrors.
        """
        lease.demand()
        node_claim = self._write_status(launched)
        node = self._node(node_claim, launched.instance)
        if node.metadata.name != launched.instance.node_name:
            # Only now is it known which Node is the claim's; a solve counts the two once.
            self._records.note(lease, State.LAUNCHED, {"node": node.metadata.name})
        pods = own_pods(surroundings(self._records, record.name))
        waiting = [(pod, seen) for pod, seen in pods if seen is None or not (seen.is_bound or seen.is_terminal)]
        direct, nominated, unbound, why = self._divide(waiting, node, record.startup_taints)
        lease.demand()
        bound = self._binder.bind(direct, node.metadata.name)
        touched = {pod.uid for pod, _ in waiting}
        self._records.done(
            lease,
            bound=bound.bound,
            settled=[*(pod.uid for pod, _ in pods if pod.uid not in touched), *bound.settled],
            nominated=[pod.uid for pod in nominated],
            unbound=[*(pod.uid for pod in unbound), *bound.unbound],
            keep_ms=self._policy.keep_unready_ms,
            why_unbound=bound.why or why,
        )
        for pod in nominated:
            about = ObjectReference(PODS, pod.name, pod.namespace, pod.uid)
            message = f"expected on node {node.metadata.name} of claim {record.name}; kube-scheduler binds it"
            self._events.event(about, EventReason.NOMINATED, "Normal", message)

    def _write_status(self, launched: Launched) -> NodeClaim:
        """The NodeClaim with labels and status that tell of its instance."""
        claim, instance = launched.node_claim, launched.instance
        name, uid = claim.metadata.name, claim.metadata.uid
        labels = {k: v for k, v in instance_labels(instance).items() if claim.metadata.labels.get(k) != v}
        attempts = ended(attempts_of(claim), LAUNCHED)
        try:
            if labels or attempts != attempts_of(claim):
                annotations = {names.ATTEMPTS_ANNOTATION: encode_attempts(attempts)}
                body = {"metadata": uid_precondition(uid, labels=labels, annotations=annotations)}
                claim = msgspec.convert(self._kube.merge_patch(NODE_CLAIMS, name, body), NodeClaim)
            told = has_condition(claim.status.conditions, ConditionType.LAUNCHED)
            if not told or claim.status.provider_id != instance.provider_id:
                status = launched_status(claim, instance, self._clock.now())
                body = {"metadata": uid_precondition(uid), "status": status}
                patched = self._kube.merge_patch(NODE_CLAIMS, name, body, subresource="status")
                claim = msgspec.convert(patched, NodeClaim)
        except (NotFound, Conflict) as error:
            raise ClaimFails("NodeClaimGone", "its NodeClaim was deleted") from error
        if claim.is_terminating:
            # Better planned anew than bound to a node that is drained at once.
            raise ClaimFails("NodeClaimDeleted", "its NodeClaim is being deleted")
        return claim

    # The Node ---------------------------------------------------------------------------------------------------------

    def _node(self, claim: NodeClaim, instance: Instance) -> Node:
        """The claim's Node: created by us where we name it, else the kubelet's, which is awaited."""
        if not self._cloud.names_nodes:
            return self._completed(claim, instance, self._joined(claim, instance))
        try:
            return msgspec.convert(self._kube.create(NODES, node_body(claim, instance)), Node)
        except AlreadyExists:
            return self._completed(claim, instance, self._kube.get(NODES, instance.node_name, as_type=Node))

    def _joined(self, claim: NodeClaim, instance: Instance) -> Node:
        """The Node that the kubelet made: by the name that the cloud foretells, else the one with the instance's id."""
        name = claim.status.node_name or instance.node_name
        if name:
            try:
                return self._kube.get(NODES, name, as_type=Node)
            except NotFound:
                pass
        else:
            listed, _ = self._kube.list(NODES, Node)
            for node in listed:
                if node.spec.provider_id == instance.provider_id:
                    return node
        raise NotYet("its node has not joined yet", milliseconds(self._policy.poll))

    def _completed(self, claim: NodeClaim, instance: Instance, node: Node) -> Node:
        """The Node with what it lacks of ours."""
        if node.spec.provider_id not in ("", instance.provider_id):
            raise ClaimFails("NodeNameTaken", f"node {node.metadata.name} is {node.spec.provider_id}")
        body = node_patch(claim, instance, node)
        if body is None:
            return node
        try:
            return msgspec.convert(self._kube.merge_patch(NODES, node.metadata.name, body), Node)
        except (Conflict, NotFound) as error:
            raise NotYet("its node changed meanwhile", 0) from error

    # Pods -------------------------------------------------------------------------------------------------------------

    def _divide(
        self, waiting: list[tuple[ClaimPod, Pod | None]], node: Node, startup_taints: tuple[Taint, ...]
    ) -> tuple[list[ClaimPod], list[ClaimPod], list[ClaimPod], str]:
        """Pods to bind ourselves, pods to leave to kube-scheduler, pods to plan anew and why.

        A pod that does not tolerate a startup taint is left to kube-scheduler, which waits until that is off: bound
        now it would run too early, or be evicted at once.
        """
        everyone = [pod for pod, _ in waiting]
        if not is_closed(node):
            return [], [], everyone, "the node was open to every scheduler by then"
        if self._policy.binding == "scheduler":
            return [], everyone, [], ""
        volumes = bound_volume_claims(self._store, [seen for _, seen in waiting if seen is not None])
        direct: list[ClaimPod] = []
        nominated: list[ClaimPod] = []
        for pod, seen in waiting:
            # One that the view does not show is gone, or too new for it: the API server decides.
            may_start = seen is None or tolerates(seen.spec.tolerations, startup_taints)
            is_free = seen is None or can_be_bound_directly(seen, volumes)
            (direct if may_start and is_free else nominated).append(pod)
        return direct, nominated, [], ""


def is_closed(node: Node) -> bool:
    """Does it have our taint still, so that nobody else can have filled it?"""
    return any(taint.key == names.NOT_READY_TAINT.key for taint in node.spec.taints)


def bound_volume_claims(store: Store, pods: Iterable[Pod]) -> frozenset[str]:
    """Of the PersistentVolumeClaims that the pods use, those that the view shows bound to a volume
    (`namespace/name`).
    """
    keys = sorted({f"{pod.metadata.namespace}/{name}" for pod in pods for name in volume_claims(pod)})
    if not keys:
        return frozenset()
    texts = store.read(lambda redis: redis.hmget(store.keys.view("persistentvolumeclaims"), keys))
    claims = [msgspec.json.decode(text, type=PersistentVolumeClaim) for text in texts if text is not None]
    return frozenset(claim.metadata.key for claim in claims if claim.spec.volume_name)
