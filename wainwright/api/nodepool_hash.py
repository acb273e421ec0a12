"""What makes two versions of a NodePool the same: order and repetition in lists do not, nor does status."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from wainwright.api.nodepools import NodePool
from wainwright.api.quantities import QuantityError, parse_quantity

HASH_VERSION: Final = "w1"
"""Changes when the same NodePool would get another hash; then nothing may be concluded from a difference."""


def effective_spec_hash(node_pool: NodePool, catalog_version: str = "") -> str:
    """Digest of all that decides what the pool's nodes are: its whole spec, and the catalog it draws from.

    Apply is a no-op while it stays the same. A re-created pool with the same spec has the same hash: compare UIDs too.
    """
    limits = {name: _amount(name, quantity) for name, quantity in node_pool.spec.limits.items()}
    spec = msgspec.structs.replace(node_pool.spec, limits=limits)
    return _digest({"spec": spec, "catalog": catalog_version})


def template_hash(node_pool: NodePool) -> str:
    """Digest of what nodes are made from and keep: labels, annotations, taints, NodeClass, lifetimes.

    A node whose NodePool has another one has drifted. Requirements are left out: nodes are held against them directly.
    """
    template = node_pool.spec.template
    without_requirements = msgspec.structs.replace(template.spec, requirements=())
    return _digest(msgspec.structs.replace(template, spec=without_requirements))


def _digest(value: object) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()[:16]


def _canonical(value: object) -> bytes:
    """The same bytes for values that differ only in order, in repetition in lists, or in defaults said.

    Structs are written out with every field, so that one left at its default and one set to it are the same.
    """
    if isinstance(value, msgspec.Struct):
        value = {field.name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    if isinstance(value, dict):
        return (
            b"{" + b",".join(msgspec.json.encode(key) + b":" + _canonical(value[key]) for key in sorted(value)) + b"}"
        )
    if isinstance(value, list | tuple):
        return b"[" + b",".join(sorted({_canonical(item) for item in value})) + b"]"
    return msgspec.json.encode(value)


def _amount(name: str, quantity: str | float) -> str:
    """`1` and `1000m` are the same limit; what cannot be read counts as it is written."""
    try:
        return str(parse_quantity(name, quantity))
    except QuantityError:
        return str(quantity)
