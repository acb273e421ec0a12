"""Everything that could be launched in one solve, as columns: one row (an *option*) per way.

An option is a NodePool, an instance type, one of its offerings, and, where pods of this solve distinguish them, one
value of each label that NodePool or type leave open (a multi-valued custom label, the operating system). With that,
every rule about labels and taints becomes a boolean column, and what a claim may still become is the conjunction of
its pods' columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wainwright.api.daemonsets import DaemonSet
from wainwright.api.names import (
    ARCH_LABEL,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODEPOOL_LABEL,
    OS_LABEL,
    REGION_LABEL,
    RESERVED,
    WELL_KNOWN_LABELS,
    ZONE_LABEL,
)
from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Toleration
from wainwright.api.quantities import QuantityError, parse_quantity
from wainwright.scheduling.instance_types import Catalog, InstanceType, Offering, OfferingKey
from wainwright.scheduling.mentions import Mentions
from wainwright.scheduling.requests import spec_requests
from wainwright.scheduling.requirements import Requirement, RequirementError, equals, merged, requirement
from wainwright.scheduling.shapes import scheduling_terms
from wainwright.scheduling.taints import tolerates

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ENORMOUS = 1 << 60
"""No amount is larger: what goes beyond is cut to this, so that sums and products stay within 64 bits."""
ATTACHMENTS = "attachable-volumes/"
"""Prefix of the made-up resource that counts volumes of one driver; nodes not made yet have no limit of it."""
GENERATED = "wainwright-any"
"""Value given to a label that a NodePool demands without saying which values."""


@dataclass(frozen=True, slots=True)
class Column:
    """A label over all rows: codes index into values; -1 is a missing label."""

    codes: npt.NDArray[np.int32]
    values: tuple[str, ...]

    def admitted(self, wanted: Requirement) -> Bools:
        table = np.array([*(wanted.has(value) for value in self.values), wanted.absent], dtype=np.bool_)
        return table[self.codes]  # -1 takes the last entry


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of one catalog: every offering that can be had, cheapest first."""

    catalog: Catalog
    types: tuple[InstanceType, ...]
    offerings: tuple[Offering, ...]
    columns: dict[str, Column] = field(default_factory=dict)

    def column(self, key: str) -> Column:
        """Values that types and offerings fix; a type that runs several systems leaves OS_LABEL missing."""
        known = self.columns.get(key)
        if known is not None:
            return known
        region = self.catalog.region
        if key == ZONE_LABEL:
            raw: list[str | None] = [offering.zone for offering in self.offerings]
        elif key == CAPACITY_TYPE_LABEL:
            raw = [offering.capacity_type for offering in self.offerings]
        elif key == INSTANCE_TYPE_LABEL:
            raw = [kind.name for kind in self.types]
        elif key == ARCH_LABEL:
            raw = [kind.arch for kind in self.types]
        elif key == OS_LABEL:
            raw = [kind.os[0] if len(kind.os) == 1 else None for kind in self.types]
        elif key == REGION_LABEL:
            raw = [kind.labels.get(key, region) or None for kind in self.types]
        else:
            raw = [kind.labels.get(key) for kind in self.types]
        column = encoded(raw)
        self.columns[key] = column
        return column


def encoded(raw: Sequence[str | None]) -> Column:
    """Texts as codes; values in sorted order."""
    values = tuple(sorted({value for value in raw if value is not None}))
    index = {value: code for code, value in enumerate(values)}
    return Column(np.array([-1 if v is None else index[v] for v in raw], dtype=np.int32), values)


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """A NodePool as the solve uses it.

    requirements: by key, template labels included. open_values: values tried for each label left open.
    limits: what may still be added (limits less what its nodes have), by resource; `nodes` counts nodes. weight: tier.
    """

    pool: NodePool
    requirements: dict[str, Requirement]
    open_values: dict[str, tuple[str | None, ...]]
    limits: dict[str, int]
    weight: int
    min_values: dict[str, int]
    varied: tuple[str, ...]
    """Keys in which its rows differ although type and offering are the same."""
    first: int
    last: int
    """Its rows are first..last-1."""
    matching: int
    """Offerings of its catalog that its own requirements allow, sold out ones included."""


