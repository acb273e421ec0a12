"""Puts a snapshot with the nodes of its plan on a real cluster, and asks kube-scheduler for the plan's placements."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tests.cluster.generated import NAMESPACES
from wainwright.api import names
from wainwright.api.quantities import format_quantity
from wainwright.provisioning.objects import node_labels
from wainwright.scheduling.plan import Plan
from wainwright.scheduling.snapshot import Snapshot

PODS = "/api/v1/namespaces/{}/pods"
NODES = "/api/v1/nodes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
VOLUMES = "/api/v1/persistentvolumes"
VOLUME_CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
STEERING = "agreement.wainwright.dev/node"
"""Taint with a value of its own on every node. Taints do not change what a spread counts, other than node affinity."""
GIVE_UP_SECONDS = 8.0
"""Nothing bound for this long: the scheduler has looked at each pod again meanwhile, more than once."""
STUCK_SECONDS = 3.0
"""As long as the scheduler's longest back-off, and a second."""
MARK = {"agreement": "staged"}


@dataclass(frozen=True)
class Stage:
    """nodes: planned node by pod UID, with the name that it has in the cluster."""

    snapshot: Snapshot
    nodes: Mapping[str, str]


class Refused(AssertionError):
    """kube-scheduler did not bind pods where the plan put them."""


def wire(resource):
    return msgspec.json.decode(msgspec.json.encode(resource))


def completed(spec):
    """The pod spec with what the API wants to be said, though it is our structs' default."""
    for spread in spec.get("topologySpreadConstraints", ()):
        spread.setdefault("maxSkew", 1)
        spread.setdefault("whenUnsatisfiable", "DoNotSchedule")
    for kind in spec.get("affinity", {}).values():
        for preferred in kind.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            preferred.setdefault("weight", 1)
    return spec


