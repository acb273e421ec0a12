"""Fields and types of documents, against what Kubernetes knows."""

import pytest

from wainwright.api.nodepools import NodePool
from workers.plan.conform import conformed, unknown_fields, without_nulls


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def faults(content, struct="core.Pod"):
    return [(fault.field, fault.message) for fault in conformed(content, struct).faults]


def test_every_fault_is_found_at_once_with_its_path():
    found = faults(
        pod(
            priority="high",
            hostNetwork="yes",
            nodeSelector={"topology.kubernetes.io/zone": 1},
            containers=[{"name": True, "resources": {"requests": {"cpu": "500x"}}}],
            tolerations={"key": "a"},
        )
    )
    assert [field for field, _ in found] == [
        "spec.priority",
        "spec.hostNetwork",
        "spec.nodeSelector[topology.kubernetes.io/zone]",
        "spec.containers[0].name",
        "spec.containers[0].resources.requests.cpu",
        "spec.tolerations",
    ]


@pytest.mark.parametrize(
    ("spec", "fix"),
    [
        ({"priority": "7"}, "take the quotes off: 7"),
        ({"priority": 2.5}, "must be a whole number"),
        ({"hostNetwork": 1}, "must be true or false"),
        ({"nodeName": 7}, 'put it in quotes: "7"'),
        ({"nodeSelector": {"a": True}}, 'put it in quotes ("true"'),
        ({"nodeSelector": ["a"]}, "must be an object"),
        ({"containers": {"name": "a"}}, "must be a list; begin each item with `- `"),
        ({"overhead": {"memory": "4GB"}}, "did you mean 4Gi?"),
        ({"overhead": {"memory": "0,5Gi"}}, "did you mean 0.5Gi?"),
        ({"overhead": {"cpu": "2 cores"}}, "did you mean 2?"),
        ({"overhead": {"cpu": True}}, "must be a quantity"),
        ({"overhead": {"cpu": "1e999"}}, "is out of range"),
        ({"overhead": {"cpu": "1e99999999999"}}, "is out of range"),
    ],
)
def test_a_fault_says_what_to_write_instead(spec, fix):
    [(_, message)] = faults(pod(**spec))
    assert fix in message


def test_nulls_count_as_left_out():
    found = conformed(pod(priority=None, containers=[None, {"name": "a", "image": None}]), "core.Pod")
    assert not found.faults
    assert found.content["spec"] == {"containers": [{"name": "a"}]}
    assert without_nulls({"a": None, "b": [None, {"c": None}]}) == {"b": [{}]}


def test_a_field_that_does_not_exist_is_named_with_the_likely_one():
    found = conformed(pod(nodeselector={}, containers=[{"resource": {}}], bogus=1), "core.Pod")
    assert found.unknown == [
        "spec.nodeselector: there is no such field; did you mean nodeSelector?",
        "spec.containers[0].resource: there is no such field; did you mean resources?",
        "spec.bogus: there is no such field",
    ]
    assert found.content["spec"] == {"containers": [{}]}


def test_fields_of_karpenters_kinds_are_known_too():
    pool = {
        "metadata": {"name": "a", "creationTimestamp": "x", "selfLink": "y"},
        "spec": {"weigth": 1, "template": {"spec": {"requirements": [{"key": "a", "op": "In"}], "taint": []}}},
        "status": {"anything": 1},
    }
    assert unknown_fields(pool, NodePool) == [
        "spec.weigth: there is no such field; did you mean weight?",
        "spec.template.spec.requirements[0].op: there is no such field",
        "spec.template.spec.taint: there is no such field; did you mean taints?",
    ]