class Universe:
    """All options of a solve. Rows of a NodePool are contiguous, pools in priority order, cheapest first within.

    allocatable: per resource a column of what pods may use: the type's allocatable less the daemons that would run.
    """

    def __init__(
        self,
        pools: Sequence[NodePool],
        catalogs: Mapping[str, Catalog],
        *,
        daemon_sets: Iterable[DaemonSet] = (),
        unavailable: frozenset[OfferingKey] = frozenset(),
        mentions: Mentions | None = None,
        used: Mapping[str, Mapping[str, int]] | None = None,
        resources: Iterable[str] = (),
        sold_out_too: bool = False,
    ) -> None:
        mentions = mentions or Mentions()
        daemons = _daemons(daemon_sets)
        names = {"cpu", "memory", "pods", *resources}
        for daemon in daemons:
            names |= daemon.requests.keys()
        self.resources: tuple[str, ...] = tuple(sorted(names, key=_resource_order))
        self.well_known = WELL_KNOWN_LABELS.union(*(catalog.well_known for catalog in catalogs.values()))
        self._requirement_masks: dict[Requirement, Bools] = {}
        self._columns: dict[str, Column] = {}

        ordered = sorted(pools, key=lambda pool: pool.priority)
        tables: dict[int, _Table] = {}
        self._parts: list[tuple[_Table, Ints, dict[str, list[str | None]], dict[str, str]]] = []
        self.pools: list[PoolTerms] = []
        first = 0
        for pool in ordered:
            catalog = catalogs.get(pool.name, Catalog(version=""))
            table = tables.get(id(catalog))
            if table is None:
                table = _table(catalog, unavailable, sold_out_too=sold_out_too)
                tables[id(catalog)] = table
            terms, rows, variants, labels = _pool_rows(
                pool, table, catalog, mentions, (used or {}).get(pool.name, {}), first
            )
            self._parts.append((table, rows, variants, labels))
            self.pools.append(terms)
            first = terms.last
        self.size = first
        self._fill()
        self.overhead = self._daemon_overhead(daemons)
        self.allocatable: dict[str, Ints] = {name: self.gross[name] - self.overhead[name] for name in self.resources}

    def _number_variants(self) -> Ints:
        """Rows of one NodePool that agree in every label left open share a number: a claim stays within one."""
        numbers: dict[tuple[str | int | None, ...], int] = {}
        codes: list[int] = []
        for index, (_, rows, variants, _) in enumerate(self._parts):
            texts = [variants[key] for key in sorted(variants)]
            if not texts:
                codes.extend([numbers.setdefault((index,), len(numbers))] * len(rows))
                continue
            codes.extend(numbers.setdefault((index, *values), len(numbers)) for values in zip(*texts, strict=True))
        return np.array(codes, dtype=np.int64)

    def _fill(self) -> None:
        kinds: list[InstanceType] = []
        offerings: list[Offering] = []
        pool_index = np.zeros(self.size, dtype=np.int32)
        for index, ((table, rows, _, _), terms) in enumerate(zip(self._parts, self.pools, strict=True)):
            kinds.extend(table.types[row] for row in rows)
            offerings.extend(table.offerings[row] for row in rows)
            pool_index[terms.first : terms.last] = index
        self.kinds = kinds
        self.offerings = offerings
        self.pool_of = pool_index
        self.is_reserved: Bools = np.array([o.capacity_type == RESERVED for o in offerings], dtype=np.bool_)
        self.variant_of = self._number_variants()
        self.price: Floats = np.array([offering.price for offering in offerings], dtype=np.float64)
        by_kind: dict[int, dict[str, int]] = {}
        for kind in kinds:
            if id(kind) not in by_kind:
                by_kind[id(kind)] = kind.allocatable
        self.gross: dict[str, Ints] = {
            name: np.full(self.size, ENORMOUS >> 20, dtype=np.int64)
            if name.startswith(ATTACHMENTS)
            else np.array([min(max(by_kind[id(kind)].get(name, 0), 0), ENORMOUS) for kind in kinds], dtype=np.int64)
            for name in self.resources
        }

    def column(self, key: str) -> Column:
        """The label `key` over all options."""
        known = self._columns.get(key)
        if known is not None:
            return known
        raw: list[str | None] = []
        for (table, rows, variants, labels), terms in zip(self._parts, self.pools, strict=True):
            if key == NODEPOOL_LABEL:
                raw.extend([terms.pool.name] * len(rows))
            elif key in variants:
                raw.extend(variants[key])
            elif key in labels:
                raw.extend([labels[key]] * len(rows))
            else:
                column = table.column(key)
                raw.extend(column.values[code] if code >= 0 else None for code in column.codes[rows])
        column = encoded(raw)
        self._columns[key] = column
        return column

    def mask(self, wanted: Requirement) -> Bools:
        """The options whose labels satisfy one requirement."""
        known = self._requirement_masks.get(wanted)
        if known is None:
            known = self.column(wanted.key).admitted(wanted)
            known.setflags(write=False)
            self._requirement_masks[wanted] = known
        return known

    def mask_of_terms(self, terms: Iterable[Iterable[Requirement]]) -> Bools:
        """The options that satisfy every requirement of at least one term."""
        allowed = np.zeros(self.size, dtype=np.bool_)
        for term in terms:
            mask = np.ones(self.size, dtype=np.bool_)
            for wanted in term:
                mask &= self.mask(wanted)
            allowed |= mask
        return allowed

    def mask_of_pools(self, allowed: Sequence[bool]) -> Bools:
        """The options of the NodePools marked True (in the order of `pools`)."""
        if self.size == 0:
            return np.zeros(0, dtype=np.bool_)
        return np.array(allowed, dtype=np.bool_)[self.pool_of]

    def label(self, option: int, key: str) -> str | None:
        """The value that a node launched from this option carries."""
        column = self.column(key)
        code = column.codes[option]
        return column.values[code] if code >= 0 else None

    def _daemon_overhead(self, daemons: Sequence[Daemon]) -> dict[str, Ints]:
        overhead = {name: np.zeros(self.size, dtype=np.int64) for name in self.resources}
        for daemon in daemons:
            tolerated = [tolerates(daemon.tolerations, terms.pool.spec.template.spec.taints) for terms in self.pools]
            runs = self.mask_of_terms(daemon.terms) & self.mask_of_pools(tolerated)
            for name, amount in daemon.requests.items():
                overhead[name][runs] += min(amount, ENORMOUS >> 10)
        return overhead


