"""What people see: nodes, bars, money and reasons in 80 columns."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.plan.builders import SMALL, a_node, a_node_pool, a_pod, a_type, a_workload, given
from wainwright.scheduling.instance_types import Catalog
from workers.plan.command import make_plan
from workers.plan.documents import InputError
from workers.plan.explain import explain, render_explanation
from workers.plan.output import make_output
from workers.plan.render import MOST_ROWS, bar, render_plan, some
from workers.plan.scenario import load_scenario

GOLDEN = Path(__file__).parents[2] / "golden" / "packing" / "small" / "scenarios"


def text_of(renderable):
    shown = io.StringIO()
    Console(file=shown, width=80, highlight=False).print(renderable)
    return shown.getvalue()


def shown(found):
    plan = make_plan(found)
    return text_of(render_plan(found, plan, make_output(found, plan)))


def told(found, pod):
    return text_of(render_explanation(explain(found, make_plan(found), pod)))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "······   0%"),
        (0.5, "███···  50%"),
        (1.0, "██████ 100%"),
        (1 / 48, "▏·····   2%"),
        (0.98, "█████▉  98%"),
        (1.3, "██████ 130%"),
    ],
)
def test_a_bar_shows_eighths_of_a_cell_and_per_cent(share, text):
    assert bar(share) == text


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_no_line_is_wider_than_80_columns(path):
    text = shown(load_scenario(path))
    assert max(map(len, text.splitlines())) <= 80


def test_long_names_are_folded_not_lost():
    kind = a_type("a-very-long-instance-type-name.metal-192xlarge-flex", 2, 4, 0.1, zones=("a-long-region-1-zone-b",))
    text = shown(
        given(
            a_pod(), a_node_pool("a-pool-with-a-rather-long-name"), catalog=Catalog(version="x", instance_types=(kind,))
        )
    )
    assert max(map(len, text.splitlines())) <= 80
    assert "\n    lex" in text
    assert "zone-b" in text


def test_nodes_prices_and_fill_can_be_read_off():
    """2 pods of 0.9 cores fill 90 % of an s2 (2 cores, 4 GiB); 0.1 $ x 730 h = 73 $."""
    text = shown(given(a_workload(replicas=2, cpu="900m", memory="1Gi"), a_node_pool()))
    assert "1 new node for 2 pods" in text
    assert "NodePool general: 1 node, 0.1000 $/h" in text
    row = next(line for line in text.splitlines() if "s2" in line)
    assert row.split() == ["1x", "s2", "zone-a", "on-demand", "0.1000", "█████▍", "90%", "███···", "50%", "2"]
    assert "price" in text
    assert "73.00 $ a month" in text


def test_equal_nodes_share_a_line():
    text = shown(given(a_workload(replicas=3, cpu="3500m"), a_node_pool()))
    assert "3x s4" in text


def test_many_different_nodes_are_shown_by_type_with_their_average():
    pods = [a_workload(name=f"w{n}", cpu="2100m", memory=f"{100 + 150 * n}Mi") for n in range(MOST_ROWS + 5)]
    text = shown(given(*pods, a_node_pool()))
    assert f"{MOST_ROWS + 5}x s4" in text


def test_pods_without_a_place_are_shown_together_with_their_reasons():
    text = shown(given(a_workload(name="big", replicas=9, cpu="40"), a_pod(), a_node_pool()))
    assert "9 pods not placed" in text
    assert "Not placed: big-0, big-1, big-2, big-3, big-4, big-5 and 3 more" in text
    assert text.count("nodepool/general: needs cpu 40") == 1


def test_existing_nodes_show_how_full_they_are_then():
    text = shown(given(a_pod(cpu="1"), a_node(cpu="4"), a_node_pool()))
    row = next(line for line in text.splitlines() if line.startswith("node-1"))
    assert row.split() == ["node-1", "█▌····", "25%", "▎·····", "3%", "1"]
    assert "1 pod on nodes that exist" in text
    assert "price" not in text, "it costs nothing"


def test_warnings_come_last():
    text = shown(given(a_pod(cpu="", memory=""), a_node_pool()))
    assert "1 warning" in text.splitlines()[-3:][0] or "1 warning" in text
    assert "asks for nothing" in text


def test_names_are_cut_after_a_few():
    assert some(["a", "b"]) == "a, b"
    assert some([str(n) for n in range(8)]) == "0, 1, 2, 3, 4, 5 and 2 more"


# One pod --------------------------------------------------------------------------------------------------------------


def test_a_placed_pod_is_told_its_node_its_price_and_its_company():
    text = told(given(a_workload(replicas=2, cpu="900m"), a_node_pool()), "web-1")
    assert "web-1 goes to a new node of NodePool general, shared by 2 pods: s2 in zone-a" in text.replace("\n", " ")
    assert "Beside it: web-0" in text
    assert "It asks for cpu 900m, memory 256Mi" in text


def test_a_pod_on_an_existing_node_is_told_so():
    assert "solo goes to node node-1 that exists" in told(given(a_pod(), a_node(), a_node_pool()), "default/solo")


def test_what_a_pod_demands_is_told():
    pod = a_pod(nodeSelector={"topology.kubernetes.io/zone": "zone-b"}, tolerations=[{"operator": "Exists"}])
    text = told(given(pod, a_node_pool()), "solo")
    assert "and a node with topology.kubernetes.io/zone In [zone-b]" in text
    assert "and tolerates every key:every effect" in text
    assert "in zone-b" in text


def test_an_unplaced_pod_is_told_why_not():
    text = told(given(a_pod(cpu="40"), a_node_pool()), "solo")
    assert "solo has no place." in text
    assert "nodepool/general: needs cpu 40" in text


def test_a_pod_in_another_namespace_is_found_by_its_name_where_that_is_clear():
    found = given(
        a_pod("a", namespace="shop"), a_pod("b", namespace="shop"), a_pod("b", namespace="lab"), a_node_pool()
    )
    assert told(found, "a").startswith("shop/a goes to")
    with pytest.raises(InputError, match="there is shop/b, lab/b"):
        told(found, "b")


def test_a_pod_that_is_not_there_is_answered_with_near_names():
    found = given(a_workload(replicas=2), a_node_pool(), catalog=SMALL)
    with pytest.raises(InputError, match="--explain wep-1: no such pod in this plan; there is web-1, web-0"):
        told(found, "wep-1")
