"""The options worth looking at for a set of lots: those that no other one beats in every respect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wainwright.scheduling.lots import Lot
from wainwright.scheduling.universe import Bools, Floats, Ints, Universe


class Menu:
    """options: rows of the universe, cheapest first. allowed: one row per distinct set of options among the lots
    (`row_of[mask_id]`), one column per option on the menu. room: resources x options; inverse: 1 / room.
    """

    def __init__(self, universe: Universe, lots: Sequence[Lot], within: Bools, charged: Sequence[Ints]) -> None:
        masks: dict[int, Bools] = {}
        for lot in lots:
            masks.setdefault(lot.mask_id, lot.mask)
        self.row_of = {mask_id: row for row, mask_id in enumerate(masks)}
        stacked = np.array(list(masks.values())) if masks else np.zeros((0, universe.size), dtype=np.bool_)
        useful = np.flatnonzero(within & stacked.any(axis=0)) if len(stacked) else np.zeros(0, dtype=np.int64)
        room = np.stack([universe.allocatable[name] for name in universe.resources])
        self.options: Ints = _undominated(universe, useful, stacked, room, charged)
        self.price: Floats = universe.price[self.options]
        self.room: Ints = room[:, self.options]
        with np.errstate(divide="ignore"):
            self.inverse: Floats = np.where(self.room > 0, 1.0 / np.maximum(self.room, 1), np.inf)
        self.allowed: Bools = stacked[:, self.options]

    def values(self, lots: Sequence[Lot]) -> Floats:
        """Per lot, the least price one of its pods can come to: its share of the option that suits it best.

        The share is that of the resource it takes most of. inf where nothing on the menu holds one.
        """
        result = np.full(len(lots), np.inf)
        by_row: dict[int, list[int]] = {}
        for index, lot in enumerate(lots):
            by_row.setdefault(self.row_of[lot.mask_id], []).append(index)
        for row, members in by_row.items():
            columns = np.flatnonzero(self.allowed[row])
            if not len(columns):
                continue
            sizes = np.array([lots[index].sizes for index in members], dtype=np.float64)
            share = np.zeros((len(members), len(columns)))
            for resource in range(sizes.shape[1]):
                if sizes[:, resource].any():
                    with np.errstate(invalid="ignore"):
                        each = sizes[:, resource, None] * self.inverse[resource, columns][None, :]
                    np.fmax(share, each, out=share)
            cost = np.where(share <= 1.0 + 1e-12, share * self.price[columns][None, :], np.inf)
            result[members] = cost.min(axis=1)
        return result


def _undominated(universe: Universe, rows: Ints, masks: Bools, room: Ints, charged: Sequence[Ints]) -> Ints:
    """Rows in order of price, less those for which an equally usable row has no less of anything and costs no more.

    charged: columns that count against limits; a dominating row must not be charged more.
    """
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows, universe.price[rows]))]
    signature = np.packbits(masks[:, rows], axis=0)
    keys = np.concatenate(
        [
            signature.astype(np.int64),
            universe.variant_of[rows][None, :],
            np.where(universe.is_reserved[rows], rows, -1)[None, :],
        ]
    )
    _, numbers = np.unique(keys, axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    kept: list[int] = []
    columns = np.concatenate([room[:, rows], *(-column[rows][None, :] for column in charged)])
    for number in range(int(numbers.max()) + 1):
        members = np.flatnonzero(numbers == number)
        best = np.empty((columns.shape[0], len(members)), dtype=np.int64)
        count = 0
        for at in members.tolist():
            mine = columns[:, at : at + 1]
            if count and bool((best[:, :count] >= mine).all(axis=0).any()):
                continue
            best[:, count] = mine[:, 0]
            count += 1
            kept.append(at)
    return rows[np.array(sorted(kept), dtype=np.int64)]
