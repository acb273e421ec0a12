from copy import deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.api.validation import (
    is_restricted_label,
    parse_node_claim,
    parse_node_pool,
    validate_node_pool,
    validate_node_pool_change,
)

REQUIREMENTS = "spec.template.spec.requirements"


def a_manifest(*, labels=None, template=None, requirements=None, **spec):
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": requirements or [],
                    **(template or {}),
                },
            },
            **spec,
        },
    }


def a_requirement(key="example.com/size", operator="In", values=("a",), **fields):
    return {"key": key, "operator": operator, "values": list(values), **fields}


def faults_of(manifest):
    return [(fault.path, fault.message) for fault in parse_node_pool(manifest)[1]]


def only_fault_of(manifest):
    (fault,) = faults_of(manifest)
    return fault


GETTING_STARTED = a_manifest(
    requirements=[
        a_requirement("kubernetes.io/arch", values=["amd64"]),
        a_requirement("kubernetes.io/os", values=["linux"]),
        a_requirement("karpenter.sh/capacity-type", values=["spot"]),
        a_requirement("karpenter.k8s.aws/instance-category", values=["c", "m", "r"], minValues=2),
        a_requirement("karpenter.k8s.aws/instance-generation", "Gt", ["2"]),
    ],
    template={"expireAfter": "720h", "terminationGracePeriod": "48h30m"},
    labels={"billing-team": "my-team", "node-restriction.kubernetes.io/team": "x", "topology.kubernetes.io/zone": "a"},
    limits={"cpu": 1000, "memory": "1000Gi", "nodes": 10, "nvidia.com/gpu": "2"},
    disruption={
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1m",
        "budgets": [
            {"nodes": "20%", "reasons": ["Empty", "Drifted"]},
            {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"},
            {"nodes": "5", "schedule": "@daily", "duration": "10m"},
        ],
    },
    weight=10,
)


def test_manifests_of_karpenter_users_are_accepted_unchanged():
    node_pool, faults = parse_node_pool(GETTING_STARTED)
    assert faults == []
    assert node_pool.spec.weight == 10
    assert parse_node_pool(msgspec.json.encode(GETTING_STARTED)) == (node_pool, [])


def test_every_fault_is_told_at_once_and_none_hides_another():
    manifest = a_manifest(
        labels={"kubernetes.io/hostname": "h", "a b": "c d"},
        requirements=[a_requirement(operator="in"), a_requirement("x", "Gt", ["-1"])],
        template={"taints": [{"key": "k", "effect": "NoSchedul"}], "expireAfter": "30d"},
        limits={"cpu": "12x"},
        weight=101,
    )
    assert [path for path, _ in faults_of(manifest)] == [
        "spec.template.metadata.labels['kubernetes.io/hostname']",
        "spec.template.metadata.labels['a b']",
        "spec.template.metadata.labels['a b']",
        "spec.template.spec.taints[0].effect",
        f"{REQUIREMENTS}[0].operator",
        f"{REQUIREMENTS}[1].values",
        f"{REQUIREMENTS}[1].values[0]",
        "spec.template.spec.expireAfter",
        "spec.limits['cpu']",
        "spec.weight",
    ]


def test_a_fault_reads_as_field_value_and_what_to_write_instead():
    (fault,) = parse_node_pool(a_manifest(weight=0))[1]
    assert str(fault) == "spec.weight: 0: must be 1 to 100; leave it out for the lowest"


def test_a_misspelt_word_is_told_what_it_probably_means():
    path, message = only_fault_of(a_manifest(requirements=[a_requirement(operator="notin")]))
    assert path == f"{REQUIREMENTS}[0].operator"
    assert message.endswith("did you mean NotIn?")


@pytest.mark.parametrize(
    ("requirement", "field", "told"),
    [
        (a_requirement(values=[]), ".values", "In needs at least one value"),
        (a_requirement(operator="Exists"), ".values", "takes no values"),
        (a_requirement(operator="DoesNotExist"), ".values", "takes no values"),
        (a_requirement(operator="Gt", values=["1", "2"]), ".values", "exactly one whole number"),
        (a_requirement(operator="Lte", values=["1.5"]), ".values", "exactly one whole number"),
        (a_requirement(operator="Gte", values=[]), ".values", "exactly one whole number"),
        (a_requirement(minValues=0), ".minValues", "must be 1 to 50"),
        (a_requirement(values=["a", "b", "b"], minValues=3), ".minValues", "only 2 values are listed"),
        (a_requirement(operator="DoesNotExist", values=[], minValues=1), ".minValues", "has no values"),
        (a_requirement("karpenter.sh/nodepool"), ".key", "is set by us"),
        (a_requirement("kubernetes.io/hostname"), ".key", "cannot be chosen"),
        (a_requirement("karpenter.sh/initialized"), ".key", "a domain of your own"),
        (a_requirement("Example.com/size"), ".key", "DNS domain"),
        (a_requirement("a/b/c"), ".key", "one slash"),
        (a_requirement(values=["x" * 64]), ".values[0]", "at most 63"),
        (a_requirement("karpenter.sh/capacity-type", values=["sopt"]), ".values", "did you mean spot?"),
    ],
)
def test_a_requirement_breaks_a_rule(requirement, field, told):
    path, message = only_fault_of(a_manifest(requirements=[requirement]))
    assert path == f"{REQUIREMENTS}[0]{field}"
    assert told in message


@pytest.mark.parametrize(
    "requirement",
    [
        a_requirement(operator="NotIn", values=[]),
        a_requirement(operator="Exists", values=[], minValues=50),
        a_requirement(operator="Gt", values=["0"]),
        a_requirement(values=[""]),
        a_requirement("karpenter.sh/capacity-type", values=["spot", "reserved"]),
        a_requirement("kops.k8s.io/instancegroup"),
        a_requirement("node.kubernetes.io/anything"),
        a_requirement("failure-domain.beta.kubernetes.io/zone"),
        a_requirement("instance.wainwright.dev/family"),
    ],
)
def test_a_requirement_keeps_every_rule(requirement):
    assert faults_of(a_manifest(requirements=[requirement])) == []


@pytest.mark.parametrize(
    ("requirements", "told"),
    [
        ([a_requirement(values=["a"]), a_requirement(values=["b"])], "no value satisfies In [a] and In [b]"),
        ([a_requirement(values=["a"]), a_requirement(operator="NotIn", values=["a"])], "no value satisfies"),
        ([a_requirement(values=["3", "x"]), a_requirement(operator="Gt", values=["5"])], "no value satisfies"),
        ([a_requirement(operator="Exists", values=[]), a_requirement(operator="DoesNotExist", values=[])], "Exists"),
        ([a_requirement(), a_requirement(operator="DoesNotExist", values=[])], "In [a] is required too"),
        ([a_requirement(operator="Gt", values=["5"]), a_requirement(operator="Lt", values=["6"])], "no number"),
        (
            [
                a_requirement(operator="Gte", values=["5"]),
                a_requirement(operator="Lte", values=["6"]),
                a_requirement(operator="NotIn", values=["5", "6"]),
            ],
            "no number",
        ),
        ([a_requirement(operator="Lt", values=["0"])], "no number"),
    ],
)
def test_requirements_that_nothing_satisfies_contradict(requirements, told):
    path, message = only_fault_of(a_manifest(requirements=requirements))
    assert path == f"{REQUIREMENTS}[{len(requirements) - 1}]"
    assert told in message


@pytest.mark.parametrize(
    "requirements",
    [
        [a_requirement(values=["a", "b"]), a_requirement(values=["b", "c"])],
        [a_requirement(operator="NotIn"), a_requirement(operator="DoesNotExist", values=[])],
        [a_requirement(operator="Gt", values=["5"]), a_requirement(operator="Lt", values=["7"])],
        [a_requirement(values=["6"]), a_requirement(operator="Gt", values=["5"])],
        [a_requirement(operator="NotIn", values=["a"]), a_requirement(operator="Exists", values=[])],
        [a_requirement("one"), a_requirement("two", values=["b"])],
    ],
)
def test_requirements_that_something_satisfies_do_not(requirements):
    assert faults_of(a_manifest(requirements=requirements)) == []


@pytest.mark.parametrize(
    ("requirement", "told"),
    [
        (a_requirement(values=["b"]), "which In [b] exclude"),
        (a_requirement(operator="DoesNotExist", values=[]), "must not exist"),
    ],
)
def test_a_label_of_the_template_must_satisfy_the_requirements(requirement, told):
    _, message = only_fault_of(a_manifest(labels={"example.com/size": "a"}, requirements=[requirement]))
    assert told in message


@pytest.mark.parametrize(
    ("spec", "path", "told"),
    [
        ({"weight": 0}, "spec.weight", "1 to 100"),
        ({"replicas": -1}, "spec.replicas", "negative"),
        ({"replicas": 1, "weight": 5}, "spec.weight", "has no weight"),
        ({"replicas": 1, "limits": {"cpu": 1}}, "spec.limits['cpu']", "by nodes only"),
        ({"limits": {"cpu": "1 core"}}, "spec.limits['cpu']", "is not a quantity"),
        ({"limits": {"memory": "-1Gi"}}, "spec.limits['memory']", "negative"),
        ({"disruption": {"consolidateAfter": "1d"}}, "spec.disruption.consolidateAfter", "or Never"),
        ({"disruption": {"consolidationPolicy": "Always"}}, "spec.disruption.consolidationPolicy", "WhenEmpty"),
        ({"disruption": {"budgets": [{"nodes": "101%"}]}}, "spec.disruption.budgets[0].nodes", "0% to 100%"),
        ({"disruption": {"budgets": [{"schedule": "@daily"}]}}, "spec.disruption.budgets[0]", "add duration"),
        ({"disruption": {"budgets": [{"duration": "1h"}]}}, "spec.disruption.budgets[0]", "add schedule"),
        (
            {"disruption": {"budgets": [{"schedule": "@daily", "duration": "30s"}]}},
            "spec.disruption.budgets[0].duration",
            "without seconds",
        ),
        (
            {"disruption": {"budgets": [{"schedule": "0 25 * * *", "duration": "1h"}]}},
            "spec.disruption.budgets[0].schedule",
            "'25' is not a hour",
        ),
        ({"disruption": {"budgets": [{"reasons": ["empty"]}]}}, "spec.disruption.budgets[0].reasons", "mean Empty?"),
        ({"disruption": {"budgets": [{}] * 51}}, "spec.disruption.budgets", "at most 50"),
    ],
)
def test_a_field_breaks_a_rule(spec, path, told):
    found, message = only_fault_of(a_manifest(**spec))
    assert found == path
    assert told in message


@pytest.mark.parametrize(
    ("template", "path", "told"),
    [
        ({"expireAfter": "1.5h"}, "expireAfter", "or Never"),
        ({"terminationGracePeriod": "Never"}, "terminationGracePeriod", "48h"),
        ({"nodeClassRef": {"group": "", "kind": "K", "name": "n"}}, "nodeClassRef.group", "empty"),
        ({"nodeClassRef": {"group": "g/v1", "kind": "K", "name": "n"}}, "nodeClassRef.group", "no version"),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, "taints[0].key", "a key is"),
        ({"startupTaints": [{"key": "a", "value": "-", "effect": "NoExecute"}]}, "startupTaints[0].value", "at most"),
        (
            {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}]},
            "taints[1]",
            "twice",
        ),
    ],
)
def test_a_field_of_the_template_breaks_a_rule(template, path, told):
    found, message = only_fault_of(a_manifest(template=template))
    assert found == f"spec.template.spec.{path}"
    assert told in message


