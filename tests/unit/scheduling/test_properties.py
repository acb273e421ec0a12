"""Random clusters through the checker: no rule broken, nobody left out without need, one answer for one input."""

import random

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    requirement,
    zone_spread,
)

from wainwright.scheduling.checker import check
from wainwright.scheduling.instance_types import Offering, OfferingKey
from wainwright.scheduling.plan import SolveBudget
from wainwright.scheduling.solver import solve

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
APPS = ("web", "db", "job")
RESERVED = (
    Offering(zone="zone-a", capacity_type="on-demand", price=0.5),
    Offering(zone="zone-a", capacity_type="reserved", price=0.01, reservation_id="r", reservation_capacity=1),
)
TYPES = (
    a_type("m2", cpu=2, memory=4, price=0.1, capacity_types=("on-demand", "spot"), pods=6),
    a_type("m4", cpu=4, memory=8, price=0.195, capacity_types=("on-demand", "spot"), pods=12),
    a_type("r4", cpu=4, memory=16, price=0.22, zones=ZONES[:2]),
    a_type("m8", cpu=8, memory=16, price=0.38, capacity_types=("spot", "on-demand")),
    a_type("arm4", cpu=4, memory=8, price=0.16, arch="arm64"),
    a_type("res8", cpu=8, memory=16, price=0.5, offerings=RESERVED),
    a_type("g4", cpu=4, memory=16, price=0.9, capacity={"example.com/gpu": 2}),
)
SELECTORS = (
    {},
    {},
    {ZONE: "zone-a"},
    {ZONE: "zone-c"},
    {"karpenter.sh/capacity-type": "spot"},
    {"karpenter.sh/capacity-type": "on-demand"},
    {"kubernetes.io/arch": "arm64"},
    {"team": "red"},
    {"ghost": "x"},
    {"karpenter.sh/nodepool": "p1"},
)


