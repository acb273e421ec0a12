"""The solver on small clusters: each rule alone, existing nodes, limits, reasons, budgets."""

import msgspec
import pytest
from scheduling_builders import (
    NOW,
    ZONES,
    a_catalog,
    a_daemon_set,
    a_node,
    a_pod,
    a_pool,
    a_snapshot,
    a_type,
    affinity_to,
    claim_of,
    node_affinity,
    pods,
    reasons_of,
    requirement,
    solved,
    zone_spread,
)

from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.instance_types import Offering, OfferingKey
from wainwright.scheduling.plan import ReasonCode, SolveBudget
from wainwright.scheduling.solver import solve

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def types_of(plan):
    return sorted(claim.options[0].instance_type for claim in plan.claims)


# -- room, price, what a claim keeps --


def test_nothing_pending_makes_nothing():
    plan = solved(a_snapshot(), [])
    assert (plan.claims, plan.placements, plan.unplaced, plan.price) == ((), (), (), 0)


def test_the_cheapest_node_that_holds_the_pod_is_chosen():
    assert types_of(solved(a_snapshot(), [a_pod(cpu="3")])) == ["m4"]


def test_a_claim_keeps_what_is_nearly_as_cheap_and_states_the_extremes():
    catalog = a_catalog(
        a_type("m4", cpu=4, price=0.195), a_type("n4", cpu=4, memory=9, price=0.2), a_type("x", cpu=4, price=9)
    )
    claim = solved(a_snapshot(catalog=catalog), [a_pod()]).claims[0]
    assert {option.instance_type for option in claim.options} == {"m4", "n4"}
    assert claim.capacity["memory"] == 9 * 2**30
    assert claim.allocatable["memory"] == 4 * 2**30


def test_a_spot_price_wins_where_the_pool_allows_it_and_pods_that_refuse_it_do_not_drag_the_others_along():
    catalog = a_catalog(a_type("m8", cpu=8, memory=16, price=0.4, capacity_types=("on-demand", "spot")))
    refuses = pods(4, "od", cpu="1900m", nodeSelector={"karpenter.sh/capacity-type": "on-demand"})
    plan = solved(a_snapshot(catalog=catalog), [*refuses, *pods(4, "any", cpu="1900m")])
    assert plan.price == pytest.approx(0.4 + 0.16)


def test_existing_room_is_used_first_initialized_nodes_before_those_in_flight():
    ready = a_node("z-ready", cpu=2)
    flying = a_node("a-flying", cpu=2, in_flight=True, initialized=False, claim="claim-1")
    plan = solved(a_snapshot(nodes=(flying, ready)), pods(3, cpu="1", memory="512Mi"))
    assert [(p.node, p.claim) for p in plan.placements] == [("z-ready", ""), ("z-ready", ""), ("a-flying", "claim-1")]


def test_nodes_that_do_not_accept_pods_keep_their_count_but_get_none():
    gone = a_node(accepts=False)
    plan = solved(a_snapshot(pools=[a_pool(limits={"nodes": "2"})], nodes=(gone,)), pods(2, cpu="1900m"))
    assert not plan.placements
    assert len(plan.claims) == 1


def test_daemons_not_started_yet_keep_their_room_on_existing_nodes():
    plan = solved(a_snapshot(nodes=(a_node(cpu=2),), daemon_sets=(a_daemon_set(cpu="500m"),)), pods(2, cpu="1"))
    assert len(plan.placements) == 1


def test_start_up_taints_of_a_node_that_starts_are_ignored_others_are_not():
    pool = a_pool(startup_taints=[{"key": "cni", "effect": "NoSchedule"}])
    taints = msgspec.convert(
        [{"key": "cni", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}],
        tuple[type(pool.spec.template.spec.startup_taints[0]), ...],
    )
    starting = a_node("starting", taints=taints, initialized=False)
    started = a_node("started", taints=taints[:1])
    plan = solved(a_snapshot(pools=[pool], nodes=(starting, started)), pods(2))
    assert {p.node for p in plan.placements} == {"starting"}


