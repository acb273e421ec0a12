"""Answers in packing-output/v1: the golden scenarios, field by field, and through the solver alone."""

import json
from pathlib import Path

import pytest

from tests.unit.plan.builders import a_job, a_node_pool, a_pod, a_workload, as_json, placed, planned
from wainwright.scheduling.plan import Plan
from wainwright.scheduling.solver import solve
from workers.plan.command import PLAN_BUDGET, make_plan
from workers.plan.output import gap, lower_bound, make_output
from workers.plan.scenario import load_scenario

SMALL = Path(__file__).parents[2] / "golden" / "packing" / "small"
NAMES = sorted(path.stem for path in (SMALL / "scenarios").glob("*.json"))
OURS = {"worst_price", "lower_bound", "gap", "complete", "pod_reasons", "relaxed", "warnings"}
THEIRS = {"upstream"}
SPREAD = {"type", "key", "when", "max_skew", "selector", "owners", "selects_only_owners"}


def golden(name):
    return json.loads((SMALL / "outputs" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_scenario_comes_out_in_the_schema_at_the_solvers_price(name):
    given = load_scenario(SMALL / "scenarios" / f"{name}.json")
    answer, theirs = as_json(make_output(given, make_plan(given))), golden(name)
    plan = solve(given.snapshot, given.pods, given.snapshot.taken_at, PLAN_BUDGET)
    assert answer["summary"]["total_price"] == plan.price
    assert answer["schema"] == theirs["schema"]
    assert answer["scenario"] == theirs["scenario"] == name
    assert answer.keys() == (theirs.keys() - THEIRS) | OURS
    summary = answer["summary"]
    assert summary["pods"] == theirs["summary"]["pods"]
    assert summary["pods"] == summary["pods_on_new"] + summary["pods_on_existing"] + summary["pod_errors"]
    assert summary["claims"] == len(answer["new_node_claims"])
    assert sorted([*placed(answer), *answer["pod_errors"]]) == all_pods(theirs)
    for claim in answer["new_node_claims"]:
        assert claim.keys() == {"worst_price", *example(theirs)}
        assert claim["cheapest"].keys() == {"instance_type", "zone", "capacity_type", "price"}
        assert claim["cheapest"]["instance_type"] == claim["instance_types"][0]
        assert claim["instance_type_count"] == len(claim["instance_types"])
        assert claim["worst_price"] >= claim["cheapest"]["price"]
    assert answer["worst_price"] >= summary["total_price"]


def example(theirs):
    return theirs["new_node_claims"][0] if theirs["new_node_claims"] else golden("bin-fill-a")["new_node_claims"][0]


def all_pods(theirs):
    on_new = [pod for claim in theirs["new_node_claims"] for pod in claim["pods"]]
    on_nodes = [pod for pods in theirs["existing_nodes"].values() for pod in pods]
    return sorted([*on_new, *on_nodes, *theirs["pod_errors"]])


def spread_facts(answer):
    facts = [entry for entry in answer["topology"] if entry["type"] == "spread"]
    return [
        (entry["key"], entry)
        for entry in sorted(facts, key=lambda each: (each["key"], each["owners"], repr(each["selector"])))
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if golden(name)["topology"]])
def test_spreads_are_counted_as_upstreams_are(name):
    """What does not depend on which of several valid plans was taken is equal."""
    given = load_scenario(SMALL / "scenarios" / f"{name}.json")
    answer, theirs = as_json(make_output(given, make_plan(given))), golden(name)
    ours = spread_facts(answer)
    wanted = spread_facts(theirs)
    assert len(ours) == len(wanted)
    for (key, mine), (_, their) in zip(ours, wanted, strict=True):
        assert {field: mine[field] for field in SPREAD} == {field: their[field] for field in SPREAD}
        if key == "kubernetes.io/hostname":
            assert mine["max_per_domain"] <= max(their["max_per_domain"], mine["max_skew"])
        elif mine["when"] == "DoNotSchedule":
            assert set(their["eligible_domains"]) <= set(mine["eligible_domains"])
            if not answer["pod_errors"]:
                assert sum(mine["counts"].values()) == sum(their["counts"].values())
            if mine["selects_only_owners"] and "min_domains" not in mine:
                assert mine["skew_new"] <= mine["max_skew"]


def test_pods_are_named_with_their_namespace_outside_of_default():
    answer = planned(a_workload(namespace="shop"), a_pod(), a_job(), a_node_pool())
    assert placed(answer) == ["batch-0", "shop/web-0", "solo"]


def test_every_reason_is_there_in_text_in_classes_and_one_by_one():
    answer = planned(a_pod(cpu="40"), a_node_pool("a"), a_node_pool("b"))
    assert list(answer["pod_errors"]) == ["solo"]
    assert "nodepool/a: needs cpu 40" in answer["pod_errors"]["solo"]
    assert "; nodepool/b: needs cpu 40" in answer["pod_errors"]["solo"]
    assert answer["pod_error_classes"] == {"solo": ["resources"]}
    assert [reason["where"] for reason in answer["pod_reasons"]["solo"]] == ["nodepool/a", "nodepool/b"]


def test_dropped_preferences_are_told_by_pod():
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "gone", "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    answer = planned(a_workload(affinity=affinity), a_node_pool())
    assert list(answer["relaxed"]) == ["web-0"]
    assert any("gone" in text for text in answer["relaxed"]["web-0"])


def test_the_gap_is_price_over_bound_less_one_and_unknown_without_a_bound():
    assert gap(Plan(price=1.1, lower_bound=1.0)) == pytest.approx(0.1)
    assert gap(Plan(price=1.1)) is None
    assert lower_bound(Plan(price=1.1)) is None
    assert (gap(Plan()), lower_bound(Plan())) == (0.0, 0.0)
