"""Hypothesis strategies for clusters and workloads that use every rule of the solver. Wider than the unit tests' on
what pods may ask for, since kube-scheduler judges it here, and smaller, since each example takes it seconds.
"""

import msgspec
from hypothesis import strategies as st

from tests.unit.scheduling.scheduling_builders import (
    ZONES,
    a_catalog,
    a_daemon_set,
    a_node,
    a_pod,
    a_pool,
    a_snapshot,
    a_type,
    requirement,
)
from wainwright.api.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
ARCH = "kubernetes.io/arch"
SIZE = "example.com/cpu"
GPU = "example.com/gpu"
DRIVER = "csi.example.com"

HOME, AWAY = "agreement-home", "agreement-away"
NAMESPACES = {
    HOME: {"kubernetes.io/metadata.name": HOME, "team": "red"},
    AWAY: {"kubernetes.io/metadata.name": AWAY, "team": "blue"},
}
APPS = ("web", "db", "job")

TYPES = (
    a_type("m2", cpu=2, memory=4, price=0.1, capacity_types=("on-demand", "spot"), pods=6),
    a_type("m4", cpu=4, memory=8, price=0.195, capacity_types=("on-demand", "spot"), pods=12),
    a_type("r4", cpu=4, memory=16, price=0.22, zones=ZONES[:2]),
    a_type("m8", cpu=8, memory=16, price=0.38, capacity_types=("spot", "on-demand")),
    a_type("arm4", cpu=4, memory=8, price=0.16, arch="arm64"),
    a_type("g4", cpu=4, memory=16, price=0.9, capacity={GPU: 2}),
)


def sometimes(value, otherwise, one_in):
    """`value` once in so many draws."""
    return st.integers(1, one_in).flatmap(lambda n: value if n == 1 else st.just(otherwise))


# What pods ask for ----------------------------------------------------------------------------------------------------


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


EXPRESSIONS = st.sampled_from(
    (
        expression(ZONE, "In", "zone-a"),
        expression(ZONE, "In", "zone-b", "zone-c"),
        expression(ZONE, "NotIn", "zone-a"),
        expression(CAPACITY, "In", "spot"),
        expression(CAPACITY, "NotIn", "spot"),
        expression(CAPACITY, "Exists"),
        expression(ARCH, "In", "amd64", "arm64"),
        expression(ARCH, "NotIn", "amd64"),
        expression(SIZE, "Gt", "2"),
        expression(SIZE, "Lt", "8"),
        expression("team", "In", "red"),
        expression("team", "In", "red", "blue"),
        expression("team", "NotIn", "red"),
        expression("team", "Exists"),
        expression("team", "DoesNotExist"),
        expression("node.kubernetes.io/instance-type", "NotIn", "m4"),
        expression("karpenter.sh/nodepool", "In", "p0", "p1"),
    )
)
TERMS = st.lists(EXPRESSIONS, min_size=1, max_size=2).map(lambda found: {"matchExpressions": found})


@st.composite
def node_affinities(draw):
    affinity = {}
    if draw(st.booleans()):
        terms = draw(st.lists(TERMS, min_size=1, max_size=2))
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if not affinity or draw(st.integers(1, 4)) == 1:
        preferred = [{"weight": draw(st.integers(1, 100)), "preference": draw(TERMS)}]
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return affinity


SELECTORS = st.sampled_from(
    (
        *[{}] * 6,
        {ZONE: "zone-a"},
        {ZONE: "zone-c"},
        {CAPACITY: "spot"},
        {CAPACITY: "on-demand"},
        {ARCH: "arm64"},
        {"team": "red"},
        {"karpenter.sh/nodepool": "p1"},
    )
)
KEYS = st.sampled_from((ZONE, ZONE, HOST, HOST, CAPACITY))


def picks(app):
    """Label selectors over pods; `app` is the asking pod's own."""
    return st.sampled_from(
        (
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": "web"}},
            {"matchLabels": {"app": "db"}},
            {"matchExpressions": [expression("app", "In", "web", "db")]},
            {"matchExpressions": [expression("app", "NotIn", "web")]},
            {"matchExpressions": [expression("tier", "Exists")]},
        )
    )


