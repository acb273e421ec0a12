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


def kept_rows(packer: Packer) -> dict[int, Ints]:
    """Per bin, in their order, the options its claim keeps, cheapest first.

    Limits are charged with the largest type each keeps; a bin that cannot keep what its NodePool's minValues ask for
    gets what there is (see `unkeepable`).
    """
    universe = packer.universe
    left = [dict(limits) for limits in packer.limits]
    memo: dict[tuple[bytes, bytes, int], Ints] = {}
    wide_memo: dict[bytes, Ints] = {}
    kept: dict[int, Ints] = {}
    for index in packer.compact():
        option = int(packer.option[index])
        if universe.is_reserved[option]:
            kept[index] = np.array([option], dtype=np.int64)
            continue
        mask, used = packer.mask_of(index), packer.used(index)
        terms = universe.pools[universe.pool_of[option]]
        # Rows of a NodePool are in order of price: beyond the margin there is nothing to look at.
        last = terms.last
        if not terms.min_values:
            dearest = float(universe.price[option]) * (1 + PRICE_MARGIN)
            last = terms.first + int(np.searchsorted(universe.price[terms.first : terms.last], dearest, side="right"))
        span = slice(terms.first, max(last, option + 1))
        key = (np.packbits(mask[span]).tobytes(), used.tobytes(), option)
        rows = memo.get(key)
        if rows is None:
            fits = mask[span] & (universe.variant_of[span] == universe.variant_of[option]) & ~universe.is_reserved[span]
            for row in range(packer.resources):
                if used[row]:
                    fits &= packer.capacity[row, span] >= used[row]
            rows = np.flatnonzero(fits).astype(np.int64) + span.start
            memo[key] = rows
        text = rows.tobytes()
        wide = wide_memo.get(text)
        if wide is None:
            wide = _within_margin(packer, rows)
            wide_memo[text] = wide
        kept[index] = _within_limits(packer, option, rows, wide, left)
    return kept


def unkeepable(packer: Packer, kept: dict[int, Ints]) -> list[int]:
    """Bins whose limits leave too few options for minValues (where those are strict)."""
    if not packer.strict:
        return []
    found = []
    for index, rows in kept.items():
        if packer.universe.pools[packer.universe.pool_of[rows[0]]].min_values:
            mask = np.zeros(packer.universe.size, dtype=np.bool_)
            mask[rows] = True
            if not packer.keeps_min_values(mask):
                found.append(index)
    return found


def claims_of(packer: Packer, kept: dict[int, Ints]) -> list[PlannedClaim]:
    """The claims of a packing with the options that `kept_rows` found."""
    packer.assign()
    memo: dict[bytes, _Kept] = {}
    claims = []
    for index, rows in kept.items():
        text = rows.tobytes()
        known = memo.get(text)
        if known is None:
            known = _kept(packer, rows)
            memo[text] = known
        claims.append(_claim(packer, index, known))
    return claims


@dataclass(frozen=True, slots=True)
class _Kept:
    """What follows from the options alone."""

    template: PlannedClaim
    overhead: dict[str, int]


def _within_limits(packer: Packer, option: int, rows: Ints, wide: Ints, left: Sequence[dict[str, int]]) -> Ints:
    """Of the options wished for, those that can be kept although the claim is charged with the largest of them.

    Charges `left` for them; what minValues need comes first, out of all rows, by what it is charged.
    """
    universe = packer.universe
    pool = int(universe.pool_of[option])
    names = [name for name in left[pool] if name != "nodes"]
    if not names:
        return wide
    charged = {name: int(packer.charges[name][option]) for name in names}

    def afford(candidates: Ints) -> bool:
        more = {name: max(int(packer.charges[name][candidates].max()) - charged[name], 0) for name in names}
        if any(amount > left[pool][name] for name, amount in more.items() if amount):
            return False
        for name, amount in more.items():
            charged[name] += amount
            left[pool][name] -= amount
        return True

    if afford(wide):
        return wide
    kept = {option}
    columns = [(universe.column(key).codes, least) for key, least in universe.pools[pool].min_values.items()]
    charge = np.zeros(len(rows))
    for name in names:
        charge += packer.charges[name][rows] / max(int(packer.charges[name][rows].max()), 1)
    for row in rows[np.lexsort((rows, charge))].tolist() if columns else ():
        seen = [({int(codes[each]) for each in kept} - {-1}, codes, least) for codes, least in columns]
        if any(len(have) < least and int(codes[row]) not in have for have, codes, least in seen) and afford(
            np.array([row], dtype=np.int64)
        ):
            kept.add(row)
    kept.update(row for row in wide.tolist() if afford(np.array([row], dtype=np.int64)))
    return np.array(sorted(kept), dtype=np.int64)


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