class Staging:
    """One stage at a time. api: raw HTTP as an administrator."""

    def __init__(self, api):
        self._api = api
        self._number = 0
        self._labels = {}
        for name, labels in NAMESPACES.items():
            own = {key: value for key, value in labels.items() if key != "kubernetes.io/metadata.name"}
            answer = api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": own}})
            assert answer.status in (201, 409), answer.body

    def _must(self, method, path, body=None, **options):
        answer = self._api.send(method, path, body, **options)
        assert answer.status < 300, (method, path, answer.body)
        return answer.body

    # Building ---------------------------------------------------------------------------------------------------------

    def build(self, snapshot, plan: Plan, choose):
        """Nodes of the snapshot with their pods, then the plan's, each as one of its options. choose(count): which."""
        self._number += 1
        where = {}
        for node in snapshot.nodes:
            where[node.name] = self._node(node.name, node.labels, node.taints, node.allocatable, node.accepts)
        for csi_node in snapshot.csi_nodes:
            drivers = [{**driver, "nodeID": "x"} for driver in wire(csi_node.spec)["drivers"]]
            name = where[csi_node.metadata.name]
            self._must("POST", CSI_NODES, {"metadata": {"name": name, "labels": MARK}, "spec": {"drivers": drivers}})
        for node in snapshot.nodes:
            for pod in node.pods:
                self._pod(pod, schedulerName="nobody")
                self._bind(pod, where[node.name])
        planned = {}
        for number, claim in enumerate(plan.claims):
            name = f"claim-{number}"
            where[name] = self._claimed(name, claim, snapshot, claim.options[choose(len(claim.options))])
            planned |= dict.fromkeys(claim.pods, where[name])
        planned |= {placement.pod: where[placement.node] for placement in plan.placements}
        for daemon_set in snapshot.daemon_sets:
            self._daemon_set(daemon_set)
        return Stage(snapshot, planned)

    def _claimed(self, name, claim, snapshot, option):
        """A node as our launcher and the cloud would make it of this option."""
        catalog = snapshot.catalogs[claim.node_pool]
        (machine,) = (each for each in catalog.instance_types if each.name == option.instance_type)
        labels = {
            **node_labels(claim.node_pool, claim.labels, claim.requirements),
            **machine.labels,
            names.INSTANCE_TYPE_LABEL: machine.name,
            names.ZONE_LABEL: option.zone,
            names.CAPACITY_TYPE_LABEL: option.capacity_type,
            names.ARCH_LABEL: machine.arch,
            names.OS_LABEL: "linux",
            names.REGION_LABEL: catalog.region,
        }
        return self._node(name, labels, claim.taints, machine.allocatable, accepts=True)

    def _node(self, name, labels, taints, allocatable, accepts):
        full = f"s{self._number}-{name}"
        labels = self._labels[full] = {**labels, **MARK, names.HOSTNAME_LABEL: full}
        taints = [*wire(taints), {"key": STEERING, "value": full, "effect": "NoSchedule"}]
        spec = {"taints": taints, "unschedulable": not accepts}
        self._must("POST", NODES, {"metadata": {"name": full, "labels": labels}, "spec": spec})
        room = {resource: str(format_quantity(resource, amount)) for resource, amount in allocatable.items()}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self._must(
            "PATCH",
            f"{NODES}/{full}/status",
            {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}},
            media="application/merge-patch+json",
        )
        return full

    def _pod(self, pod, **changes):
        body = wire(pod)
        for field in ("uid", "creationTimestamp"):
            body["metadata"].pop(field, None)
        body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), **MARK}
        spec = body["spec"] = completed({**body["spec"], **changes})
        spec.pop("nodeName", None)
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            container["image"] = "registry.k8s.io/pause:3.10"
        self._must("POST", PODS.format(pod.metadata.namespace), body)

    def _bind(self, pod, node):
        meta = pod.metadata
        body = {"metadata": {"name": meta.name}, "target": {"kind": "Node", "name": node}}
        self._must("POST", f"{PODS.format(meta.namespace)}/{meta.name}/binding", body)

    def _daemon_set(self, daemon_set):
        """Its pods are there, and bound where they fit, when this returns."""
        name = f"s{self._number}-{daemon_set.metadata.name}"
        template = wire(daemon_set.spec.template)
        template["metadata"] = {"labels": {"daemon": name, **MARK}}
        spec = template["spec"]
        spec["tolerations"] = [*spec.get("tolerations", ()), {"key": STEERING, "operator": "Exists"}]
        for container in spec["containers"]:
            container["image"] = "registry.k8s.io/pause:3.10"
        body = {"metadata": {"name": name, "labels": MARK}}
        body["spec"] = {"selector": {"matchLabels": {"daemon": name}}, "template": template}
        self._must("POST", DAEMON_SETS, body)
        deadline = time.monotonic() + 20
        while True:
            status = self._must("GET", f"{DAEMON_SETS}/{name}")["status"]
            pods = self._must("GET", PODS.format("kube-system"), labelSelector=f"daemon={name}")["items"]
            seen = status.get("observedGeneration") and len(pods) >= status["desiredNumberScheduled"]
            if seen and all(is_bound(pod) or told(pod) for pod in pods):
                return
            assert time.monotonic() < deadline, f"the pods of DaemonSet {name} are not placed: {status}"
            time.sleep(0.05)

    def provide_volumes(self, snapshot, pods):
        """The volumes that the pods use, bound to their claims."""
        used = {volume.persistent_volume_claim.claim_name for pod in pods for volume in pod.spec.volumes}
        for claim in snapshot.persistent_volume_claims:
            meta = claim.metadata
            if meta.name not in used:
                continue
            volume = next(v for v in snapshot.persistent_volumes if v.metadata.name == claim.spec.volume_name)
            # Names are never used twice: what is being deleted lingers until its protection is taken off.
            name, claim_name = f"s{self._number}-{volume.metadata.name}", meta.name
            room = {"storage": "1Gi"}
            body = wire(volume)
            body["metadata"] = {"name": name, "labels": MARK}
            body["spec"]["csi"]["volumeHandle"] = name
            body["spec"] |= {"capacity": room, "accessModes": ["ReadWriteMany"], "storageClassName": ""}
            body["spec"]["claimRef"] = {"namespace": meta.namespace, "name": claim_name}
            self._must("POST", VOLUMES, body)
            body = {"metadata": {"name": claim_name, "labels": MARK}}
            body["spec"] = {"storageClassName": "", "volumeName": name, "accessModes": ["ReadWriteMany"]}
            body["spec"]["resources"] = {"requests": room}
            self._must("POST", VOLUME_CLAIMS.format(meta.namespace), body)
            path = f"{VOLUME_CLAIMS.format(meta.namespace)}/{claim_name}"
            self._until(f"{path} is bound", lambda path=path: self._must("GET", path)["status"].get("phase") == "Bound")

    # Asking -----------------------------------------------------------------------------------------------------------

    def ask(self, stage, pods):
        """Has every planned pod bound to its planned node by kube-scheduler. Raises Refused.

        A plan is sound when *some* order of its pods is (a spread judges who comes, not who came before), so a pod is
        held back while it would spoil the spread of one that is not bound yet.
        """
        asked = [pod for pod in pods if pod.uid in stage.nodes]
        self.provide_volumes(stage.snapshot, asked)
        wanted = {pod.key: stage.nodes[pod.uid] for pod in asked}
        waiting, unbound = list(asked), list(asked)
        count, moved = -1, time.monotonic()
        while True:
            found = self._staged_pods()
            bound = {key: pod["spec"]["nodeName"] for key, pod in found.items() if key in wanted and is_bound(pod)}
            if bound == wanted:
                return
            astray = {key: node for key, node in bound.items() if node != wanted[key]}
            assert not astray, f"bound elsewhere: {astray}"
            unbound = [pod for pod in unbound if pod.key not in bound]
            idle = time.monotonic() - moved
            if len(bound) != count:
                count, moved = len(bound), time.monotonic()
            elif idle > GIVE_UP_SECONDS:
                lines = [f"{key} on {wanted[key]}: {told(found.get(key))}" for key in wanted if key not in bound]
                raise Refused("\n".join([f"{len(lines)} of {len(wanted)} pods refused", *lines]))
            free = [pod for pod in waiting if not any(self._spoils(stage, pod, other) for other in unbound)]
            if not free and waiting and (len(waiting) == len(unbound) or idle > STUCK_SECONDS):
                # They wait for each other, or what is left waits for them.
                free, moved = waiting[:1], time.monotonic()
            for pod in free:
                self._pod(pod, **steered(pod, stage.nodes[pod.uid]))
                waiting.remove(pod)
            time.sleep(0.05)

    def _spoils(self, stage, pod, other):
        """Does `pod`, once it is bound, count against a spread of `other` where that one is to go?"""
        if pod.uid == other.uid or pod.metadata.namespace != other.metadata.namespace:
            return False
        theirs, labels = wire(other.spec).get("topologySpreadConstraints", ()), pod.metadata.labels
        own = wire(pod.spec).get("topologySpreadConstraints", ())
        here, there = self._labels[stage.nodes[pod.uid]], self._labels[stage.nodes[other.uid]]
        return any(
            spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
            and here.get(spread["topologyKey"]) == there.get(spread["topologyKey"])
            and selects(spread.get("labelSelector", {}), labels)
            and spread not in own
            for spread in theirs
        )

    def _staged_pods(self):
        found = {}
        for namespace in NAMESPACES:
            for pod in self._must("GET", PODS.format(namespace))["items"]:
                found[f"{namespace}/{pod['metadata']['name']}"] = pod
        return found

    # Clearing ---------------------------------------------------------------------------------------------------------

    def clear(self):
        """Takes everything away again, and waits until it is gone."""
        selector = {"labelSelector": "agreement=staged"}
        self._must("DELETE", DAEMON_SETS, {"propagationPolicy": "Background"}, **selector)
        for namespace in (*NAMESPACES, "kube-system"):
            self._must("DELETE", PODS.format(namespace), {"gracePeriodSeconds": 0}, **selector)
        for path in (VOLUME_CLAIMS.format(n) for n in NAMESPACES):
            self._must("DELETE", path, **selector)
        for path in (VOLUMES, CSI_NODES, NODES):
            self._must("DELETE", path, **selector)

        def is_gone():
            for namespace in (*NAMESPACES, "kube-system"):
                if self._must("GET", PODS.format(namespace), **selector)["items"]:
                    self._must("DELETE", PODS.format(namespace), {"gracePeriodSeconds": 0}, **selector)
                    return False
            paths = (*(VOLUME_CLAIMS.format(n) for n in NAMESPACES), NODES)
            return not any(self._must("GET", path, **selector)["items"] for path in paths)

        self._until("the stage is empty", is_gone)

    def _until(self, what, is_so):
        deadline = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < deadline, f"not within 30 s: {what}"
            time.sleep(0.05)