# -- selectors, taints, operators --


def test_or_terms_of_required_affinity_are_alternatives():
    terms = ([requirement(ZONE, "In", "zone-x")], [requirement(ZONE, "In", "zone-b")])
    plan = solved(a_snapshot(), [a_pod(affinity=node_affinity(*terms))])
    assert {option.zone for option in plan.claims[0].options} == {"zone-b"}


def test_pods_that_want_different_values_of_an_open_label_get_nodes_of_their_own():
    pool = a_pool(requirements=[requirement("rack", "Exists")])
    plan = solved(
        a_snapshot(pools=[pool]), [a_pod("a", nodeSelector={"rack": "1"}), a_pod("b", nodeSelector={"rack": "2"})]
    )
    assert claim_of(plan, "uid-a").labels["rack"] == "1"
    assert claim_of(plan, "uid-b").labels["rack"] == "2"


def test_the_operating_system_of_a_type_that_runs_several_is_decided_by_its_pods():
    catalog = a_catalog(a_type("any", cpu=8, memory=16, os=("linux", "windows")))
    plan = solved(
        a_snapshot(catalog=catalog),
        [
            a_pod("l", nodeSelector={"kubernetes.io/os": "linux"}),
            a_pod("w", nodeSelector={"kubernetes.io/os": "windows"}),
        ],
    )
    assert len(plan.claims) == 2
    assert claim_of(plan, "uid-w").labels["kubernetes.io/os"] == "windows"


def test_a_daemon_is_charged_to_the_types_it_runs_on_only():
    catalog = a_catalog(a_type("c4", cpu=4, price=0.1), a_type("m4", cpu=4, price=0.12))
    tuner = a_daemon_set(cpu="1", nodeSelector={"node.kubernetes.io/instance-type": "c4"})
    plan = solved(a_snapshot(catalog=catalog, daemon_sets=(tuner,)), [a_pod(cpu="3500m")])
    assert types_of(plan) == ["m4"]


# -- NodePools: weight, limits, minValues, reserved --


def test_a_heavier_pool_goes_first_although_dearer_and_equal_weights_compare_by_price():
    cheap = a_pool("cheap", weight=1)
    heavy = a_pool("heavy", weight=9, requirements=[requirement("node.kubernetes.io/instance-type", "In", "m8")])
    plan = solved(a_snapshot(pools=[cheap, heavy]), [a_pod()])
    assert plan.claims[0].node_pool == "heavy"
    equal = a_pool("aa", weight=1, requirements=[requirement("node.kubernetes.io/instance-type", "In", "m8")])
    assert solved(a_snapshot(pools=[cheap, equal]), [a_pod()]).claims[0].node_pool == "cheap"


def test_what_the_limit_of_one_pool_leaves_over_goes_to_the_next():
    first = a_pool("first", weight=9, limits={"cpu": "4"})
    plan = solved(a_snapshot(pools=[first, a_pool("second")]), pods(4, cpu="1900m"))
    by_pool = {claim.node_pool for claim in plan.claims}
    assert by_pool == {"first", "second"}
    assert not plan.unplaced


def test_what_runs_already_counts_against_limits():
    plan = solved(
        a_snapshot(pools=[a_pool(limits={"cpu": "6"})], nodes=(a_node(cpu=4, accepts=False),)),
        pods(2, cpu="2", memory="1Gi"),
    )
    assert len(plan.claims) == 1
    assert [r.code for r in plan.unplaced[0].reasons] == [ReasonCode.LIMITS]
    assert "cpu 6 is reached: 0 left" in plan.unplaced[0].reasons[0].message


def test_min_values_keep_a_claim_flexible():
    pool = a_pool(requirements=[requirement("node.kubernetes.io/instance-type", "Exists", min_values=2)])
    plan = solved(a_snapshot(pools=[pool]), pods(8, cpu="1", memory="1Gi"))
    assert all(len({option.instance_type for option in claim.options}) >= 2 for claim in plan.claims)