def test_too_many_labels_and_requirements_are_counted():
    labels = {f"l{number}": "x" for number in range(101)}
    requirements = [a_requirement(f"r{number}") for number in range(101)]
    assert [path for path, _ in faults_of(a_manifest(labels=labels, requirements=requirements))] == [
        "spec.template.metadata.labels",
        REQUIREMENTS,
    ]


class TestUnreadable:
    def test_every_field_of_a_wrong_kind_is_told_beside_the_broken_rules(self):
        manifest = a_manifest(
            requirements=[
                a_requirement("a"),
                {"key": 5, "operator": "In"},
                a_requirement("b", values=["x", 4]),
                a_requirement("c", "Is"),
            ],
            weight="heavy",
        )
        node_pool, faults = parse_node_pool(manifest)
        assert node_pool is None
        assert {fault.path: fault.value for fault in faults} == {
            f"{REQUIREMENTS}[1].key": 5,
            f"{REQUIREMENTS}[2].values[1]": 4,
            f"{REQUIREMENTS}[3].operator": "Is",  # its place in the manifest, though two before it were left out
            "spec.weight": "heavy",
        }

    def test_the_manifest_is_left_as_it_was(self):
        manifest = a_manifest(weight="heavy", requirements=[{"key": 5, "operator": "In"}])
        before = deepcopy(manifest)
        parse_node_pool(manifest)
        assert manifest == before

    @pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"metadata": 3}'])
    def test_what_is_no_object_at_all_has_a_fault_too(self, raw):
        node_pool, faults = parse_node_pool(raw)
        assert node_pool is None
        assert faults

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["spec", "template", "metadata", "requirements", "limits", "labels", "key", "name"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=25,
        )
    )
    def test_nothing_that_json_can_say_makes_it_fail(self, tree):
        node_pool, faults = parse_node_pool({"metadata": {"name": "x"}, "spec": tree})
        assert node_pool is not None or faults
        parse_node_pool(msgspec.json.encode(tree))


