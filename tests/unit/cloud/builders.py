"""Requests, catalogs and a clock that moves only when told."""

from datetime import UTC, datetime, timedelta

from wainwright.cloud.catalog import make_catalog
from wainwright.cloud.port import LaunchRequest
from wainwright.scheduling.instance_types import InstanceType, Offering
from wainwright.scheduling.snapshot import Option

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds):
    return NOON + timedelta(seconds=seconds)


class ManualClock:
    def __init__(self, now=NOON):
        self._now = now

    def now(self):
        return self._now

    def monotonic_seconds(self):
        return (self._now - NOON).total_seconds()

    def sleep(self, seconds):
        self.move(seconds)

    def move(self, seconds):
        self._now += timedelta(seconds=seconds)


def a_catalog():
    """Two types; `small` in two zones, `large` in one, and reserved once."""
    return make_catalog(
        "r1",
        frozenset({"size"}),
        (
            InstanceType(
                name="small",
                labels={"size": "small"},
                capacity={"cpu": 2000, "memory": 4 * 2**30, "pods": 10},
                overhead={"cpu": 100},
                offerings=(
                    Offering(zone="a", capacity_type="spot", price=0.03),
                    Offering(zone="b", capacity_type="spot", price=0.04),
                    Offering(zone="a", capacity_type="on-demand", price=0.1),
                ),
            ),
            InstanceType(
                name="large",
                arch="arm64",
                os=("windows", "linux"),
                capacity={"cpu": 8000, "memory": 16 * 2**30, "pods": 40},
                offerings=(
                    Offering(zone="a", capacity_type="on-demand", price=0.4),
                    Offering(zone="b", capacity_type="on-demand", price=0.4, available=False),
                    Offering(
                        zone="a", capacity_type="reserved", price=0.001, reservation_id="cr-1", reservation_capacity=1
                    ),
                ),
            ),
        ),
    )


def an_option(instance_type="small", zone="a", capacity_type="spot", price=0.03, reservation_id=""):
    return Option(
        instance_type=instance_type, zone=zone, capacity_type=capacity_type, price=price, reservation_id=reservation_id
    )


def a_request(token="uid-1/1", *, issued_at=NOON, options=None, claim="default-x7k2p", **fields):
    return LaunchRequest(
        token=token,
        issued_at=issued_at,
        cluster=fields.pop("cluster", "prod"),
        node_claim=claim,
        node_pool="default",
        options=options or (an_option(),),
        node_name=fields.pop("node_name", claim),
        **fields,
    )