def test_reserved_capacity_is_taken_first_and_the_rest_waits_or_falls_back():
    reserved = Offering(
        zone="zone-a", capacity_type="reserved", price=0.001, reservation_id="r", reservation_capacity=1
    )
    ordinary = Offering(zone="zone-a", capacity_type="on-demand", price=0.4)
    catalog = a_catalog(a_type("m8", cpu=8, memory=16, offerings=(ordinary, reserved)))
    strict = solved(a_snapshot(catalog=catalog), pods(2, cpu="7"))
    assert [claim.options[0].reservation_id for claim in strict.claims] == ["r"]
    assert strict.unplaced[0].reasons[0].code is ReasonCode.RESERVED
    relaxed = solved(a_snapshot(catalog=catalog, reserved_mode="fallback"), pods(2, cpu="7"))
    assert sorted(claim.options[0].capacity_type for claim in relaxed.claims) == ["on-demand", "reserved"]


# -- rules about other pods --


def test_zonal_spread_is_even():
    plan = solved(a_snapshot(), pods(7, labels={"app": "web"}, topologySpreadConstraints=[zone_spread()]))
    counts = dict.fromkeys(ZONES, 0)
    for claim in plan.claims:
        counts[claim.options[0].zone] += len(claim.pods)
    assert sorted(counts.values()) == [2, 2, 3]


def test_a_wide_skew_is_used_for_the_cheaper_zone():
    cheap = a_type(
        "m8",
        cpu=8,
        memory=16,
        offerings=tuple(
            Offering(zone=z, capacity_type="on-demand", price=p) for z, p in zip(ZONES, (0.3, 0.4, 0.5), strict=True)
        ),
    )
    constraint = zone_spread(max_skew=4)
    plan = solved(
        a_snapshot(catalog=a_catalog(cheap)), pods(4, labels={"app": "web"}, topologySpreadConstraints=[constraint])
    )
    assert {claim.options[0].zone for claim in plan.claims} == {"zone-a"}


def test_spread_counts_running_pods_of_its_selector_only():
    running = [a_pod(f"r{i}", labels={"app": "web"}, nodeName="n") for i in range(2)]
    other = a_pod("other", labels={"app": "api"}, nodeName="n")
    node = a_node("n", cpu=4, pods=(*running, other))
    plan = solved(a_snapshot(nodes=(node,)), pods(4, labels={"app": "web"}, topologySpreadConstraints=[zone_spread()]))
    assert {claim.options[0].zone for claim in plan.claims} == {"zone-b", "zone-c"}


def test_revisions_are_spread_on_their_own_with_match_label_keys():
    constraint = zone_spread(matchLabelKeys=["rev"])
    batch = [
        *pods(3, "v1", labels={"app": "web", "rev": "1"}, topologySpreadConstraints=[constraint]),
        *pods(3, "v2", labels={"app": "web", "rev": "2"}, topologySpreadConstraints=[constraint]),
    ]
    plan = solved(a_snapshot(), batch)
    assert not plan.unplaced


def test_zone_anti_affinity_gives_each_pod_a_zone_and_the_fourth_a_reason():
    plan = solved(a_snapshot(), pods(4, labels={"app": "db"}, affinity=affinity_to("db", anti=True)))
    assert {claim.options[0].zone for claim in plan.claims} == set(ZONES)
    assert plan.unplaced[0].reasons[0].code is ReasonCode.POD_ANTI_AFFINITY


def test_running_anti_affinity_keeps_newcomers_away():
    guard = a_pod("guard", labels={"app": "guard"}, nodeName="n", affinity=affinity_to("web", anti=True))
    plan = solved(a_snapshot(nodes=(a_node("n", pods=(guard,)),)), pods(2, labels={"app": "web"}))
    assert not plan.placements
    assert all(option.zone != "zone-a" for claim in plan.claims for option in claim.options)


