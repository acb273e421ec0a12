"""A price that no plan for these pods can be below.

Every option gets a value per unit of each resource such that its whole room is worth no more than its price; a pod is
then worth at least the least value of what it asks for over the options it may use, and all pods together are a lower
bound (linear programming duality: any such values give a valid bound, better ones a higher bound). Counted besides:
daemons, room on nodes that run, that a set of pods needs a number of nodes (host rules), and that a spread forces a
share of its pods into each domain. Not counted: that nodes come whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wainwright.scheduling.universe import Bools, Floats, Ints

CLOSE = 0.002
"""The ascent ends when the bound is within this share of the price."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Equal pods: how many, amounts per resource, columns of the options they may use, weight in the host set."""

    count: int
    sizes: tuple[int, ...]
    row: int
    host_weight: float = 0.0


def lower_bound(
    demands: Sequence[Demand],
    allowed: Bools,
    room: Ints,
    price: Floats,
    spare: Sequence[tuple[Ints, Bools]],
    target: float,
    rounds: int,
) -> float:
    """US dollars an hour. allowed: distinct sets of options x options; room: resources x options, net of daemons.

    spare: per kind of running node, the free room of all of them together and which demands may use it. target: the
    price of a plan; the search ends near it. rounds: steps of the ascent; the bound is valid after each.
    """
    if not demands or not len(price):
        return 0.0
    scale = np.maximum(room.max(axis=1), 1).astype(np.float64)
    hosts = np.array([demand.host_weight for demand in demands])
    use = np.concatenate([room / scale[:, None], np.ones((1, len(price)))])
    need = np.concatenate([np.array([d.sizes for d in demands], dtype=np.float64) / scale, hosts[:, None]], axis=1)
    counts = np.array([d.count for d in demands], dtype=np.float64)
    kinds, kind_of = np.unique(np.packbits(allowed, axis=0), axis=1, return_inverse=True)
    kind_of = kind_of.reshape(-1)
    open_to = np.zeros((len(allowed), kinds.shape[1]), dtype=np.bool_)
    for column, kind in enumerate(kind_of.tolist()):
        open_to[:, kind] |= allowed[:, column]
    usable = open_to[[d.row for d in demands]]
    rooms = [(np.append(free / scale, float(counts.sum())), fits) for free, fits in spare]
    members = [np.flatnonzero(kind_of == kind) for kind in range(kinds.shape[1])]
    total = (need * counts[:, None]).sum(axis=0)
    values = np.stack([_best_values(total, use[:, columns], price[columns]) for columns in members])
    best = 0.0
    for step in range(rounds):
        costs = np.where(usable, need @ values.T, np.inf)
        cheapest = costs.min(axis=1)
        bound = float(counts @ cheapest)
        left = counts.copy()
        for free, fits in rooms:
            worth, taken = _best_filling(np.where(fits, cheapest, 0.0), need, free)
            bound -= worth
            left -= taken
        best = max(best, bound)
        if best >= target * (1 - CLOSE):
            break
        heat = max(0.3 * 0.9**step, 0.002)
        weight = np.exp(-(costs - cheapest[:, None]) / np.maximum(cheapest[:, None] * heat, 1e-12))
        weight /= weight.sum(axis=1, keepdims=True)
        pull = (weight * np.maximum(left, 0.0)[:, None]).T @ need
        rate = 2.0 / (step + 3.0)
        for kind, columns in enumerate(members):
            if pull[kind].any():
                values[kind] += rate * (_best_values(pull[kind], use[:, columns], price[columns]) - values[kind])
    return max(best * (1 - 1e-9), 0.0)


def _best_values(pull: Floats, use: Floats, price: Floats) -> Floats:
    """The values >= 0 that make `pull` worth most while no option's room is worth more than its price.

    Found as the prices in the mirror problem (the cheapest mix of options that covers `pull`), which has as few rows
    as there are resources: simplex method, from a start that buys everything at a forbidding price.
    """
    rows = len(pull)
    forbidding = 1e4 * (float(price.max()) + 1.0)
    basis_cost = np.full(rows, forbidding)
    inverse = np.eye(rows)
    amount = np.maximum(pull, 0.0) + 1e-9 * np.arange(1, rows + 1)  # never quite zero: no stalling
    values = basis_cost.copy()
    for _ in range(60 * rows):
        values = basis_cost @ inverse
        gain = price - values @ use
        enter = int(np.argmin(gain))
        surplus = int(np.argmin(values))
        if gain[enter] >= -1e-12 and values[surplus] >= -1e-12:
            break
        if gain[enter] <= values[surplus]:
            column, cost = inverse @ use[:, enter], float(price[enter])
        else:
            column, cost = -inverse[:, surplus], 0.0
        positive = column > 1e-11
        if not positive.any():
            break
        ratio = np.where(positive, amount / np.where(positive, column, 1.0), np.inf)
        leave = int(np.argmin(ratio))
        height = float(ratio[leave])
        pivot = inverse[leave] / column[leave]
        inverse = inverse - np.outer(column, pivot)
        inverse[leave] = pivot
        amount = np.maximum(amount - column * height, 0.0)
        amount[leave] = height
        basis_cost[leave] = cost
    values = np.maximum(values, 0.0)
    worth: Floats = values @ use
    over = worth > price
    if over.any():  # stopped early, or rounding: stay on the safe side
        shrink = float((price[over] / worth[over]).min())
        return np.asarray(values * shrink, dtype=np.float64)
    return np.asarray(values, dtype=np.float64)


def _best_filling(worth: Floats, need: Floats, room: Floats) -> tuple[float, Floats]:
    """The most that a room can be worth when filled with (fractions of) pods, and how many of each that takes."""
    rows = len(room)
    inverse = np.eye(rows)
    amount = np.maximum(room, 0.0) + 1e-9 * np.arange(1, rows + 1)
    basis = np.full(rows, -1, dtype=np.int64)
    basis_worth = np.zeros(rows)
    for _ in range(40 * rows):
        values = basis_worth @ inverse
        gain = worth - need @ values
        enter, slack = int(np.argmax(gain)), int(np.argmin(values))
        if gain[enter] <= 1e-12 and values[slack] >= -1e-12:
            break
        if gain[enter] >= -values[slack]:
            column, number, value = inverse @ need[enter], enter, float(worth[enter])
        else:
            column, number, value = inverse[:, slack].copy(), -1, 0.0
        positive = column > 1e-11
        if not positive.any():
            break
        ratio = np.where(positive, amount / np.where(positive, column, 1.0), np.inf)
        leave = int(np.argmin(ratio))
        height = float(ratio[leave])
        pivot = inverse[leave] / column[leave]
        inverse = inverse - np.outer(column, pivot)
        inverse[leave] = pivot
        amount = np.maximum(amount - column * height, 0.0)
        amount[leave] = height
        basis[leave], basis_worth[leave] = number, value
    taken = np.zeros(len(worth))
    for row, number in enumerate(basis.tolist()):
        if number >= 0:
            taken[number] += amount[row]
    values = np.clip(basis_worth @ inverse, 0.0, None)
    short = worth - need @ values
    if (short > 1e-9).any():  # stopped early: prices that cover everything bound the worth from above
        covered = need @ values
        with np.errstate(divide="ignore", invalid="ignore"):
            grow = np.where(worth > 0, worth / covered, 0.0).max()
        if not np.isfinite(grow):
            return float((worth * np.where(worth > 0, 1e12, 0.0)).sum()), taken
        values = values * float(grow)
    return float(values @ np.maximum(room, 0.0)), taken
