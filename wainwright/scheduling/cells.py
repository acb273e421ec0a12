"""Where a group's pods can go: combinations of the domains that rules look at, each with its options and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wainwright.scheduling.groups import Group
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.tallies import Tally
from wainwright.scheduling.universe import Bools, Ints
from wainwright.scheduling.variants import Variant


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """domains: one per key, -1 for none. counted: per filtered tally, does it count pods here? options: those that
    hold one of the pods, of which `number` is the number. nodes: existing ones. cost: the least price a pod can come to
    on a new node; inf without any.
    """

    identity: int
    domains: tuple[int, ...]
    counted: tuple[bool, ...]
    options: Bools
    number: int
    nodes: Ints
    cost: float


class Cells:
    """Works cells out, once for all groups that agree in labels, rules and sizes."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._accepts = problem.existing.accepts
        self._labelled: dict[object, tuple[Bools, Bools]] = {}
        self._plain: dict[object, tuple[int, Bools, Bools]] = {}
        self._raw: dict[object, list[tuple[tuple[int, ...], Bools, Ints]]] = {}
        self._fitted: dict[object, list[Cell]] = {}
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._costs: dict[tuple[tuple[int, ...], int], float] = {}

    def sizes(self, group: Group) -> tuple[int, ...]:
        """Amounts in the order of the universe's resources."""
        known = self._sizes.get(group.index)
        if known is None:
            known = tuple(group.sizes.get(name, 0) for name in self._problem.universe.resources)
            self._sizes[group.index] = known
        return known

    def reach(self, group: Group, variant: Variant) -> tuple[int, Bools, Bools]:
        """Number and set of the options that could hold one of the pods; existing nodes that let them in."""
        sizes = self.sizes(group)
        key = (_label_key(group, variant), sizes)
        known = self._plain.get(key)
        if known is None:
            options, nodes = self._by_labels(group, variant)
            number, mask = self._problem.interned(options & self._problem.fit_mask(sizes))
            known = (number, mask, nodes)
            self._plain[key] = known
        return known

    def of(self, group: Group, variant: Variant, keys: Sequence[str], filters: Sequence[Tally]) -> list[Cell]:
        """The cells of a group over the domains of some keys.

        filters: tallies that count only some nodes; a cell is counted by each of them as a whole or not at all.
        """
        sizes = self.sizes(group)
        key = (_label_key(group, variant), tuple(keys), tuple(id(each) for each in filters))
        known = self._fitted.get((key, sizes))
        if known is None:
            raw = self._raw.get(key)
            if raw is None:
                raw = self._split(keys, filters, *self._by_labels(group, variant))
                self._raw[key] = raw
            known = [
                cell for code, mask, nodes in raw if (cell := self._cell(keys, code, mask, nodes, sizes)) is not None
            ]
            self._fitted[key, sizes] = known
        return known

    def _by_labels(self, group: Group, variant: Variant) -> tuple[Bools, Bools]:
        problem, shape = self._problem, group.shape
        key = _label_key(group, variant)
        known = self._labelled.get(key)
        if known is None:
            options, nodes = problem.label_masks(shape.terms, shape.tolerations, soft=variant.soft_taints)
            for alternatives in (*variant.terms, *shape.volumes.places):
                options = options & problem.universe.mask_of_terms(alternatives)
                nodes = nodes & problem.existing.mask_of_terms(alternatives)
            known = (options, nodes & self._accepts)
            self._labelled[key] = known
        return known

    def _cell(
        self, keys: Sequence[str], code: tuple[int, ...], mask: Bools, nodes: Ints, sizes: tuple[int, ...]
    ) -> Cell | None:
        number, options = self._problem.interned(mask & self._problem.fit_mask(sizes))
        if not len(nodes) and not options.any():
            return None
        identity = 0
        spans = [len(self._problem.domains(key).values) + 2 for key in keys]
        for span, value in zip([*spans, *([3] * (len(code) - len(keys)))], code, strict=True):
            identity = identity * span + value + 1
        return Cell(
            identity=identity,
            domains=code[: len(keys)],
            counted=tuple(bool(bit) for bit in code[len(keys) :]),
            options=options,
            number=number,
            nodes=nodes,
            cost=self._unit_cost(sizes, number, options),
        )

    def _split(
        self, keys: Sequence[str], filters: Sequence[Tally], options: Bools, nodes: Bools
    ) -> list[tuple[tuple[int, ...], Bools, Ints]]:
        """Per combination of domains and filters: its code, its options, its existing nodes."""
        tables = [self._problem.domains(key) for key in keys]
        at_options, at_nodes = np.flatnonzero(options), np.flatnonzero(nodes)
        stacked = np.concatenate(
            [
                np.stack([*(t.options[at_options] for t in tables), *(f.options_in[at_options] for f in filters)]),
                np.stack([*(t.nodes[at_nodes] for t in tables), *(f.nodes_in[at_nodes] for f in filters)]),
            ],
            axis=1,
        )
        codes, numbers = np.unique(stacked, axis=1, return_inverse=True)
        numbers = numbers.reshape(-1)
        cells = []
        for cell in range(codes.shape[1]):
            mask = np.zeros(len(options), dtype=np.bool_)
            mask[at_options[numbers[: len(at_options)] == cell]] = True
            there = at_nodes[numbers[len(at_options) :] == cell]
            cells.append((tuple(int(c) for c in codes[:, cell]), mask, there.astype(np.int64)))
        return cells

    def _unit_cost(self, sizes: tuple[int, ...], number: int, options: Bools) -> float:
        """The least price a pod of these sizes can come to on a full node of these options; inf without any."""
        known = self._costs.get((sizes, number))
        if known is None:
            rows = np.flatnonzero(options)
            known = float("inf")
            if len(rows):
                universe = self._problem.universe
                share = np.zeros(len(rows))
                for name, size in zip(universe.resources, sizes, strict=True):
                    if size:
                        share = np.maximum(share, size / universe.allocatable[name][rows])
                known = float((universe.price[rows] * share).min())
            self._costs[sizes, number] = known
        return known


def _label_key(group: Group, variant: Variant) -> object:
    shape = group.shape
    return (shape.terms, shape.tolerations, shape.volumes.places, variant.terms, variant.soft_taints)