def test_followers_come_after_their_leader_whatever_their_size():
    leader = a_pod("leader", cpu="100m", labels={"app": "leader"}, nodeSelector={ZONE: "zone-c"})
    followers = pods(3, "f", cpu="1500m", affinity=affinity_to("leader"))
    plan = solved(a_snapshot(), [*followers, leader])
    assert {option.zone for claim in plan.claims for option in claim.options} == {"zone-c"}


def test_followers_by_host_make_their_leaders_node_large_enough():
    leader = a_pod("leader", cpu="1", labels={"app": "leader"})
    plan = solved(a_snapshot(), [leader, *pods(5, "f", cpu="1", affinity=affinity_to("leader", HOST))])
    assert types_of(plan) == ["m8"]


def test_affinity_to_nobody_leaves_the_pod_out_with_that_reason():
    plan = solved(a_snapshot(), [a_pod("lonely", affinity=affinity_to("ghost"))])
    assert plan.unplaced[0].reasons[0].code is ReasonCode.POD_AFFINITY


def test_host_ports_meet_on_no_node_and_a_wildcard_meets_every_address():
    def with_port(name, address=""):
        port = {"containerPort": 80, "hostPort": 8080, "hostIP": address}
        return a_pod(name, cpu="100m", containers=[{"name": "a", "ports": [port]}])

    plan = solved(a_snapshot(), [with_port("a", "10.0.0.1"), with_port("b", "10.0.0.2"), with_port("c")])
    assert len(plan.claims) == 2
    assert claim_of(plan, "uid-a") is claim_of(plan, "uid-b")


def test_hostname_spread_limits_pods_per_node():
    plan = solved(
        a_snapshot(), pods(5, cpu="100m", labels={"app": "web"}, topologySpreadConstraints=[zone_spread(2, key=HOST)])
    )
    assert sorted(len(claim.pods) for claim in plan.claims) == [1, 2, 2]


# -- volumes --


def bound_volume(zone):
    volume = msgspec.convert(
        {
            "metadata": {"name": "pv"},
            "spec": {
                "csi": {"driver": "disk"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [requirement(ZONE, "In", zone)]}]}
                },
            },
        },
        PersistentVolume,
    )
    claim = msgspec.convert(
        {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound"},
        },
        PersistentVolumeClaim,
    )
    return volume, claim


DATA = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]


def test_a_bound_volume_pulls_its_pod_to_its_zone():
    volume, claim = bound_volume("zone-b")
    snapshot = a_snapshot(persistent_volumes=(volume,), persistent_volume_claims=(claim,))
    plan = solved(snapshot, [a_pod(volumes=DATA)])
    assert {option.zone for option in plan.claims[0].options} == {"zone-b"}


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (None, "does not exist"),
        ({"spec": {}}, "no storage class"),
        ({"spec": {"storageClassName": "now"}}, "binds immediately"),
        ({"spec": {"volumeName": "gone"}}, "PersistentVolume gone"),
        ({"spec": {}, "status": {"phase": "Lost"}}, "lost its volume"),
    ],
)
def test_a_volume_that_cannot_be_had_is_a_reason(claim, text):
    claims = (
        ()
        if claim is None
        else (msgspec.convert({"metadata": {"name": "data", "namespace": "default"}, **claim}, PersistentVolumeClaim),)
    )
    immediate = msgspec.convert({"metadata": {"name": "now"}, "provisioner": "disk"}, StorageClass)
    plan = solved(
        a_snapshot(persistent_volume_claims=claims, storage_classes=(immediate,)), [a_pod(volumes=DATA), a_pod("ok")]
    )
    (reason,) = reasons_of(plan, "uid-p")
    assert reason.code is ReasonCode.VOLUMES
    assert text in reason.message
    assert len(plan.claims) == 1


