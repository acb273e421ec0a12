"""Catalogs from files (`packing-catalog/v1`), and what makes two catalogs the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from wainwright.api.pods import Quantity
from wainwright.api.quantities import QuantityError, parse_resources
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering

PACKING_SCHEMA: Final = "packing-catalog/v1"


class CatalogError(ValueError):
    """A catalog that cannot be used; the message names the file, the type and the value."""


class _PackingType(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arch: str = "amd64"
    os: tuple[str, ...] = ("linux",)
    labels: dict[str, str] = {}
    capacity: dict[str, Quantity] = {}
    overhead: dict[str, Quantity] = {}
    offerings: tuple[Offering, ...] = ()


class _PackingCatalog(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = ""
    region: str = ""
    well_known_labels: tuple[str, ...] = ()
    instance_types: tuple[_PackingType, ...] = ()


def content_version(region: str, well_known: Iterable[str], instance_types: tuple[InstanceType, ...]) -> str:
    """A short digest that changes whenever anything in the catalog does."""
    content = msgspec.json.encode([region, sorted(well_known), instance_types], order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


def make_catalog(region: str, well_known: frozenset[str], instance_types: tuple[InstanceType, ...]) -> Catalog:
    """A catalog that carries the digest of its content as version. Raises CatalogError when it contradicts itself."""
    names: set[str] = set()
    for instance_type in instance_types:
        if instance_type.name in names:
            raise CatalogError(f"instance type {instance_type.name} is there twice")
        names.add(instance_type.name)
        for offering in instance_type.offerings:
            if not 0 <= offering.price < float("inf"):  # NaN fails too
                where = f"{offering.capacity_type}/{instance_type.name}/{offering.zone}"
                raise CatalogError(f"offering {where}: price {offering.price} is not a number of dollars")
    return Catalog(
        version=content_version(region, well_known, instance_types),
        region=region,
        well_known=well_known,
        instance_types=instance_types,
    )


def parse_packing_catalog(content: bytes, origin: str = "catalog") -> Catalog:
    """A catalog from `packing-catalog/v1` JSON; what the format does not name is skipped.

    origin: what messages call it. Capacities are rounded down and overheads up, so that what fits here fits there.
    Raises CatalogError.
    """
    try:
        packing = msgspec.json.decode(content, type=_PackingCatalog)
    except msgspec.DecodeError as error:
        raise CatalogError(f"{origin}: {error}") from error
    if packing.schema != PACKING_SCHEMA:
        raise CatalogError(f"{origin}: schema is {packing.schema!r}, expected {PACKING_SCHEMA!r}")
    if not packing.instance_types:
        raise CatalogError(f"{origin}: no instance types")
    try:
        return make_catalog(
            packing.region, frozenset(packing.well_known_labels), tuple(map(_instance_type, packing.instance_types))
        )
    except CatalogError as error:
        raise CatalogError(f"{origin}: {error}") from error


def _instance_type(packing: _PackingType) -> InstanceType:
    try:
        capacity = parse_resources(packing.capacity, round_up=False)
        overhead = parse_resources(packing.overhead)
    except QuantityError as error:
        raise CatalogError(f"instance type {packing.name}: {error}") from error
    return InstanceType(
        name=packing.name,
        arch=packing.arch,
        os=packing.os,
        labels=packing.labels,
        capacity=capacity,
        overhead=overhead,
        offerings=packing.offerings,
    )


def load_packing_catalog(path: Path) -> Catalog:
    """The catalog in a `packing-catalog/v1` file. Raises CatalogError, naming the file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror}") from error
    return parse_packing_catalog(content, str(path))