@st.composite
def affinity_terms(draw, app):
    term = {"topologyKey": draw(KEYS), "labelSelector": draw(picks(app))}
    where = draw(st.integers(1, 8))
    if where == 1:
        term["namespaces"] = [AWAY]
    elif where == 2:
        term["namespaceSelector"] = draw(st.sampled_from(({}, {"matchLabels": {"team": "blue"}})))
    return term


@st.composite
def pod_affinities(draw, app):
    side = draw(st.sampled_from(("podAffinity", "podAntiAffinity", "podAntiAffinity")))
    if draw(st.integers(1, 4)) == 1:
        preferred = [{"weight": draw(st.integers(1, 100)), "podAffinityTerm": draw(affinity_terms(app))}]
        return {side: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    terms = draw(st.lists(affinity_terms(app), min_size=1, max_size=2))
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@st.composite
def spreads(draw, app):
    when = draw(st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")))
    spread = {
        "maxSkew": draw(st.integers(1, 2)),
        "topologyKey": draw(KEYS),
        "whenUnsatisfiable": when,
        "labelSelector": draw(picks(app)),
    }
    if when == "DoNotSchedule":
        spread |= draw(sometimes(st.integers(1, 3).map(lambda n: {"minDomains": n}), {}, 4))
    spread |= draw(sometimes(st.sampled_from(({"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"})), {}, 4))
    spread |= draw(sometimes(st.just({"matchLabelKeys": ["version"]}), {}, 6))
    return spread


@st.composite
def containers(draw, cpu):
    """Of one pod: its main container, and now and then init containers, a sidecar, a host port, a GPU."""
    memory = draw(st.sampled_from(("256Mi", "1Gi", "3Gi")))
    requests = {"cpu": cpu, "memory": memory} | draw(sometimes(st.just({GPU: "1"}), {}, 10))
    limits = {GPU: requests[GPU]} if GPU in requests else {}
    main = {"name": "main", "resources": {"requests": requests, "limits": limits}}
    port = st.builds(
        lambda number, protocol, ip: {"containerPort": 80, "hostPort": number, "protocol": protocol, "hostIP": ip},
        st.sampled_from((8080, 8080, 8081)),
        st.sampled_from(("TCP", "TCP", "UDP")),
        st.sampled_from(("", "", "10.0.0.1")),
    )
    ports = draw(sometimes(st.lists(port, min_size=1, max_size=1), [], 8))
    if ports:
        main["ports"] = ports
    found = {"containers": [main]}
    first = {"name": "first", "resources": {"requests": {"cpu": draw(st.sampled_from(("50m", "1500m")))}}}
    beside = {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}
    found |= draw(
        sometimes(st.sampled_from([{"initContainers": i} for i in ([first], [beside], [first, beside])]), {}, 6)
    )
    return found


TOLERATIONS = st.sampled_from(
    (
        [],
        [{"key": "team", "operator": "Exists"}],
        [{"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
        [{"key": "team", "operator": "Equal", "value": "y", "effect": "NoSchedule"}],
    )
)


@st.composite
def workloads(draw):
    """Pods in groups of equals, as owners make them."""
    batch = []
    for number in range(draw(st.integers(1, 5))):
        app = draw(st.sampled_from(APPS))
        labels = {"app": app, "version": draw(st.sampled_from(("1", "2")))}
        labels |= draw(sometimes(st.just({"tier": "front"}), {}, 3))
        spec = {"nodeSelector": draw(SELECTORS), "tolerations": draw(TOLERATIONS)}
        affinity = draw(sometimes(node_affinities().map(lambda found: {"nodeAffinity": found}), {}, 4))
        affinity |= draw(sometimes(pod_affinities(app), {}, 3))
        if affinity:
            spec["affinity"] = affinity
        spec["topologySpreadConstraints"] = draw(sometimes(spread_lists(app), [], 3))
        spec |= draw(containers(draw(st.sampled_from(("100m", "500m", "1", "1900m", "3")))))
        claim = draw(sometimes(st.sampled_from(("in-a", "in-b", "anywhere")), "", 8))
        if claim:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        namespace = HOME if claim else draw(st.sampled_from((HOME, HOME, HOME, AWAY)))
        batch += [
            a_pod(f"w{number}-{i}", namespace=namespace, labels=labels, age=number * 100 + i, **spec)
            for i in range(draw(st.integers(1, 5)))
        ]
    return batch


def spread_lists(app):
    return st.lists(
        spreads(app),
        min_size=1,
        max_size=2,
        unique_by=lambda spread: (spread["topologyKey"], spread["whenUnsatisfiable"]),
    )


# What is there --------------------------------------------------------------------------------------------------------


@st.composite
def pools(draw):
    found = []
    for name in ("p0", "p1")[: draw(st.integers(1, 2))]:
        demands = draw(
            st.lists(
                st.sampled_from(
                    (
                        requirement(CAPACITY, "In", "on-demand"),
                        requirement("team", "In", "red", "blue"),
                        requirement("team", "Exists"),
                        requirement(ZONE, "NotIn", "zone-b"),
                        requirement(SIZE, "Lt", "8"),
                    )
                ),
                max_size=2,
                unique_by=lambda demand: demand["key"],
            )
        )
        taint = {"key": "team", "value": "x", "effect": draw(st.sampled_from(("NoSchedule", "PreferNoSchedule")))}
        found.append(
            a_pool(
                name,
                requirements=demands,
                labels=draw(sometimes(st.just({"stage": "test"}), {}, 3)),
                weight=draw(st.sampled_from((None, 1, 10))),
                taints=draw(sometimes(st.just([taint]), [], 3)),
            )
        )
    return found


@st.composite
def nodes(draw):
    found = []
    for number in range(draw(st.integers(0, 2))):
        name = f"n{number}"
        running = [
            a_pod(
                f"{name}-r{i}",
                cpu="500m",
                namespace=draw(st.sampled_from((HOME, AWAY))),
                labels={"app": draw(st.sampled_from(APPS)), "version": "1"},
                nodeName=name,
                affinity=draw(
                    sometimes(
                        affinity_terms("web").map(
                            lambda term: {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
                        ),
                        None,
                        3,
                    )
                ),
            )
            for i in range(draw(st.integers(0, 2)))
        ]
        found.append(
            a_node(
                name,
                cpu=draw(st.sampled_from((2, 4))),
                zone=draw(st.sampled_from(ZONES)),
                pods=running,
                pool=draw(st.sampled_from(("p0", ""))),
                labels={SIZE: "4", "node.kubernetes.io/instance-type": "m4"}
                | draw(sometimes(st.just({"team": "red"}), {}, 2)),
                accepts=draw(st.integers(0, 5)) > 0,
            )
        )
    return found


def a_volume(name, zone):
    affinity = (
        {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression(ZONE, "In", zone)]}]}} if zone else None
    )
    spec = {"csi": {"driver": DRIVER, "volumeHandle": name}, **({"nodeAffinity": affinity} if affinity else {})}
    return msgspec.convert({"metadata": {"name": f"agreement-{name}"}, "spec": spec}, PersistentVolume)


def a_volume_claim(name):
    raw = {
        "metadata": {"name": name, "namespace": HOME},
        "spec": {"storageClassName": "", "volumeName": f"agreement-{name}"},
        "status": {"phase": "Bound"},
    }
    return msgspec.convert(raw, PersistentVolumeClaim)


VOLUMES = {"in-a": "zone-a", "in-b": "zone-b", "anywhere": ""}
"""Zone of each volume, by the name of its claim."""


@st.composite
def clusters(draw):
    found = draw(nodes())
    limits = [
        msgspec.convert(
            {"metadata": {"name": n.name}, "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": 1}}]}},
            CsiNode,
        )
        for n in found
    ]
    return a_snapshot(
        pools=draw(pools()),
        catalog=a_catalog(*TYPES),
        nodes=tuple(found),
        daemon_sets=draw(sometimes(st.just((a_daemon_set(),)), (), 3)),
        namespaces=NAMESPACES,
        persistent_volumes=tuple(a_volume(name, zone) for name, zone in VOLUMES.items()),
        persistent_volume_claims=tuple(a_volume_claim(name) for name in VOLUMES),
        csi_nodes=tuple(limits),
    )
