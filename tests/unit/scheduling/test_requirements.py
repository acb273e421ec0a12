"""The requirement algebra, judged by membership."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wainwright.scheduling.requirements import RequirementError, merged, requirement

VALUES = ("a", "b", "c", "1", "2", "3", "05", "5", "-1", "x9")
PROBES = (None, *VALUES, "4", "6", "zz")


@st.composite
def requirements(draw):
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")))
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        return requirement("key", operator, (str(draw(st.integers(-3, 7))),))
    values = draw(st.lists(st.sampled_from(VALUES), max_size=4)) if operator in ("In", "NotIn") else ()
    return requirement("key", operator, tuple(values))


def members(wanted):
    return {probe for probe in PROBES if wanted.has(probe)}


@given(requirements(), requirements())
def test_intersection_holds_exactly_what_both_hold(one, other):
    assert members(one.intersect(other)) == members(one) & members(other)


@given(requirements(), requirements(), requirements())
def test_intersection_is_commutative_associative_and_idempotent(one, two, three):
    assert members(one.intersect(two)) == members(two.intersect(one))
    assert members(one.intersect(two).intersect(three)) == members(one.intersect(two.intersect(three)))
    assert one.intersect(one) == one


@given(requirements(), requirements())
def test_an_empty_meeting_has_no_members(one, other):
    both = one.intersect(other)
    if both.is_empty:
        assert not members(both)


@given(requirements(), requirements())
def test_any_value_is_a_member(one, other):
    both = one.intersect(other)
    value = both.any_value()
    assert (value is not None) == both.has_values
    if value is not None:
        assert both.has(value)


@given(requirements(), requirements())
def test_what_is_written_on_a_claim_loses_no_exclusion(one, other):
    both = one.intersect(other)
    if both.is_empty:
        return
    read = merged(requirement(part.key, part.operator, part.values) for part in both.selectors())["key"]
    assert members(read) - {None} == members(both) - {None}


@pytest.mark.parametrize(
    ("operator", "values", "inside", "outside"),
    [
        ("In", ("a", "b"), ["a", "b"], ["c", None]),
        ("NotIn", ("a",), ["b", None], ["a"]),
        ("Exists", (), ["a", "7"], [None]),
        ("DoesNotExist", (), [None], ["a"]),
        ("Gt", ("4",), ["5", "100"], ["4", "x", None]),
        ("Lt", ("4",), ["3", "-9"], ["4", "x", None]),
        ("Gte", ("4",), ["4", "5"], ["3", None]),
        ("Lte", ("4",), ["4", "3"], ["5", None]),
    ],
)
def test_operators(operator, values, inside, outside):
    wanted = requirement("key", operator, values)
    assert all(wanted.has(value) for value in inside)
    assert not any(wanted.has(value) for value in outside)


def test_bounds_that_cross_leave_nothing():
    assert requirement("key", "Gt", ("5",)).intersect(requirement("key", "Lt", ("6",))).is_empty


def test_the_larger_min_values_wins():
    one = requirement("key", "In", ("a", "b"), 1)
    assert one.intersect(requirement("key", "Exists", (), 2)).min_values == 2


def test_former_names_of_labels_mean_the_current_ones():
    assert requirement("failure-domain.beta.kubernetes.io/zone", "Exists").key == "topology.kubernetes.io/zone"
    assert requirement("topology.ebs.csi.aws.com/zone", "Exists").key == "topology.kubernetes.io/zone"


@pytest.mark.parametrize(("operator", "values"), [("Near", ("a",)), ("Gt", ("many",)), ("Lt", ()), ("Gte", ("1", "2"))])
def test_what_kubernetes_would_refuse_is_named(operator, values):
    with pytest.raises(RequirementError, match="key"):
        requirement("key", operator, values)
