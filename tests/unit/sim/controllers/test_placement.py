"""The scheduler's decisions: which node, and the exact words when there is none."""

from __future__ import annotations

import pytest

from tests.unit.sim.controllers.builders import a_node, a_pod
from wainwright.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.sim.controllers.scheduler.filters import VolumeLimits, shape_of
from wainwright.sim.controllers.scheduler.placement import Placer
from wainwright.sim.controllers.scheduler.state import SchedulerState
from wainwright.sim.controllers.scheduler.volumes import volume_limits

ANY = VolumeLimits()
ZONE = "topology.kubernetes.io/zone"


def a_state(*nodes, placed=()):
    state = SchedulerState()
    state.namespaces["default"] = {}
    for node in nodes:
        state.set_node(node)
    for pod in placed:
        state.place(pod, pod.spec.node_name)
    return state


def place(state, pod, volumes=ANY):
    return Placer(state).place(pod, shape_of(pod.spec), volumes)


def message(state, pod, volumes=ANY):
    placement = place(state, pod, volumes)
    assert not placement.node_name
    return placement.message


def test_without_any_node_the_message_says_so():
    assert message(a_state(), a_pod()) == "no nodes available to schedule pods"


def test_reasons_are_counted_and_sorted_and_preemption_is_told():
    tainted = {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}
    state = a_state(a_node("a", cpu="1"), a_node("b", **tainted), a_node("c", **tainted))
    pod = a_pod(cpu="900m")
    state.place(a_pod(cpu="500m"), "a")
    assert message(state, pod) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_a_request_larger_than_the_empty_node_is_beyond_preemption():
    assert message(a_state(a_node(cpu="1")), a_pod(cpu="2")) == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_every_short_resource_of_a_node_is_named():
    pod = a_pod(requests={"cpu": "5", "nvidia.com/gpu": "1"})
    assert "1 Insufficient cpu, 1 Insufficient nvidia.com/gpu." in message(a_state(a_node()), pod)


def test_pods_that_never_preempt_say_so():
    text = message(a_state(a_node(cpu="1")), a_pod(cpu="2", preemptionPolicy="Never"))
    assert text.endswith("preemption: not eligible due to preemptionPolicy=Never.")


@pytest.mark.parametrize(
    ("node", "pod", "reason"),
    [
        (a_node(unschedulable=True), a_pod(), "node(s) were unschedulable"),
        (a_node(), a_pod(nodeSelector={"disk": "ssd"}), "node(s) didn't match Pod's node affinity/selector"),
        (a_node(pods="0"), a_pod(), "Too many pods"),
        (
            a_node(taints=[{"key": "k", "effect": "NoExecute"}]),
            a_pod(tolerations=[{"key": "other", "operator": "Exists"}]),
            "node(s) had untolerated taint {k: }",
        ),
    ],
)
def test_each_filter_has_its_reason(node, pod, reason):
    assert message(a_state(node), pod).startswith(f"0/1 nodes are available: 1 {reason}. ")


def test_the_first_filter_that_refuses_a_node_is_the_only_one_told():
    node = a_node(cpu="1", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])
    assert "Insufficient" not in message(a_state(node), a_pod(cpu="2"))


def test_tolerated_taints_and_matching_selectors_let_a_pod_in():
    node = a_node(labels={"disk": "ssd"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    pod = a_pod(nodeSelector={"disk": "ssd"}, tolerations=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert place(a_state(node), pod).node_name == "node"


def _affinity(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "n", "operator": "In", "values": ["5"]}, True),
        ({"key": "n", "operator": "NotIn", "values": ["5"]}, False),
        ({"key": "absent", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "n", "operator": "Exists"}, True),
        ({"key": "n", "operator": "DoesNotExist"}, False),
        ({"key": "n", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "n", "operator": "Lt", "values": ["5"]}, False),
        ({"key": "absent", "operator": "Gt", "values": ["4"]}, False),
    ],
)
def test_required_node_affinity(expression, fits):
    state = a_state(a_node(labels={"n": "5"}))
    assert bool(place(state, a_pod(affinity=_affinity(expression))).node_name) is fits


