import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.test_validation import GETTING_STARTED, a_manifest, a_requirement
from wainwright.api.nodepool_hash import effective_spec_hash, template_hash
from wainwright.api.nodepools import NodePool, NodePoolStatus


def pool(manifest):
    return msgspec.convert(manifest, NodePool)


def test_order_and_repetition_do_not_count():
    one = a_manifest(requirements=[a_requirement(values=["a", "b"]), a_requirement("x")])
    other = a_manifest(requirements=[a_requirement("x"), a_requirement(values=["b", "a", "b"]), a_requirement("x")])
    assert effective_spec_hash(pool(one)) == effective_spec_hash(pool(other))


@given(st.randoms(use_true_random=False))
def test_any_shuffle_of_any_list_has_the_same_hash(rng: random.Random):
    def shuffled(tree):
        if isinstance(tree, dict):
            items = [(key, shuffled(value)) for key, value in tree.items()]
            rng.shuffle(items)
            return dict(items)
        if isinstance(tree, list):
            items = [shuffled(item) for item in tree]
            rng.shuffle(items)
            return items
        return tree

    mixed = pool(shuffled(GETTING_STARTED))
    assert effective_spec_hash(mixed) == effective_spec_hash(pool(GETTING_STARTED))
    assert template_hash(mixed) == template_hash(pool(GETTING_STARTED))


def test_defaults_written_out_are_no_change():
    written = a_manifest(
        template={"expireAfter": "720h", "taints": []},
        disruption={
            "consolidateAfter": "0s",
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "budgets": [{"nodes": "10%"}],
        },
    )
    assert effective_spec_hash(pool(written)) == effective_spec_hash(pool(a_manifest()))


def test_a_limit_in_other_words_is_no_change():
    assert effective_spec_hash(pool(a_manifest(limits={"cpu": 1, "memory": "1Gi"}))) == effective_spec_hash(
        pool(a_manifest(limits={"cpu": "1000m", "memory": "1024Mi"}))
    )


def test_status_and_metadata_do_not_count():
    one = pool(a_manifest())
    other = msgspec.structs.replace(one, status=NodePoolStatus(nodes=5))
    assert effective_spec_hash(one) == effective_spec_hash(other)


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 5},
        {"limits": {"cpu": 5}},
        {"limits": {"cpu": "unreadable"}},
        {"labels": {"a": "b"}},
        {"requirements": [a_requirement()]},
        {"template": {"expireAfter": "1h"}},
        {"disruption": {"consolidateAfter": "1h"}},
    ],
)
def test_any_other_change_counts(change):
    assert effective_spec_hash(pool(a_manifest(**change))) != effective_spec_hash(pool(a_manifest()))


def test_another_catalog_counts():
    """A new instance type makes the same NodePool another one, as in the seed."""
    node_pool = pool(a_manifest())
    assert effective_spec_hash(node_pool, "v1") != effective_spec_hash(node_pool, "v2")


@pytest.mark.parametrize(
    ("change", "drifts"),
    [
        ({"labels": {"a": "b"}}, True),
        ({"template": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, True),
        ({"template": {"expireAfter": "1h"}}, True),
        ({"requirements": [a_requirement()]}, False),
        ({"weight": 5}, False),
        ({"limits": {"cpu": 5}}, False),
        ({"disruption": {"consolidateAfter": "1h"}}, False),
    ],
)
def test_nodes_drift_by_what_they_were_made_from(change, drifts):
    assert (template_hash(pool(a_manifest(**change))) != template_hash(pool(a_manifest()))) is drifts