class TestChanges:
    def test_the_node_class_kind_and_a_fixed_size_are_for_good(self):
        old, _ = parse_node_pool(a_manifest())
        reference = {"group": "g", "kind": "K", "name": "other"}
        new, _ = parse_node_pool(a_manifest(template={"nodeClassRef": reference}, replicas=2))
        assert [fault.path for fault in validate_node_pool_change(old, new)] == [
            "spec.template.spec.nodeClassRef.group",
            "spec.template.spec.nodeClassRef.kind",
            "spec.replicas",
        ]

    def test_all_else_may_change(self):
        old, _ = parse_node_pool(a_manifest(replicas=1))
        new, _ = parse_node_pool(a_manifest(replicas=5, labels={"a": "b"}))
        assert validate_node_pool_change(old, new) == []


def test_a_node_claim_keeps_the_same_rules_but_may_name_its_node_pool():
    claim = {
        "metadata": {"name": "default-x7k2p"},
        "spec": {
            "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            "requirements": [a_requirement("karpenter.sh/nodepool", values=["default"]), a_requirement(operator="x")],
            "resources": {"requests": {"cpu": "lots"}},
            "expireAfter": "soon",
        },
    }
    assert [fault.path for fault in parse_node_claim(claim)[1]] == [
        "spec.requirements[1].operator",
        "spec.resources.requests['cpu']",
        "spec.expireAfter",
    ]


@pytest.mark.parametrize(
    ("key", "restricted"),
    [
        ("team", False),
        ("kubernetes.io/os", False),
        ("kubernetes.io/role", True),
        ("foo.kubernetes.io/x", True),
        ("notkubernetes.io/x", False),
        ("x.node.kubernetes.io/y", False),
        ("karpenter.sh/capacity-type", False),
        ("karpenter.sh/anything", True),
        ("k8s.io/x", True),
        ("topology.k8s.aws/zone-id", False),
    ],
)
def test_labels_below_the_domains_of_others_are_restricted(key, restricted):
    assert is_restricted_label(key) is restricted


def test_a_sound_pool_has_no_faults_when_decoded_elsewhere():
    node_pool, _ = parse_node_pool(GETTING_STARTED)
    assert validate_node_pool(node_pool) == []