def test_a_daemon_pod_looks_only_at_its_node():
    names = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    state = a_state(a_node("a"), a_node("b", cpu="1"), a_node("c"))
    pod = a_pod(cpu="900m", affinity=_affinity(fields=[names]))
    assert place(state, pod).node_name == "b"
    state.place(a_pod(cpu="500m"), "b")
    assert message(state, pod) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_host_ports_clash_by_port_protocol_and_address():
    def with_port(address="", protocol="TCP"):
        port = {"containerPort": 80, "hostPort": 80, "hostIP": address, "protocol": protocol}
        return a_pod(on="node", containers=[{"name": "c", "ports": [port]}])

    state = a_state(a_node(), placed=[with_port("10.0.0.1")])
    assert "didn't have free ports" in message(state, with_port())
    assert place(state, with_port("10.0.0.2")).node_name
    assert place(state, with_port(protocol="UDP")).node_name


def test_the_emptiest_node_wins_and_equals_go_by_name():
    state = a_state(a_node("b"), a_node("a"), a_node("c", cpu="8"))
    assert place(state, a_pod(cpu="1")).node_name == "c"
    state = a_state(a_node("b"), a_node("a"))
    assert place(state, a_pod(cpu="1")).node_name == "a"


def test_preferred_affinity_outweighs_a_little_less_room():
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    }
    state = a_state(a_node("a", cpu="8"), a_node("b", labels={"disk": "ssd"}))
    assert place(state, a_pod(cpu="1", affinity=affinity)).node_name == "b"


def test_one_placer_follows_the_state_from_pod_to_pod():
    state = a_state(a_node("a", cpu="2"), a_node("b", cpu="2"))
    placer = Placer(state)
    seen = []
    for _ in range(5):
        pod = a_pod(cpu="1")
        placement = placer.place(pod, shape_of(pod.spec), ANY)
        seen.append(placement.node_name)
        if placement.node_name:
            state.place(pod, placement.node_name)
    assert seen == ["a", "b", "a", "b", ""]


def test_room_comes_back_when_a_pod_or_a_node_goes():
    state = a_state(a_node("a", cpu="1"), a_node("b", cpu="1", unschedulable=True))
    placer = Placer(state)
    first, second = a_pod(cpu="1"), a_pod(cpu="1")
    state.place(first, "a")
    assert not placer.has_room(shape_of(second.spec))
    state.displace(first.metadata.uid)
    assert placer.has_room(shape_of(second.spec))
    state.remove_node("a")
    assert not placer.has_room(shape_of(second.spec))
    assert message(state, second).startswith("0/1 nodes")


def test_pods_on_a_node_that_turns_up_later_are_counted():
    state = a_state(placed=[a_pod(cpu="1", on="late")])
    state.set_node(a_node("late", cpu="1"))
    assert "Insufficient cpu" in message(state, a_pod(cpu="1"))


def test_room_promised_to_a_pod_of_equal_or_higher_priority_is_taken():
    state = a_state(a_node(cpu="1"))
    promised = a_pod(cpu="1", priority=10, status={"nominatedNodeName": "node"})
    state.nominate(promised)
    assert not place(state, a_pod(cpu="1", priority=10)).node_name
    assert place(state, a_pod(cpu="1", priority=11)).node_name
    assert place(state, promised).node_name == "node"


def spread(when="DoNotSchedule", key=ZONE, skew=1, **more):
    selector = {"matchLabels": {"app": "x"}}
    return [{"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector, **more}]


def test_spread_keeps_zones_even():
    state = a_state(a_node("a", zone="1"), a_node("b", zone="2", cpu="2"))
    placer = Placer(state)
    zones = []
    for _ in range(4):
        pod = a_pod(cpu="100m", labels={"app": "x"}, topologySpreadConstraints=spread())
        name = placer.place(pod, shape_of(pod.spec), ANY).node_name
        zones.append(name)
        state.place(pod, name)
    assert sorted(zones) == ["a", "a", "b", "b"]


def test_spread_refuses_what_would_skew_and_nodes_without_the_label():
    state = a_state(a_node("a", zone="1"), a_node("b", zone="2", cpu="0"), a_node("c"))
    state.place(a_pod(labels={"app": "x"}), "a")
    text = message(state, a_pod(cpu="1", labels={"app": "x"}, topologySpreadConstraints=spread()))
    assert text.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label). "
    )


def test_fewer_domains_than_wanted_count_as_an_empty_one():
    state = a_state(a_node("a", zone="1"))
    state.place(a_pod(labels={"app": "x"}), "a")
    pod = a_pod(labels={"app": "x"}, topologySpreadConstraints=spread(minDomains=2))
    assert "spread" in message(state, pod)