def test_a_node_attaches_no_more_volumes_than_its_driver_allows():
    late = msgspec.convert(
        {"metadata": {"name": "late"}, "provisioner": "disk", "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass
    )
    claims = tuple(
        msgspec.convert(
            {"metadata": {"name": f"d{i}", "namespace": "default"}, "spec": {"storageClassName": "late"}},
            PersistentVolumeClaim,
        )
        for i in range(3)
    )
    csi = msgspec.convert(
        {"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "disk", "allocatable": {"count": 2}}]}}, CsiNode
    )
    snapshot = a_snapshot(
        nodes=(a_node("n", cpu=8, memory=16),),
        persistent_volume_claims=claims,
        storage_classes=(late,),
        csi_nodes=(csi,),
    )
    batch = [a_pod(f"p{i}", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": f"d{i}"}}]) for i in range(3)]
    plan = solved(snapshot, batch)
    assert len(plan.placements) == 2
    assert len(plan.claims) == 1


# -- preferences --


def preferred_zone(zone, weight=1):
    term = {"weight": weight, "preference": {"matchExpressions": [requirement(ZONE, "In", zone)]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_preference_that_can_be_kept_is_kept_and_one_that_cannot_is_named():
    kept = solved(a_snapshot(), [a_pod(affinity=preferred_zone("zone-c"))])
    assert {option.zone for option in kept.claims[0].options} == {"zone-c"}
    assert not kept.relaxed
    dropped = solved(a_snapshot(), [a_pod(affinity=preferred_zone("zone-x", 7))])
    assert "zone-x" in dropped.relaxed["uid-p"][0]
    assert "weight 7" in dropped.relaxed["uid-p"][0]


def test_only_the_preference_in_the_way_is_dropped():
    both = preferred_zone("zone-b") | affinity_to("w", anti=True, preferred=10)
    plan = solved(a_snapshot(), pods(2, labels={"app": "w"}, affinity=both))
    assert {option.zone for claim in plan.claims for option in claim.options} == {"zone-b"}
    assert [len(texts) for texts in plan.relaxed.values()] == [1]


def test_preferences_are_no_demands_when_the_policy_ignores_them():
    plan = solved(
        a_snapshot(preference_policy="Ignore"),
        pods(2, cpu="100m", labels={"app": "w"}, affinity=affinity_to("w", HOST, anti=True, preferred=5)),
    )
    assert len(plan.claims) == 1


def test_a_pool_with_a_soft_taint_is_used_when_nothing_else_is_left():
    soft = a_pool("soft", taints=[{"key": "x", "effect": "PreferNoSchedule"}], weight=9)
    assert solved(a_snapshot(pools=[soft, a_pool("plain")]), [a_pod()]).claims[0].node_pool == "plain"
    assert solved(a_snapshot(pools=[soft]), [a_pod()]).claims[0].node_pool == "soft"


# -- reasons --


def test_each_pool_and_each_kind_of_node_gives_its_own_reason():
    tainted = a_pool("team", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    nodes = (a_node("full", cpu=1), a_node("other", zone="zone-b", cpu=1))
    plan = solved(a_snapshot(pools=[tainted, a_pool("general")], nodes=nodes), [a_pod("big", cpu="64")])
    reasons = {reason.where: reason for reason in reasons_of(plan, "uid-big")}
    assert reasons["nodepool/team"].message == "does not tolerate its taint team=a:NoSchedule"
    assert reasons["nodepool/general"].code is ReasonCode.RESOURCES
    assert reasons["nodepool/general"].message.startswith(
        "needs cpu 64, the largest type allowed has 8 allocatable (m8)"
    )
    assert reasons["nodes"].count == 2
    assert "2 nodes lack cpu (the nearest, full: 63 short)" in reasons["nodes"].message


def test_a_mistyped_label_gets_a_hint():
    plan = solved(a_snapshot(), [a_pod(nodeSelector={"topology.kubernetes.io/zon": "zone-a"})])
    assert "did you mean 'topology.kubernetes.io/zone'?" in plan.unplaced[0].reasons[0].message


def test_a_sold_out_offering_is_told_from_one_that_never_was():
    sold_out = frozenset({OfferingKey("*", "m8", "*")})
    plan = solved(a_snapshot(unavailable=sold_out), [a_pod(cpu="7")])
    assert plan.unplaced[0].reasons[0].code is ReasonCode.OFFERING


def test_a_pool_that_contradicts_itself_says_so_and_stops_nobody():
    broken = a_pool("broken", requirements=[requirement(ZONE, "In", "zone-a"), requirement(ZONE, "In", "zone-b")])
    plan = solved(a_snapshot(pools=[broken, a_pool("general")]), [a_pod(), a_pod("big", cpu="64")])
    assert plan.claims[0].node_pool == "general"
    assert reasons_of(plan, "uid-big")[0].code is ReasonCode.NO_INSTANCE_TYPES


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"cpu": "much"}, "'much' is not a quantity"),
        ({"affinity": node_affinity([requirement("x", "Gt", "many")])}, "x Gt"),
        ({"topologySpreadConstraints": [zone_spread(0)]}, "maxSkew"),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_alone(spec, text):
    plan = solved(a_snapshot(), [a_pod("bad", **spec), a_pod("good")])
    (reason,) = reasons_of(plan, "uid-bad")
    assert (reason.where, reason.code) == ("pod", ReasonCode.INVALID)
    assert text in reason.message
    assert plan.claims[0].pods == ("uid-good",)


def test_no_pool_at_all_is_a_reason():
    plan = solved(a_snapshot(pools=[]), [a_pod()])
    assert [reason.code for reason in plan.unplaced[0].reasons] == [ReasonCode.NO_NODE_POOLS]


# -- adversarial catalogs --


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0])
def test_an_offering_without_a_price_is_no_offering(price):
    catalog = a_catalog(
        a_type("bad", price=1, offerings=(Offering(zone="zone-a", capacity_type="on-demand", price=price),)),
        a_type("m4", cpu=4),
    )
    assert types_of(solved(a_snapshot(catalog=catalog), [a_pod()])) == ["m4"]


def test_a_type_without_room_or_a_pod_without_requests_breaks_nothing():
    catalog = a_catalog(a_type("none", cpu=0, memory=0, price=0.01), a_type("m2"))
    plan = solved(a_snapshot(catalog=catalog), pods(45, cpu=None, memory=None))
    assert not plan.unplaced
    assert len(plan.claims) == 3  # twenty pods a node


# -- budget and determinism --


def test_a_spent_budget_answers_for_every_pod():
    batch = [a_pod(f"p{i}", cpu=f"{500 + i}m") for i in range(40)]
    plan = solve(a_snapshot(), batch, NOW, SolveBudget(work_units=60))
    answered = [*(uid for claim in plan.claims for uid in claim.pods), *(left.pod for left in plan.unplaced)]
    assert sorted(answered) == sorted(pod.uid for pod in batch)
    assert not plan.complete
    assert {reason.code for left in plan.unplaced for reason in left.reasons} == {ReasonCode.BUDGET}


def test_the_emergency_stop_ends_the_solve_with_what_it_has():
    plan = solve(a_snapshot(), pods(3), NOW, SolveBudget(stop=lambda: True))
    assert not plan.complete
    assert len(plan.unplaced) == 3


def test_the_order_of_pods_pools_and_nodes_plays_no_role():
    batch = [
        *pods(5, "a", cpu="700m"),
        *pods(4, "b", cpu="1300m", labels={"app": "web"}, topologySpreadConstraints=[zone_spread()]),
    ]
    pools = [a_pool("a"), a_pool("b", weight=5, limits={"cpu": "8"})]
    nodes = (a_node("n1", cpu=1), a_node("n2", cpu=2))
    forward = solved(a_snapshot(pools=pools, nodes=nodes), batch)
    backward = solved(a_snapshot(pools=pools[::-1], nodes=nodes[::-1]), batch[::-1])
    assert msgspec.structs.replace(forward, work=0) == msgspec.structs.replace(backward, work=0)