def preferring(zone):
    term = {"weight": 5, "preference": {"matchExpressions": [requirement(ZONE, "In", zone)]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


RULES = (
    {},
    {},
    {},
    {"topologySpreadConstraints": [zone_spread(1, "APP")]},
    {"topologySpreadConstraints": [zone_spread(2, "APP"), zone_spread(1, "APP", key=HOST)]},
    {"topologySpreadConstraints": [zone_spread(1, "APP", whenUnsatisfiable="ScheduleAnyway")]},
    {"topologySpreadConstraints": [zone_spread(1, "db")]},
    {"affinity": affinity_to("APP", HOST, anti=True)},
    {"affinity": affinity_to("APP", anti=True)},
    {"affinity": affinity_to("APP")},
    {"affinity": affinity_to("web")},
    {"affinity": affinity_to("db", HOST)},
    {"affinity": affinity_to("web", HOST, anti=True)},
    {"affinity": affinity_to("APP", anti=True, preferred=10)},
    {"affinity": affinity_to("web", HOST, preferred=3)},
    {"topologySpreadConstraints": [zone_spread(1, "APP", key="karpenter.sh/capacity-type")]},
    {"topologySpreadConstraints": [zone_spread(1, "APP", key="team"), zone_spread(1, "APP")]},
    {"topologySpreadConstraints": [zone_spread(1, "APP", minDomains=4)]},
    {"topologySpreadConstraints": [zone_spread(1, "APP", nodeTaintsPolicy="Honor", nodeAffinityPolicy="Ignore")]},
    {"topologySpreadConstraints": [zone_spread(1, "APP")], "affinity": affinity_to("APP", HOST, anti=True)},
    {"affinity": affinity_to("APP", "karpenter.sh/capacity-type")},
    {"affinity": affinity_to("db", anti=True)},
    {"affinity": affinity_to("APP", HOST)},
    {"affinity": preferring("zone-b")},
    {"affinity": preferring("zone-c") | affinity_to("APP", HOST, anti=True, preferred=2)},
)
TOLERATE = [{"key": "team", "operator": "Exists"}]


def with_app(rules, app):
    return msgspec.json.decode(msgspec.json.encode(rules).replace(b'"APP"', f'"{app}"'.encode()))


@st.composite
def workloads(draw, rules=RULES):
    batch = []
    for number in range(draw(st.integers(1, 5))):
        app = draw(st.sampled_from(APPS))
        spec = with_app(draw(st.sampled_from(rules)), app)
        more = {"requests": {"example.com/gpu": "1"}} if draw(st.integers(0, 9)) == 0 else {}
        if draw(st.booleans()):
            spec["tolerations"] = TOLERATE
        if draw(st.integers(0, 7)) == 0:
            spec["containers"] = [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]
        batch.extend(
            a_pod(
                f"w{number}-{i}",
                cpu=draw(st.sampled_from(("100m", "500m", "1", "1900m", "3", "9"))) if i == 0 else batch_cpu,
                memory="1Gi",
                labels={"app": app},
                nodeSelector=selector,
                age=number * 100 + i,
                **more,
                **spec,
            )
            for batch_cpu in [draw(st.sampled_from(("100m", "500m", "1", "1900m")))]
            for selector in [draw(st.sampled_from(SELECTORS))]
            for i in range(draw(st.integers(1, 6)))
        )
    return batch


@st.composite
def clusters(draw, limits=True):
    pools = []
    for name in ("p0", "p1", "p2")[: draw(st.integers(1, 3))]:
        demands = []
        if draw(st.integers(0, 3)) == 0:
            demands.append(requirement("karpenter.sh/capacity-type", "In", "on-demand"))
        if draw(st.integers(0, 3)) == 0:
            demands.append(requirement("team", "In", "red", "blue"))
        if draw(st.integers(0, 5)) == 0:
            demands.append(requirement(ZONE, "NotIn", "zone-b"))
        if limits and draw(st.integers(0, 7)) == 0:
            demands.append(requirement("node.kubernetes.io/instance-type", "Exists", min_values=2))
        taints = [{"key": "team", "value": "x", "effect": "NoSchedule"}] if draw(st.integers(0, 3)) == 0 else []
        if draw(st.integers(0, 5)) == 0:
            taints.append({"key": "soft", "effect": "PreferNoSchedule"})
        pools.append(
            a_pool(
                name,
                requirements=demands,
                weight=draw(st.sampled_from((None, 1, 10))),
                taints=taints,
                limits=draw(st.sampled_from(({}, {}, {"cpu": "9"}, {"nodes": "2"}))) if limits else {},
            )
        )
    nodes = []
    for number in range(draw(st.integers(0, 3))):
        name = f"n{number}"
        running = [
            a_pod(
                f"{name}-r{i}",
                cpu="500m",
                labels={"app": draw(st.sampled_from(APPS))},
                nodeName=name,
                affinity=draw(
                    st.sampled_from((None, affinity_to("web", anti=True), affinity_to("db", HOST, anti=True)))
                ),
            )
            for i in range(draw(st.integers(0, 2)))
        ]
        nodes.append(
            a_node(
                name,
                cpu=draw(st.sampled_from((1, 4))),
                zone=draw(st.sampled_from(ZONES)),
                pods=running,
                pool=draw(st.sampled_from(("p0", ""))),
                accepts=draw(st.integers(0, 5)) > 0,
                **({"in_flight": True, "initialized": False, "claim": f"c-{name}"} if draw(st.booleans()) else {}),
            )
        )
    sold_out = draw(st.sampled_from((frozenset(), frozenset({OfferingKey("spot", "*", "zone-a")}))))
    return a_snapshot(
        pools=pools,
        catalog=a_catalog(*TYPES),
        nodes=tuple(nodes),
        daemon_sets=(a_daemon_set(),) if draw(st.booleans()) else (),
        unavailable=sold_out,
        reserved_mode=draw(st.sampled_from(("strict", "fallback"))) if limits else "fallback",
    )


SOME = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


@SOME
@given(clusters(), workloads())
def test_no_plan_breaks_a_rule_and_everyone_has_a_place_or_a_reason(snapshot, batch):
    plan = solve(snapshot, batch, NOW, SolveBudget())
    assert check(snapshot, batch, plan) == []
    assert plan.lower_bound <= plan.price + 1e-9
    assert plan.price <= plan.worst_price + 1e-9


@SOME
@given(clusters(limits=False), workloads(rules=({},)))
def test_without_rules_only_pods_that_no_new_node_could_take_are_left_out(snapshot, batch):
    plan = solve(snapshot, batch, NOW, SolveBudget())
    assert check(snapshot, batch, plan) == []  # the checker's rule `needless` judges this


@settings(SOME, max_examples=60)
@given(clusters(), workloads(), st.integers(0, 2**16))
def test_the_same_input_in_another_order_gives_the_same_plan(snapshot, batch, seed):
    def shuffled(items):
        items = list(items)
        random.Random(seed).shuffle(items)
        return items

    def turned(pod):
        raw = msgspec.to_builtins(pod)
        return msgspec.convert({k: dict(reversed(list(v.items()))) for k, v in reversed(raw.items())}, type(pod))

    again = msgspec.structs.replace(
        snapshot,
        node_pools=tuple(shuffled(snapshot.node_pools)),
        nodes=tuple(shuffled(snapshot.nodes)),
        catalogs=dict(reversed(snapshot.catalogs.items())),
    )
    one = solve(snapshot, batch, NOW, SolveBudget())
    other = solve(again, [turned(pod) for pod in shuffled(batch)], NOW, SolveBudget())
    assert one == other


@settings(SOME, max_examples=60)
@given(workloads(rules=({},)))
def test_room_on_a_running_node_never_makes_the_plan_dearer(batch):
    catalog = a_catalog(*TYPES)
    without = solve(a_snapshot(catalog=catalog), batch, NOW, SolveBudget())
    beside = solve(a_snapshot(catalog=catalog, nodes=(a_node(cpu=4),)), batch, NOW, SolveBudget())
    assert beside.price <= without.price + 1e-9