def test_pods_being_deleted_do_not_count_for_spread():
    state = a_state(a_node("a", zone="1"), a_node("b", zone="2", cpu="0"))
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    state.place(a_pod(labels={"app": "x"}, metadata=leaving), "a")
    assert place(state, a_pod(cpu="1", labels={"app": "x"}, topologySpreadConstraints=spread())).node_name == "a"


def test_soft_spread_prefers_the_emptier_zone():
    state = a_state(a_node("a", zone="1"), a_node("b", zone="2"))
    state.place(a_pod(labels={"app": "x"}), "a")
    pod = a_pod(labels={"app": "x"}, topologySpreadConstraints=spread("ScheduleAnyway"))
    assert place(state, pod).node_name == "b"


def _pods_term(kind, key=ZONE):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinity_follows_pods_and_founds_a_group_only_for_itself():
    state = a_state(a_node("a", zone="1"), a_node("b", zone="2"))
    follower = a_pod(affinity=_pods_term("podAffinity"))
    assert "2 node(s) didn't match pod affinity rules." in message(state, follower)
    founder = a_pod(labels={"app": "x"}, affinity=_pods_term("podAffinity"))
    assert place(state, founder).node_name == "a"
    state.place(a_pod(labels={"app": "x"}), "b")
    assert place(state, follower).node_name == "b"


def test_anti_affinity_works_both_ways():
    state = a_state(a_node("a", zone="1"))
    guarded = a_pod(labels={"app": "y"}, affinity=_pods_term("podAntiAffinity"))
    state.place(a_pod(labels={"app": "x"}), "a")
    assert "1 node(s) didn't match pod anti-affinity rules." in message(state, guarded)
    state = a_state(a_node("a", zone="1"))
    state.place(guarded, "a")
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules." in message(state, a_pod(labels={"app": "x"}))
    state.displace(guarded.metadata.uid)
    assert place(state, a_pod(labels={"app": "x"})).node_name == "a"


def test_affinity_terms_mean_the_pods_own_namespace_unless_they_select_others():
    state = a_state(a_node("a", zone="1"))
    state.namespaces["other"] = {"team": "blue"}
    state.place(a_pod(labels={"app": "x"}, metadata={"namespace": "other"}), "a")
    guarded = a_pod(affinity=_pods_term("podAntiAffinity"))
    assert place(state, guarded).node_name == "a"
    wide = _pods_term("podAntiAffinity")
    wide["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] = {}
    assert "anti-affinity" in message(state, a_pod(affinity=wide))


def _claim_pod():
    return a_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])


def _convert(struct, **fields):
    import msgspec

    return msgspec.convert({"metadata": {"name": "data", "namespace": "default"}, **fields}, struct)


def _limits(claim=None, volume=None, storage=None):
    claims = {"default/data": claim} if claim else {}
    return volume_limits(_claim_pod(), claims, {"pv": volume} if volume else {}, {"fast": storage} if storage else {})


def test_a_missing_or_immediate_unbound_claim_holds_the_pod_everywhere():
    state = a_state(a_node())
    assert message(state, _claim_pod(), _limits()) == (
        '0/1 nodes are available: persistentvolumeclaim "data" not found. '
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    unbound = _convert(PersistentVolumeClaim, spec={"storageClassName": "fast"})
    immediate = _convert(StorageClass, volumeBindingMode="Immediate")
    assert "pod has unbound immediate PersistentVolumeClaims." in message(
        state, _claim_pod(), _limits(unbound, None, immediate)
    )


def test_a_bound_volume_keeps_the_pod_in_its_zone():
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["2"]}]}
    volume = _convert(PersistentVolume, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}})
    limits = _limits(_convert(PersistentVolumeClaim, spec={"volumeName": "pv"}), volume)
    assert place(a_state(a_node("a", zone="1"), a_node("b", zone="2")), _claim_pod(), limits).node_name == "b"
    assert "1 node(s) had volume node affinity conflict." in message(
        a_state(a_node("a", zone="1")), _claim_pod(), limits
    )


def test_a_claim_that_waits_for_its_consumer_limits_the_pod_to_its_class_topologies():
    claim = _convert(PersistentVolumeClaim, spec={"storageClassName": "fast"})
    late = _convert(StorageClass, volumeBindingMode="WaitForFirstConsumer")
    assert _limits(claim, None, late) == VolumeLimits()
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["2"]}]}]
    zoned = _convert(StorageClass, volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies)
    limits = _limits(claim, None, zoned)
    assert place(a_state(a_node("a", zone="1"), a_node("b", zone="2")), _claim_pod(), limits).node_name == "b"
