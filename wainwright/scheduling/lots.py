"""What the packer moves about: pods that may go to the same options under the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wainwright.api.pods import Pod
from wainwright.scheduling.groups import Group
from wainwright.scheduling.rules import Rule, RuleKind
from wainwright.scheduling.universe import Bools


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules that hold within one node.

    at_most: (population, most) for hostname spread where the pods count themselves; spread_beside: (population, most)
    where they do not. apart: populations no member of which may be there, both ways; apart_soft: this way only.
    beside: populations of which a member must be there. member_of: populations these pods belong to that any such
    rule names. alone: one of these pods per node at most. exclusive: tokens (host ports) held by one pod a node.
    """

    at_most: tuple[tuple[int, int], ...] = ()
    spread_beside: tuple[tuple[int, int], ...] = ()
    apart: tuple[int, ...] = ()
    apart_soft: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    member_of: tuple[int, ...] = ()
    alone: bool = False
    exclusive: tuple[int, ...] = ()

    @property
    def most_per_host(self) -> int:
        """How many of these pods an empty node takes at most, by these rules."""
        most = min((m for _, m in self.at_most), default=1 << 40)
        return 1 if self.alone or self.exclusive else most


NO_RULES = HostRules()


@dataclass(slots=True, eq=False)
class Share:
    """Pods of one group that were dealt to one cell and need new nodes, or were put on an existing one.

    sizes: amounts per resource, in the universe's order. mask: the options they may be launched with, of which mask_id
    is the number. cell, level: where in the dealing they came from. relaxed: the preferences dropped for them.
    """

    group: Group
    sizes: tuple[int, ...]
    mask: Bools
    mask_id: int
    host: HostRules
    pods: list[Pod] = field(default_factory=list)
    relaxed: tuple[str, ...] = ()
    cell: int = -1
    level: int = 0
    lot: Lot | None = None


@dataclass(slots=True, eq=False)
class Lot:
    """Shares that packing cannot tell apart: same sizes, same options, same rules within a node."""

    index: int
    sizes: tuple[int, ...]
    mask: Bools
    mask_id: int
    host: HostRules
    shares: list[Share] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(len(share.pods) for share in self.shares)

    @property
    def pods(self) -> list[Pod]:
        """In the order in which they were dealt out; those left over when room is short are the last."""
        return [pod for share in self.shares for pod in share.pods]

    def drop_last(self, count: int) -> list[tuple[Share, list[Pod]]]:
        """Take the last `count` pods out of the lot again, by share."""
        dropped: list[tuple[Share, list[Pod]]] = []
        for share in reversed(self.shares):
            here = min(count, len(share.pods))
            if here:
                dropped.append((share, share.pods[len(share.pods) - here :]))
                del share.pods[len(share.pods) - here :]
                count -= here
        return dropped


def merged(shares: Sequence[Share], first: int) -> list[Lot]:
    """Shares as lots, numbered from `first` on, in the order of their first share."""
    lots: dict[tuple[int, tuple[int, ...], HostRules], Lot] = {}
    for share in shares:
        key = (share.mask_id, share.sizes, share.host)
        lot = lots.get(key)
        if lot is None:
            lot = Lot(first + len(lots), share.sizes, share.mask, share.mask_id, share.host)
            lots[key] = lot
        lot.shares.append(share)
        share.lot = lot
    return list(lots.values())


def host_rules(
    rules: Sequence[Rule],
    populations: Sequence[int],
    named: frozenset[int],
    exclusive: Sequence[int],
) -> HostRules:
    """The rules by hostname among `rules` (preferences tried as demands keep their weight).

    named: populations that any group's or running pod's rule by hostname speaks of.
    """
    mine = frozenset(populations)
    by_host = [rule for rule in rules if rule.by_host]
    if not by_host and not exclusive and not (mine & named):
        return NO_RULES
    spreads = [rule for rule in by_host if rule.kind is RuleKind.SPREAD]
    at_most: dict[int, int] = {}
    for rule in spreads:
        if rule.population in mine:
            at_most[rule.population] = min(at_most.get(rule.population, rule.max_skew), rule.max_skew)
    apart = [rule for rule in by_host if rule.kind is RuleKind.ANTI_AFFINITY]
    return HostRules(
        at_most=tuple(sorted(at_most.items())),
        spread_beside=tuple(sorted({(r.population, r.max_skew) for r in spreads if r.population not in mine})),
        apart=tuple(sorted({rule.population for rule in apart if not rule.is_soft})),
        apart_soft=tuple(sorted({rule.population for rule in apart if rule.is_soft})),
        beside=tuple(sorted({rule.population for rule in by_host if rule.kind is RuleKind.AFFINITY})),
        member_of=tuple(sorted(mine & named)),
        alone=any(rule.population in mine for rule in apart),
        exclusive=tuple(exclusive),
    )
