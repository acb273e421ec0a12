import msgspec
import pytest

from wainwright.cloud.catalog import CatalogError, load_packing_catalog, make_catalog, parse_packing_catalog
from wainwright.scheduling.instance_types import InstanceType, Offering


def document(**changes):
    machine = {
        "name": "s2",
        "labels": {"family": "s"},
        "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10", "nvidia.com/gpu": 1},
        "overhead": {"cpu": "100m", "memory": "10Mi"},
        "offerings": [
            {"zone": "a", "capacity_type": "spot", "price": 0.04, "available": True, "spot_fraction": 0.4},
            {
                "zone": "a",
                "capacity_type": "reserved",
                "price": 0,
                "available": True,
                "reservation_id": "cr-1",
                "reservation_capacity": 3,
            },
        ],
        **changes,
    }
    return {
        "schema": "packing-catalog/v1",
        "name": "mini",
        "region": "r1",
        "zones": ["a"],
        "well_known_labels": ["family"],
        "instance_types": [machine],
    }


def parse(body):
    return parse_packing_catalog(msgspec.json.encode(body), "mini.json")


def test_a_packing_catalog_becomes_instance_types_in_whole_units():
    catalog = parse(document())
    assert catalog.region == "r1"
    assert catalog.well_known == {"family"}
    (machine,) = catalog.instance_types
    assert machine.capacity == {"cpu": 2000, "memory": 4 * 2**30, "pods": 10, "nvidia.com/gpu": 1}
    assert machine.allocatable["cpu"] == 1900
    assert machine.allocatable["memory"] == 4 * 2**30 - 10 * 2**20
    assert machine.offerings[1] == Offering(
        zone="a", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=3
    )


def test_capacity_is_rounded_down_and_overhead_up():
    """What fits by our reckoning must fit on the machine."""
    (machine,) = parse(document(capacity={"cpu": "1999.9m"}, overhead={"cpu": "0.1m"})).instance_types
    assert machine.capacity == {"cpu": 1999}
    assert machine.overhead == {"cpu": 1}


def test_equal_catalogs_have_equal_versions_and_a_changed_price_another():
    changed = document()
    changed["instance_types"][0]["offerings"][0]["price"] = 0.041
    reordered = dict(reversed(document().items()))
    assert parse(document()).version == parse(reordered).version
    assert parse(document()).version != parse(changed).version


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({**document(), "schema": "packing-catalog/v2"}, "mini.json: schema is 'packing-catalog/v2'"),
        ({**document(), "instance_types": []}, "mini.json: no instance types"),
        (document(capacity={"cpu": "two"}), "mini.json: instance type s2: 'two' is not a quantity"),
        (document(offerings=[{"zone": "a", "capacity_type": "spot", "price": -1}]), "offering spot/s2/a: price -1.0"),
        (document(offerings=[{"zone": "a", "price": 1}]), "mini.json: Object missing required field `capacity_type`"),
        ({**document(), "instance_types": document()["instance_types"] * 2}, "instance type s2 is there twice"),
    ],
)
def test_an_unusable_catalog_says_where_and_why(body, told):
    with pytest.raises(CatalogError, match=r".*") as caught:
        parse(body)
    assert told in str(caught.value)


def test_a_price_that_is_no_number_is_refused():
    machine = InstanceType(name="x", offerings=(Offering(zone="a", capacity_type="spot", price=float("nan")),))
    with pytest.raises(CatalogError, match="offering spot/x/a: price nan"):
        make_catalog("", frozenset(), (machine,))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CatalogError, match=r"none\.json: No such file"):
        load_packing_catalog(tmp_path / "none.json")
