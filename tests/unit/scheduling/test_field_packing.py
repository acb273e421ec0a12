"""Cases that people who run Karpenter have reported; each stands for its kind of fault.

Prices are on-demand ones of the EC2 catalog among the golden data.
"""

from pathlib import Path

import msgspec
import pytest
from scheduling_builders import (
    NOW,
    a_daemon_set,
    a_pod,
    a_pool,
    affinity_to,
    claim_of,
    requirement,
    solved,
    zone_spread,
)

from wainwright.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from wainwright.scheduling.scenario import read_catalog
from wainwright.scheduling.snapshot import Snapshot

CATALOG = Path(__file__).parents[2] / "golden" / "packing" / "catalogs" / "ec2-us-east-1.json"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def catalog():
    return read_catalog(CATALOG.read_bytes())


def pool(*types, name="general", more=(), **kwargs):
    demands = [
        requirement("karpenter.sh/capacity-type", "In", "on-demand"),
        requirement("node.kubernetes.io/instance-type", "In", *types),
        *more,
    ]
    return a_pool(name, requirements=demands, **kwargs)


def snapshot(catalog, *pools, **more):
    return Snapshot(taken_at=NOW, node_pools=pools, catalogs={each.name: catalog for each in pools}, **more)


def types_of(plan):
    return sorted(claim.options[0].instance_type for claim in plan.claims)


def container(cpu, **more):
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}, **more}


def test_f01_the_order_of_sidecars_and_init_containers_decides_the_size(catalog):
    """Pods that start with a sidecar got nodes too small for the start-up peak.

    `late`: max(0.9 + 1.2, 0.9 + 1.0) = 2.1 cpu; `early`: max(1.2, 0.9 + 1.0) = 1.9; a c6a.large holds 1.93.
    """
    proxy, migrate = container("900m", restartPolicy="Always"), container("1200m")
    late = a_pod("late", cpu="1", memory="128Mi", initContainers=[proxy, migrate])
    early = a_pod("early", cpu="1", memory="128Mi", initContainers=[migrate, proxy])
    plan = solved(snapshot(catalog, pool("c6a.large", "c6a.xlarge")), [late, early])
    assert types_of(plan) == ["c6a.large", "c6a.xlarge"]
    assert claim_of(plan, "uid-late").options[0].instance_type == "c6a.xlarge"
    assert plan.price == pytest.approx(0.2295)


def test_f04_limits_of_a_daemon_count_where_requests_are_missing(catalog):
    """A DaemonSet with limits only was counted as nothing: the node was too small, and another followed, for ever."""
    agent = a_daemon_set(tolerations=[{"operator": "Exists"}])
    limits = {"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}
    template = msgspec.to_builtins(agent)
    template["spec"]["template"]["spec"]["containers"] = [limits]
    agent = msgspec.convert(template, type(agent))
    plan = solved(
        snapshot(catalog, pool("c6a.large", "c6a.xlarge"), daemon_sets=(agent,)), [a_pod(cpu="1500m", memory="256Mi")]
    )
    assert types_of(plan) == ["c6a.xlarge"]
    assert plan.price == pytest.approx(0.153)


def test_f07_a_daemon_is_charged_by_type_and_not_by_pool(catalog):
    """A daemon bound to some types was charged to all or to none."""
    tuned = [requirement("node.kubernetes.io/instance-type", "In", "c6a.xlarge", "c6a.2xlarge")]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": tuned}]}
        }
    }
    tuner = a_daemon_set("tuner", cpu="1", memory="64Mi", affinity=affinity)
    plan = solved(
        snapshot(catalog, pool("c6a.xlarge", "m6a.xlarge", "c6a.2xlarge"), daemon_sets=(tuner,)),
        [a_pod(cpu="3500m", memory="1Gi")],
    )
    assert types_of(plan) == ["m6a.xlarge"]
    assert plan.price == pytest.approx(0.1728)


def test_f12_domains_of_a_pool_that_the_pods_cannot_use_do_not_count(catalog):
    """Pods of a tainted pool with one domain waited for ever, as another pool offered nine domains more."""
    own = pool(
        "c6a.large",
        name="a",
        more=[requirement("capacity-spread", "In", "1")],
        labels={"pool": "a"},
        taints=[{"key": "pool", "value": "a", "effect": "NoSchedule"}],
    )
    values = [str(number) for number in range(2, 11)]
    other = pool("c6a.large", name="b", more=[requirement("capacity-spread", "In", *values)], labels={"pool": "b"})
    constraint = zone_spread(1, "app", key="capacity-spread", nodeAffinityPolicy="Honor", nodeTaintsPolicy="Honor")
    batch = [
        a_pod(
            f"app-{index}",
            cpu="500m",
            memory="256Mi",
            labels={"app": "app"},
            nodeSelector={"pool": "a"},
            tolerations=[{"key": "pool", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
            topologySpreadConstraints=[constraint],
        )
        for index in range(3)
    ]
    plan = solved(snapshot(catalog, own, other), batch)
    assert not plan.unplaced
    assert plan.price == pytest.approx(0.0765)
    assert plan.claims[0].labels["capacity-spread"] == "1"


def test_f15_a_volume_pulls_those_that_want_to_be_near_its_pod(catalog):
    """The larger pod without a volume was placed first, in a zone that the volume's pod could not join."""
    zones = requirement(ZONE, "In", "us-east-1a", "us-east-1b", "us-east-1c")
    volume = msgspec.convert(
        {
            "metadata": {"name": "vol-1"},
            "spec": {
                "csi": {"driver": "ebs.csi.aws.com"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [requirement(ZONE, "In", "us-east-1b")]}]}
                },
            },
        },
        PersistentVolume,
    )
    claim = msgspec.convert(
        {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"storageClassName": "fast", "volumeName": "vol-1"},
            "status": {"phase": "Bound"},
        },
        PersistentVolumeClaim,
    )
    fast = msgspec.convert(
        {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"},
        StorageClass,
    )
    batch = [
        a_pod(
            "db",
            cpu="300m",
            memory="128Mi",
            labels={"app": "db"},
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        ),
        *(
            a_pod(f"cache-{index}", cpu="1800m", memory="512Mi", labels={"app": "cache"}, affinity=affinity_to("db"))
            for index in range(2)
        ),
    ]
    plan = solved(
        snapshot(
            catalog,
            pool("c6a.large", "c6a.xlarge", more=[zones]),
            persistent_volumes=(volume,),
            persistent_volume_claims=(claim,),
            storage_classes=(fast,),
        ),
        batch,
    )
    assert not plan.unplaced
    assert {option.zone for each in plan.claims for option in each.options} == {"us-east-1b"}
    assert plan.price == pytest.approx(0.153)