@dataclass(frozen=True, slots=True)
class Daemon:
    """A DaemonSet as overhead: where it runs and what it takes there."""

    name: str
    namespace: str
    terms: tuple[tuple[Requirement, ...], ...]
    tolerations: tuple[Toleration, ...]
    requests: dict[str, int]


def _daemons(daemon_sets: Iterable[DaemonSet]) -> list[Daemon]:
    return [daemon for each in daemon_sets if (daemon := daemon_of(each)) is not None]


def daemon_of(daemon_set: DaemonSet) -> Daemon | None:
    """None for a DaemonSet that cannot be read: the API server would have refused it, its pods cannot exist."""
    spec = daemon_set.spec.template.spec
    try:
        return Daemon(
            name=daemon_set.metadata.name,
            namespace=daemon_set.metadata.namespace,
            terms=scheduling_terms(spec),
            tolerations=spec.tolerations,
            requests=spec_requests(spec),
        )
    except (QuantityError, RequirementError):
        return None


def _resource_order(name: str) -> tuple[int, str]:
    return ({"cpu": 0, "memory": 1, "pods": 2}.get(name, 3), name)


def _table(catalog: Catalog, unavailable: frozenset[OfferingKey], *, sold_out_too: bool) -> _Table:
    rows = [
        (offering.price, kind.name, offering.zone, offering.capacity_type, offering.reservation_id, index, offering)
        for index, kind in enumerate(catalog.instance_types)
        for offering in kind.offerings
        if math.isfinite(offering.price)
        and offering.price >= 0
        and (
            sold_out_too
            or (
                offering.available
                and (offering.capacity_type != RESERVED or offering.reservation_capacity > 0)
                and not (unavailable and _sold_out(unavailable, kind.name, offering))
            )
        )
    ]
    rows.sort(key=lambda row: row[:6])
    return _Table(
        catalog=catalog,
        types=tuple(catalog.instance_types[row[5]] for row in rows),
        offerings=tuple(row[6] for row in rows),
    )


def _sold_out(unavailable: frozenset[OfferingKey], kind: str, offering: Offering) -> bool:
    if OfferingKey(offering.capacity_type, kind, offering.zone) in unavailable:
        return True
    return any(
        each.capacity_type in ("*", offering.capacity_type)
        and each.instance_type in ("*", kind)
        and each.zone in ("*", offering.zone)
        for each in unavailable
        if "*" in (each.capacity_type, each.instance_type, each.zone)
    )


