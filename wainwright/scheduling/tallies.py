"""Counts of pods per domain, as spread, affinity and anti-affinity look at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wainwright.scheduling.groups import Group
from wainwright.scheduling.problem import Codes, Problem
from wainwright.scheduling.rules import Rule, RuleKind
from wainwright.scheduling.universe import Bools, Ints


@dataclass(slots=True, eq=False)
class Tally:
    """Pods of a population per domain of a key, as one kind of rule sees them; the last entry stands for "no domain".

    eligible: the domains that count (spread). options_in, nodes_in: the options and nodes whose pods count. pins: must
    whoever belongs to the population be in a domain that is known? filters: are any options or nodes left out?
    claimants: pods that demand affinity to this population, by domain they could go to; they decide where its first
    member goes.
    """

    population: int
    key: str
    counts: Ints
    eligible: Bools
    options_in: Bools
    nodes_in: Bools
    domains: Codes
    node_domains: Codes
    pins: bool
    filters: bool
    claimants: Ints | None = None

    def lowest(self, min_domains: int) -> int:
        """The fewest pods in a domain that counts; 0 where there are fewer domains than asked for."""
        number = int(self.eligible.sum())
        return int(self.counts[self.eligible].min()) if number and number >= min_domains else 0


class Tallies:
    """All tallies of a solve, and where pods are that refuse others."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._tallies: dict[object, Tally] = {}
        self._of_population: dict[int, list[Tally]] = {}
        self.owners: dict[tuple[int, str], Ints] = {}
        """By population and key: pods per domain whose required anti-affinity refuses its members."""
        for group in problem.groups:
            for rule in group.shape.rules:
                if not rule.by_host:
                    self.of_rule(rule, group)
        for (number, key), owners in problem.node_apart.items():
            if not Rule(RuleKind.ANTI_AFFINITY, key, number).by_host:
                table = problem.domains(key)
                counts = np.zeros(len(table.values) + 1, dtype=np.int64)
                np.add.at(counts, table.nodes, owners)
                counts[-1] = 0
                self.owners[number, key] = counts

    def of_rule(self, rule: Rule, group: Group) -> Tally:
        """The tally that a rule of a group looks at."""
        shape = group.shape
        spread = rule.kind is RuleKind.SPREAD
        terms = shape.terms if spread and rule.honor_affinity else None
        tolerations = shape.tolerations if spread and rule.honor_taints else None
        key = (rule.population, rule.key, spread, terms, tolerations)
        known = self._tallies.get(key)
        if known is None:
            known = self._new(rule, terms, tolerations)
            self._tallies[key] = known
            self._of_population.setdefault(rule.population, []).append(known)
        return known

    def of_members(self, group: Group) -> list[Tally]:
        """The tallies that count the pods of a group."""
        return [tally for number in group.shape.populations for tally in self._of_population.get(number, ())]

    def refusing(self, group: Group) -> list[tuple[Ints, str]]:
        """By key: how many pods per domain refuse the pods of a group."""
        mine = group.shape.populations
        return [(owners, key) for (number, key), owners in self.owners.items() if number in mine]

    def owners_of(self, rule: Rule) -> Ints:
        """Where the owners of a required anti-affinity are."""
        owners = self.owners.get((rule.population, rule.key))
        if owners is None:
            owners = np.zeros(len(self._problem.domains(rule.key).values) + 1, dtype=np.int64)
            self.owners[rule.population, rule.key] = owners
        return owners

    def _new(self, rule: Rule, terms: object, tolerations: object) -> Tally:
        problem = self._problem
        table = problem.domains(rule.key)
        options_in = np.ones(problem.universe.size, dtype=np.bool_)
        nodes_in = np.ones(problem.existing.size, dtype=np.bool_)
        if isinstance(terms, tuple):
            options_in = options_in & problem.universe.mask_of_terms(terms)
            nodes_in = nodes_in & problem.existing.mask_of_terms(terms)
        if isinstance(tolerations, tuple):
            by_taints = problem.label_masks(((),), tolerations, soft=False)
            options_in, nodes_in = options_in & by_taints[0], nodes_in & by_taints[1]
        size = len(table.values)
        eligible = np.zeros(size + 1, dtype=np.bool_)
        eligible[table.options[options_in]] = True
        eligible[table.nodes[nodes_in]] = True
        eligible[size] = False
        counts = np.zeros(size + 1, dtype=np.int64)
        members = problem.node_members.get(rule.population)
        if members is not None:
            np.add.at(counts, table.nodes[nodes_in], members[nodes_in])
        counts[size] = 0
        return Tally(
            population=rule.population,
            key=rule.key,
            counts=counts,
            eligible=eligible,
            options_in=options_in,
            nodes_in=nodes_in,
            domains=table.options,
            node_domains=table.nodes,
            pins=rule.kind is not RuleKind.SPREAD,
            filters=not (bool(options_in.all()) and bool(nodes_in.all())),
        )
