"""Bins become claims: which options each keeps, what it is charged, what it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from wainwright.api.names import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODEPOOL_LABEL,
    ZONE_LABEL,
)
from wainwright.api.nodepools import NodeSelectorRequirement
from wainwright.scheduling.packing import Packer
from wainwright.scheduling.plan import PlannedClaim
from wainwright.scheduling.requirements import Requirement, requirement
from wainwright.scheduling.snapshot import Option
from wainwright.scheduling.universe import ATTACHMENTS, Ints

PRICE_MARGIN: Final = 0.15
"""A claim keeps what costs up to this share more than its cheapest option: a shortage in one does not fail it."""
MOST_TYPES: Final = 60
"""EC2 Fleet takes no more instance types in one request."""


def claims_of(packer: Packer) -> list[PlannedClaim]:
    """The claims of a packing, in the order of its bins. Limits are charged anew, with the largest type kept."""
    packer.assign()
    left = [dict(limits) for limits in packer.limits]
    universe = packer.universe
    rows_memo: dict[tuple[bytes, bytes, int], Ints] = {}
    kept_memo: dict[bytes, _Kept] = {}
    claims = []
    for index in packer.compact():
        option = int(packer.option[index])
        mask, used = packer.mask_of(index), packer.used(index)
        terms = universe.pools[universe.pool_of[option]]
        # Rows of a NodePool are in order of price: beyond the margin there is nothing to look at.
        last = terms.last
        if not terms.min_values:
            dearest = float(universe.price[option]) * (1 + PRICE_MARGIN)
            last = terms.first + int(np.searchsorted(universe.price[terms.first : terms.last], dearest, side="right"))
        span = slice(terms.first, max(last, option + 1))
        key = (np.packbits(mask[span]).tobytes(), used.tobytes(), option)
        rows = rows_memo.get(key)
        if rows is None:
            fits = mask[span] & (universe.variant_of[span] == universe.variant_of[option])
            for row in range(packer.resources):
                if used[row]:
                    fits &= packer.capacity[row, span] >= used[row]
            rows = np.flatnonzero(fits).astype(np.int64) + span.start
            rows_memo[key] = rows
        rows = _within_limits(packer, option, rows, left)
        text = rows.tobytes()
        kept = kept_memo.get(text)
        if kept is None:
            kept = _kept(packer, _within_margin(packer, rows))
            kept_memo[text] = kept
        claims.append(_claim(packer, index, kept))
    return claims


@dataclass(frozen=True, slots=True)
class _Kept:
    """What follows from the options alone."""

    template: PlannedClaim
    overhead: dict[str, int]


def _within_limits(packer: Packer, option: int, rows: Ints, left: Sequence[dict[str, int]]) -> Ints:
    """Rows that can be kept although the claim is charged with the largest of them; charges `left` for them."""
    universe = packer.universe
    pool = int(universe.pool_of[option])
    if universe.is_reserved[option]:
        return np.array([option], dtype=np.int64)
    rows = rows[~universe.is_reserved[rows]]
    names = [name for name in left[pool] if name != "nodes"]
    if not names:
        return rows
    dearest = float(universe.price[option]) * (1 + PRICE_MARGIN)
    picky = bool(universe.pools[pool].min_values)
    charged = {name: int(packer.charges[name][option]) for name in names}
    affordable = rows if picky else rows[(universe.price[rows] <= dearest) | (rows == option)]
    most = {name: max(int(packer.charges[name][affordable].max()) - charged[name], 0) for name in names}
    if all(amount <= left[pool][name] for name, amount in most.items()):
        for name, amount in most.items():
            left[pool][name] -= amount
        return affordable
    kept = []
    for row in rows.tolist():
        if row != option and universe.price[row] > dearest and not picky:
            continue
        more = {name: max(int(packer.charges[name][row]) - charged[name], 0) for name in names}
        if all(amount <= left[pool][name] for name, amount in more.items()):
            kept.append(row)
            for name, amount in more.items():
                charged[name] += amount
                left[pool][name] -= amount
    return np.array(kept, dtype=np.int64)


def _within_margin(packer: Packer, rows: Ints) -> Ints:
    """Cheapest first, within the price margin and the number of types, but never fewer than minValues asks for."""
    universe = packer.universe
    limit = universe.price[rows[0]] * (1 + PRICE_MARGIN)
    minimum = universe.pools[universe.pool_of[rows[0]]].min_values
    kept: list[int] = []
    types: set[str] = set()
    seen: dict[str, set[int]] = {key: set() for key in minimum}
    columns = {key: universe.column(key).codes for key in minimum}
    for row in rows.tolist():
        kind = universe.kinds[row].name
        wide = universe.price[row] <= limit and (kind in types or len(types) < MOST_TYPES)
        needed = any(
            len(seen[key]) < least and columns[key][row] >= 0 and int(columns[key][row]) not in seen[key]
            for key, least in minimum.items()
        )
        if not wide and not needed:
            continue
        kept.append(row)
        types.add(kind)
        for key in minimum:
            if columns[key][row] >= 0:
                seen[key].add(int(columns[key][row]))
    return np.array(kept, dtype=np.int64)


def _kept(packer: Packer, rows: Ints) -> _Kept:
    universe = packer.universe
    terms = universe.pools[universe.pool_of[rows[0]]]
    template = terms.pool.spec.template
    first = int(rows[0])
    options = tuple(
        Option(
            instance_type=universe.kinds[row].name,
            zone=universe.offerings[row].zone,
            capacity_type=universe.offerings[row].capacity_type,
            price=universe.offerings[row].price,
            reservation_id=universe.offerings[row].reservation_id,
        )
        for row in rows.tolist()
    )
    labels = dict(template.metadata.labels)
    labels[NODEPOOL_LABEL] = terms.pool.name
    for key in terms.varied:
        value = universe.label(first, key)
        if value is not None:
            labels[key] = value
    for key, wanted in terms.requirements.items():
        if key in (ZONE_LABEL, CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL) or key in labels:
            continue
        if key in universe.well_known:
            continue
        value = universe.label(first, key)
        if value is None and key not in terms.varied:
            value = wanted.any_value()
        if value is not None:
            labels[key] = value
    names = sorted({name for row in rows.tolist() for name in universe.kinds[row].capacity})
    kinds = list({universe.kinds[row].name: universe.kinds[row] for row in rows.tolist()}.values())
    template_claim = PlannedClaim(
        node_pool=terms.pool.name,
        pods=(),
        options=options,
        requirements=_requirements(terms.requirements, labels, options),
        labels=labels,
        taints=template.spec.taints,
        startup_taints=template.spec.startup_taints,
        capacity={name: max(kind.capacity.get(name, 0) for kind in kinds) for name in names},
        allocatable={
            name: min(kind.capacity.get(name, 0) - kind.overhead.get(name, 0) for kind in kinds) for name in names
        },
    )
    return _Kept(template_claim, {name: int(universe.overhead[name][rows].max()) for name in universe.resources})


def _claim(packer: Packer, index: int, kept: _Kept) -> PlannedClaim:
    requests = {
        name: amount
        for name, used in zip(packer.universe.resources, packer.used(index).tolist(), strict=True)
        if not name.startswith(ATTACHMENTS) and (amount := used + kept.overhead[name])
    }
    pods = tuple(pod.uid for pod in packer.pods_of(index))
    return msgspec.structs.replace(kept.template, pods=pods, requests=dict(sorted(requests.items())))


def _requirements(
    pool: dict[str, Requirement], labels: dict[str, str], options: Sequence[Option]
) -> tuple[NodeSelectorRequirement, ...]:
    """The NodePool's demands narrowed to what the claim keeps; by key."""
    narrowed = dict(pool)
    for key, value in labels.items():
        narrowed[key] = _narrow(pool.get(key), key, (value,))
    narrowed[INSTANCE_TYPE_LABEL] = _narrow(
        pool.get(INSTANCE_TYPE_LABEL), INSTANCE_TYPE_LABEL, {o.instance_type for o in options}
    )
    narrowed[ZONE_LABEL] = _narrow(pool.get(ZONE_LABEL), ZONE_LABEL, {o.zone for o in options})
    narrowed[CAPACITY_TYPE_LABEL] = _narrow(
        pool.get(CAPACITY_TYPE_LABEL), CAPACITY_TYPE_LABEL, {o.capacity_type for o in options}
    )
    return tuple(part for key in sorted(narrowed) for part in narrowed[key].selectors())


def _narrow(wanted: Requirement | None, key: str, values: Sequence[str] | set[str]) -> Requirement:
    least = wanted.min_values if wanted is not None else None
    return requirement(key, "In", tuple(sorted(values)), least)