def pool_requirements(pool: NodePool) -> dict[str, Requirement]:
    """By key: the template's requirements and labels, and the pool's own name. Raises RequirementError."""
    template = pool.spec.template
    return merged(
        [
            *(requirement(r.key, r.operator, r.values, r.min_values) for r in template.spec.requirements),
            *(equals(key, value) for key, value in template.metadata.labels.items()),
            equals(NODEPOOL_LABEL, pool.name),
        ]
    )


def _pool_rows(
    pool: NodePool,
    table: _Table,
    catalog: Catalog,
    mentions: Mentions,
    used: Mapping[str, int],
    first: int,
) -> tuple[PoolTerms, Ints, dict[str, list[str | None]], dict[str, str]]:
    try:
        requirements = pool_requirements(pool)
    except RequirementError:
        requirements = {}
        broken = True
    else:
        broken = any(wanted.is_empty for wanted in requirements.values())
    well_known = WELL_KNOWN_LABELS | catalog.well_known
    allowed = np.full(len(table.types), not broken, dtype=np.bool_)
    labels: dict[str, str] = {}
    open_values: dict[str, tuple[str | None, ...]] = {}
    for key, wanted in requirements.items():
        if key == NODEPOOL_LABEL:
            continue
        column = table.column(key)
        given = column.codes >= 0
        if key == OS_LABEL:
            several = [any(wanted.has(system) for system in kind.os) for kind in table.types]
            allowed &= np.array(several, dtype=np.bool_)
        elif key in well_known:
            allowed &= column.admitted(wanted)
        else:
            allowed &= ~given | column.admitted(wanted)
            if given.all() and len(given):
                continue
            if not wanted.complement and len(wanted.values) == 1 and not wanted.absent:
                if given.any():
                    open_values[key] = (next(iter(wanted.values)),)
                else:
                    labels[key] = next(iter(wanted.values))
            elif key in mentions:
                open_values[key] = _tried_values(wanted, mentions.values(key))
    rows = np.flatnonzero(allowed).astype(np.int64)
    variants: dict[str, list[str | None]] = {}
    system = requirements.get(OS_LABEL)
    if OS_LABEL in mentions and any(len(table.types[row].os) > 1 for row in rows):
        rows, variants = _varied(
            rows,
            variants,
            OS_LABEL,
            [tuple(s for s in sorted(table.types[row].os) if system is None or system.has(s)) for row in rows],
        )
    for key, values in sorted(open_values.items()):
        column = table.column(key)
        fixed = [column.values[code] if code >= 0 else None for code in column.codes[rows]]
        rows, variants = _varied(rows, variants, key, [values if value is None else (value,) for value in fixed])
    terms = PoolTerms(
        pool=pool,
        requirements=requirements,
        open_values=open_values,
        limits=_remaining(pool, used),
        weight=pool.spec.weight or 0,
        min_values={k: r.min_values for k, r in requirements.items() if r.min_values is not None},
        varied=tuple(sorted(variants)),
        first=first,
        last=first + len(rows),
        matching=int(np.count_nonzero(allowed)),
    )
    return terms, rows, variants, labels


def _tried_values(wanted: Requirement, mentioned: Iterable[str]) -> tuple[str | None, ...]:
    if not wanted.complement:
        return tuple(sorted(wanted.values)) if wanted.values else (None,)
    values: list[str | None] = [*sorted({value for value in mentioned if wanted.has(value)})]
    other = GENERATED if wanted.has(GENERATED) else wanted.any_value()
    if other is not None and other not in values:
        values.append(other)
    if wanted.absent:
        values.append(None)
    return tuple(values)


def _varied(
    rows: Ints,
    variants: dict[str, list[str | None]],
    key: str,
    values: Sequence[Sequence[str | None]],
) -> tuple[Ints, dict[str, list[str | None]]]:
    """Repeat each row once per value of `key`."""
    counts = [len(each) for each in values]
    repeated = np.repeat(rows, counts)
    source = np.repeat(np.arange(len(rows)), counts)
    grown = {name: [texts[i] for i in source] for name, texts in variants.items()}
    grown[key] = [value for each in values for value in each]
    return repeated, grown


def _remaining(pool: NodePool, used: Mapping[str, int]) -> dict[str, int]:
    remaining: dict[str, int] = {}
    for name, quantity in pool.spec.limits.items():
        try:
            amount = parse_quantity(name, quantity, round_up=False)
        except (QuantityError, ArithmeticError):
            continue  # a NodePool like this does not validate and never gets here; ignoring one limit harms nobody
        remaining[name] = min(amount, ENORMOUS) - used.get(name, 0)
    return remaining
