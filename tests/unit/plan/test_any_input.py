"""Whatever stands in a document: a fault, a warning or a plan, never an exception."""

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.plan.builders import (
    SMALL,
    a_job,
    a_node,
    a_node_pool,
    a_pod,
    a_workload,
    as_json,
    yaml_of,
)
from tests.unit.plan.test_admission import a_limit_range, a_priority_class, a_runtime_class
from tests.unit.plan.test_storage import a_claim, a_class, a_volume, with_volume
from wainwright.scheduling.plan import SolveBudget
from workers.plan.command import make_plan
from workers.plan.documents import parse
from workers.plan.findings import Findings
from workers.plan.inputs import assemble, empty_cluster
from workers.plan.manifests import sort_documents
from workers.plan.output import make_output

ZONE = "topology.kubernetes.io/zone"
TERM = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-a"]}]}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": ["pod-template-hash"],
    "minDomains": 1,
}
BESIDE = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}, "namespaces": ["default"]}
AFFINITY = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}},
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [BESIDE]},
}
DOCUMENTS = (
    a_workload(
        replicas=3,
        topologySpreadConstraints=[SPREAD],
        affinity=AFFINITY,
        tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
        runtimeClassName="gvisor",
        priorityClassName="high",
        overhead={"cpu": "10m"},
    ),
    a_workload(
        "StatefulSet",
        "db",
        replicas=2,
        more={
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": a_claim(storageClassName="fast")["spec"]}]
        },
    ),
    a_pod(volumes=with_volume(), nodeSelector={ZONE: "zone-b"}),
    a_job(spec={"parallelism": 2, "completions": 3}),
    a_workload("DaemonSet", "agent"),
    a_node_pool(requirements=[{"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]}], limits={"cpu": "90"}),
    a_node(labels={"karpenter.sh/nodepool": "general"}, taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}]),
    a_claim(volumeName="vol-1"),
    a_volume(claimRef={"namespace": "default", "name": "data"}),
    a_class(allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-a"]}]}]),
    a_limit_range(default={"cpu": "1"}, max={"cpu": "2"}),
    a_runtime_class(overhead={"podFixed": {"cpu": "1m"}}, scheduling={"nodeSelector": {"a": "b"}}),
    a_priority_class("high", 5, globalDefault=True),
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(
        [10**30, -(10**12), 1.5, float("1e308"), "", " ", "x" * 300, "1e999", "-1", "2Gi", "a/b/c", "\x01é"]
    ),
    st.text(max_size=5),
    st.lists(st.one_of(st.none(), st.text(max_size=2), st.integers(0, 2)), max_size=2),
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.text(max_size=2), st.integers(0, 2)), max_size=2),
)


def paths_of(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield from paths_of(item, (*path, step))


PLACES = [(index, path) for index, document in enumerate(DOCUMENTS) for path in paths_of(document) if path]


def answered(content):
    findings = Findings()
    manifests = sort_documents(parse(content, "any.yaml", findings), findings)
    found = assemble(manifests, empty_cluster(), lambda _pool: SMALL, findings)
    return as_json(make_output(found, make_plan(found, SolveBudget(improvement_units=1000))))


def test_the_documents_as_they_are_have_no_fault():
    answer = answered(yaml_of(*DOCUMENTS))
    assert not [text for text in answer["warnings"] if text.startswith("left out")]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=3))
def test_any_value_in_any_field_is_a_fault_or_a_plan(changes):
    documents = copy.deepcopy(list(DOCUMENTS))
    for (index, path), value in changes:
        inner = documents[index]
        try:
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took this place away
    answer = answered(yaml_of(*documents))
    summary = answer["summary"]
    assert summary["pods"] == summary["pods_on_new"] + summary["pods_on_existing"] + summary["pod_errors"]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_bytes_are_faults_or_nothing(content):
    assert answered(content)["summary"]["pods"] == 0