def steered(pod, node):
    """Fields of a pod's spec that leave it no other node, and change no other rule that it is judged by.

    By required node affinity (matchFields); not where a topology spread counts nodes: it would count this one only
    then. Taints do it there, unless the spread heeds taints.
    """
    body = wire(pod.spec)
    toleration = {"key": STEERING, "operator": "Equal", "value": node, "effect": "NoSchedule"}
    changes = {"tolerations": [*body.get("tolerations", ()), toleration]}
    if any(spread.when_unsatisfiable == "DoNotSchedule" for spread in pod.spec.topology_spread_constraints):
        return changes
    affinity = body.get("affinity", {})
    of_nodes = affinity.get("nodeAffinity", {})
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    terms = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [{}])
    required = {"nodeSelectorTerms": [{**term, **here} for term in terms]}
    of_nodes = {**of_nodes, "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**changes, "affinity": {**affinity, "nodeAffinity": of_nodes}}


def selects(selector, labels):
    """A label selector, over a pod's labels."""
    tests = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, values: value is not None,
        "DoesNotExist": lambda value, values: value is None,
    }
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        tests[each["operator"]](labels.get(each["key"]), each.get("values", ()))
        for each in selector.get("matchExpressions", ())
    )


def is_bound(pod):
    return bool(pod["spec"].get("nodeName"))


def told(pod):
    """What kube-scheduler says about an unbound pod; empty: nothing yet. pod: None for one that was held back."""
    if pod is None:
        return "(held back: others came first)"
    conditions = pod["status"].get("conditions", ())
    return next(
        (c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
    )
