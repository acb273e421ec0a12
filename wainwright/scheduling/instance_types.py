"""What the cloud can launch: instance types and their offerings."""

from __future__ import annotations

import msgspec


class Offering(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instance type in one zone with one capacity type. price: US dollars an hour."""

    zone: str
    capacity_type: str
    price: float
    available: bool = True
    reservation_id: str = ""
    reservation_capacity: int = 0


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of machine. capacity, overhead: milli-CPU for cpu, whole units otherwise; allocatable is their difference.

    labels: what a node of this type carries besides zone, capacity type, instance type, arch and os.
    """

    name: str
    arch: str = "amd64"
    os: tuple[str, ...] = ("linux",)
    labels: dict[str, str] = {}
    capacity: dict[str, int] = {}
    overhead: dict[str, int] = {}
    offerings: tuple[Offering, ...] = ()

    @property
    def allocatable(self) -> dict[str, int]:
        return {name: amount - self.overhead.get(name, 0) for name, amount in self.capacity.items()}


class Catalog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a provider offers. well_known: label keys that pods may ask for though no NodePool defines them.

    version: changes whenever anything in it does; plans record it.
    """

    version: str
    region: str = ""
    well_known: frozenset[str] = frozenset()
    instance_types: tuple[InstanceType, ...] = ()


class OfferingKey(msgspec.Struct, frozen=True, order=True):
    """Names one offering; how shortages are remembered. `*` in a field matches everything."""

    capacity_type: str
    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.capacity_type}/{self.instance_type}/{self.zone}"
