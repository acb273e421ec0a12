"""How a node goes: cordon, evict, terminate the instance, let go of Node and NodeClaim.

One step a call, each safe to repeat; what is not over yet is said with NotYet, and the next visit looks again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from wainwright.api import names
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodes import Node, Taint
from wainwright.api.pods import Pod, Toleration
from wainwright.api.reasons import EventReason
from wainwright.clock import Clock
from wainwright.cloud.errors import InstanceNotFound
from wainwright.cloud.port import CloudProvider, Instance
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound, Refused
from wainwright.kube.events import ObjectReference
from wainwright.kube.resources import NODE_CLAIMS, NODES, PODS, Resource
from wainwright.provisioning.binding import Workers
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.policy import LaunchPolicy, milliseconds
from wainwright.provisioning.steps import Marked, NotYet, names_in, plural, uid_precondition

STUCK: Final = timedelta(minutes=1)
"""A pod so long past its own grace period will not leave any more; a node does not wait for it."""
EXCLUDE_BALANCERS_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
TRIES: Final = 3


class Terminator:
    """Takes nodes away."""

    def __init__(
        self, kube: KubeApi, cloud: CloudProvider, workers: Workers, events: Events, clock: Clock, policy: LaunchPolicy
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._workers = workers
        self._events = events
        self._clock = clock
        self._policy = policy

    def find_node(self, name: str, provider_ids: Collection[str]) -> Node | None:
        """The Node of that name, if it is the one of these instances."""
        if not name or not provider_ids:
            return None
        try:
            node = self._kube.get(NODES, name, as_type=Node)
        except NotFound:
            return None
        return node if node.spec.provider_id in provider_ids else None

    def drain(self, node: Node, deadline: datetime | None) -> None:
        """Cordons the node and asks its pods to leave. Raises NotYet until they have; past the deadline nobody is
        waited for.
        """
        self._cordon(node)
        now = self._clock.now()
        if deadline is not None and now >= deadline:
            return
        on_node, _ = self._kube.list(PODS, Pod, field_selector=f"spec.nodeName={node.metadata.name}")
        waiting = [pod for pod in on_node if must_leave(pod, now)]
        if not waiting:
            return
        refusals = [why for why in self._workers.map(self._evict, [p for p in waiting if not p.is_terminating]) if why]
        if refusals:
            about = ObjectReference.of(NODES, node.metadata)
            self._events.event(about, EventReason.FAILED_DRAINING, "Warning", refusals[0])
        left = names_in([pod.key for pod in waiting])
        raise NotYet(f"{plural(len(waiting), 'pod')} still to leave: {left}", milliseconds(self._policy.poll))

    def _cordon(self, node: Node) -> None:
        if any(taint.key == names.DISRUPTED_TAINT.key for taint in node.spec.taints):
            return
        meta = node.metadata
        taints = (*node.spec.taints, names.DISRUPTED_TAINT)
        body = {
            "metadata": uid_precondition(
                meta.uid, meta.resource_version, labels={EXCLUDE_BALANCERS_LABEL: "karpenter"}
            ),
            "spec": {"taints": msgspec.to_builtins(taints)},
        }
        try:
            self._kube.merge_patch(NODES, meta.name, body)
        except NotFound:
            return
        except Conflict as error:
            raise NotYet("its node changed meanwhile", 0) from error

    def _evict(self, pod: Pod) -> str:
        """Why the pod stays for now; empty when it goes."""
        try:
            self._kube.evict(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        except (NotFound, Conflict):
            return ""
        except Refused as error:
            return f"a disruption budget holds {pod.key}: {error}"
        except (KubeError, KubeUnavailable) as error:
            return str(error)
        return ""

    def end(self, instances: Sequence[Instance]) -> None:
        """Terminates the instances. Raises NotYet until they are gone."""
        for instance in instances:
            if instance.state.is_live:
                try:
                    self._cloud.delete(instance.provider_id)
                except InstanceNotFound:
                    continue
        for instance in instances:
            try:
                self._cloud.get(instance.provider_id)
            except InstanceNotFound:
                continue
            raise NotYet(f"instance {instance.id} is being terminated", milliseconds(self._policy.poll))

    def remove_node(self, node: Node) -> None:
        """Removes the Node of a machine that is gone, and the pods that it ran, so that others take their place."""
        name, uid = node.metadata.name, node.metadata.uid
        if not node.is_terminating:
            try:
                self._kube.delete(NODES, name, uid=uid)
            except (NotFound, Conflict):
                return
        on_node, _ = self._kube.list(PODS, Pod, field_selector=f"spec.nodeName={name}")
        list(self._workers.map(self._forget, on_node))
        self._let_go(NODES, name, uid)

    def _forget(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            self._kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return

    def let_go(self, claim: NodeClaim) -> None:
        """Takes our finalizer off a NodeClaim that is being deleted; it is gone then, unless somebody else holds it."""
        self._let_go(NODE_CLAIMS, claim.metadata.name, claim.metadata.uid)

    def _let_go(self, resource: Resource, name: str, uid: str) -> None:
        for _ in range(TRIES):
            try:
                meta = self._kube.get(resource, name, as_type=Marked).metadata
                if meta.uid != uid or names.TERMINATION_FINALIZER not in meta.finalizers:
                    return
                rest = [f for f in meta.finalizers if f != names.TERMINATION_FINALIZER]
                body = {"metadata": uid_precondition(uid, meta.resource_version, finalizers=rest)}
                self._kube.merge_patch(resource, name, body)
            except NotFound:
                return
            except Conflict:
                continue
            else:
                return
        raise NotYet(f"{resource.kind} {name} keeps changing", milliseconds(self._policy.poll))


def must_leave(pod: Pod, now: datetime) -> bool:
    """Does a node that goes wait for this pod?

    - not over
    - not of a DaemonSet, not a mirror pod: those live and die with the node
    - does not tolerate the taint of nodes that go
    - is not stuck: being deleted, and a minute past its grace period
    """
    if pod.is_terminal or pod.is_daemon or pod.is_mirror:
        return False
    if any(tolerates(toleration, names.DISRUPTED_TAINT) for toleration in pod.spec.tolerations):
        return False
    deleted_at = pod.metadata.deletion_timestamp
    return deleted_at is None or now < deleted_at + STUCK


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
