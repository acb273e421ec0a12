"""Kubernetes quantities as integers: milli-CPU for `cpu`, whole units (bytes, pieces) for everything else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from wainwright.api.pods import Quantity

Resources = Mapping[str, int]
"""Amount per resource name: `cpu` in milli-CPU, the rest in whole units. A missing name is zero."""

_PATTERN = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))((?:[eE][+-]?\d+)|(?:[EPTGMK]i|[numkMGTPE])?)$")
_SUFFIX: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


class QuantityError(ValueError):
    """A quantity that Kubernetes would refuse; the message names it."""


@lru_cache(maxsize=65536)
def _decimal(text: str) -> Decimal:
    match = _PATTERN.match(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; write for example 500m, 2, 1.5Gi")
    number, suffix = match.groups()
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return Decimal(number) * Decimal(10) ** int(suffix[1:])
    return Decimal(number) * _SUFFIX[suffix]


@lru_cache(maxsize=65536)
def _scaled(text: str, *, milli: bool, rounding: str) -> int:
    value = _decimal(text) * 1000 if milli else _decimal(text)
    return int(value.to_integral_value(rounding=rounding))


def parse_quantity(name: str, quantity: Quantity, *, round_up: bool = True) -> int:
    """Amount of resource `name`: milli-CPU for `cpu`, whole units otherwise.

    round_up: requests are rounded up, capacities down (round_up=False), so that what fits here fits on a node.
    Raises QuantityError naming the text that cannot be read.
    """
    return _scaled(str(quantity), milli=name == "cpu", rounding=ROUND_CEILING if round_up else ROUND_FLOOR)


def parse_resources(quantities: Mapping[str, Quantity], *, round_up: bool = True) -> dict[str, int]:
    """Every quantity of a resource list as an integer (see `parse_quantity`)."""
    return {name: parse_quantity(name, quantity, round_up=round_up) for name, quantity in quantities.items()}


def format_quantity(name: str, amount: int) -> str:
    """The shortest exact text of an amount: `1500m`, `2`, `4Gi`, `1000000`."""
    if name == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and (name == "memory" or name.endswith("storage") or name.startswith("hugepages-")):
        for suffix, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return str(amount)


def format_resources(resources: Resources) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in sorted(resources.items())}


def add(a: Resources, b: Resources) -> dict[str, int]:
    total = dict(a)
    for name, amount in b.items():
        total[name] = total.get(name, 0) + amount
    return total


def subtract(a: Resources, b: Resources) -> dict[str, int]:
    """`a` less `b`, by name; names that only `b` has come out negative."""
    rest = dict(a)
    for name, amount in b.items():
        rest[name] = rest.get(name, 0) - amount
    return rest


def fits_within(wanted: Resources, room: Resources) -> bool:
    """Is there at least as much of everything wanted? What is not wanted does not matter."""
    return all(amount <= room.get(name, 0) for name, amount in wanted.items() if amount > 0)
