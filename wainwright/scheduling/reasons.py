"""Why a pod has no place: per NodePool and per group of existing nodes, which rule refused it and how close it was."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import numpy as np

from wainwright.api.names import NODEPOOL_LABEL
from wainwright.scheduling.allocation import Allocation, Batch
from wainwright.scheduling.groups import Group
from wainwright.scheduling.packing import Packer
from wainwright.scheduling.plan import Reason, ReasonCode
from wainwright.scheduling.problem import Problem
from wainwright.scheduling.requirements import Requirement
from wainwright.scheduling.rules import RuleKind
from wainwright.scheduling.shapes import Term
from wainwright.scheduling.taints import taint_text, untolerated
from wainwright.scheduling.universe import Bools, Universe

TYPO_CPU_MILLI = 1_000_000 * 1000
"""A million cores: nobody means that; `M` was written where `m` was meant."""


def amount_text(name: str, amount: int) -> str:
    """An amount as a person reads it: cores, GiB, pieces."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name == "memory" or name.endswith("storage") or name.startswith("hugepages-"):
        for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(amount) >= size:
                return f"{amount / size:.4g} {unit}"
    return str(amount)


class Explainer:
    """Explains what was left over. Sold out offerings are looked at too: "none left" is not "never"."""

    def __init__(self, problem: Problem, packer: Packer, allocation: Allocation) -> None:
        self._problem = problem
        self._packer = packer
        self._allocation = allocation
        self._full: Universe = problem.make_universe(sold_out_too=True)

    def reasons(self, batch: Batch) -> tuple[Reason, ...]:
        """One reason per NodePool, in priority order, then one per kind of refusal by existing nodes."""
        group = batch.group
        pools = [self._of_pool(batch, index) for index in range(len(self._full.pools))]
        if not pools:
            pools = [
                Reason(where="nodepools", code=ReasonCode.NO_NODE_POOLS, message="there is no NodePool that is ready")
            ]
        return (*pools, *self._of_nodes(group))

    def _of_pool(self, batch: Batch, index: int) -> Reason:
        full, group = self._full, batch.group
        terms = full.pools[index]
        where = f"nodepool/{terms.pool.name}"
        if terms.matching == 0:
            return Reason(
                where=where,
                code=ReasonCode.NO_INSTANCE_TYPES,
                message="no instance type in the catalog meets the NodePool's own requirements",
            )
        refused = untolerated(group.shape.tolerations, terms.pool.spec.template.spec.taints)
        if refused:
            names = ", ".join(taint_text(taint) for taint in refused)
            return Reason(where=where, code=ReasonCode.TAINTS, message=f"does not tolerate its taint {names}")
        rows = np.zeros(full.size, dtype=np.bool_)
        rows[terms.first : terms.last] = True
        labelled = rows & full.mask_of_terms(group.shape.terms)
        if not labelled.any():
            return Reason(where=where, code=ReasonCode.REQUIREMENTS, message=self._unmet(group, rows))
        reachable = labelled.copy()
        for alternatives in group.shape.volumes.places:
            reachable &= full.mask_of_terms(alternatives)
        if not reachable.any():
            places = "; ".join(
                " or ".join(" and ".join(str(w) for w in term) for term in alternatives)
                for alternatives in group.shape.volumes.places
            )
            return Reason(where=where, code=ReasonCode.VOLUMES, message=f"its volumes can only be reached at {places}")
        fitting = reachable & self._holds_one(group)
        if not fitting.any():
            return Reason(where=where, code=ReasonCode.RESOURCES, message=self._too_large(group, reachable))
        return self._had_room(batch, index, where, fitting)

    def _holds_one(self, group: Group) -> Bools:
        fits = np.ones(self._full.size, dtype=np.bool_)
        for name, size in group.sizes.items():
            fits &= self._full.allocatable[name] >= size
        return fits

    def _had_room(self, batch: Batch, index: int, where: str, fitting: Bools) -> Reason:
        packer, universe, group = self._packer, self._problem.universe, batch.group
        terms = universe.pools[index]
        options, _ = self._allocation.reach(group)
        now = np.zeros(universe.size, dtype=np.bool_)
        now[terms.first : terms.last] = options[terms.first : terms.last]
        if not now.any():
            names = sorted({self._full.kinds[row].name for row in np.flatnonzero(fitting).tolist()})
            return Reason(
                where=where,
                code=ReasonCode.OFFERING,
                message=f"every offering that would do is sold out for now: {_some(names)}",
            )
        if batch.blocked is not None:
            return Reason(where=where, code=batch.blocked, message=batch.blocked_by)
        if batch.waits_for_reserved:
            return Reason(
                where=where,
                code=ReasonCode.RESERVED,
                message="the reserved capacity that would do is taken by other pods of this plan; it waits for more",
            )
        left = packer.limits[index]
        for name in sorted(left):
            need = 1 if name == "nodes" else int(packer.charges[name][now].min())
            if need > left[name]:
                total = terms.pool.spec.limits[name]
                kind = "" if name == "nodes" else f", the smallest type that holds it has {amount_text(name, need)}"
                return Reason(
                    where=where,
                    code=ReasonCode.LIMITS,
                    message=f"limit {name} {total} is reached: {amount_text(name, max(left[name], 0))} left{kind}",
                )
        if terms.min_values and not packer.keeps_min_values(now):
            wanted = ", ".join(f"{least} of {key}" for key, least in sorted(terms.min_values.items()))
            return Reason(
                where=where,
                code=ReasonCode.MIN_VALUES,
                message=f"too few types hold it to keep the NodePool's minValues ({wanted}) open",
            )
        if group.shape.rules:
            code = {
                RuleKind.SPREAD: ReasonCode.TOPOLOGY_SPREAD,
                RuleKind.AFFINITY: ReasonCode.POD_AFFINITY,
                RuleKind.ANTI_AFFINITY: ReasonCode.POD_ANTI_AFFINITY,
            }[group.shape.rules[0].kind]
            rules = ", ".join(sorted({f"{rule.kind} by {rule.key}" for rule in group.shape.rules}))
            return Reason(where=where, code=code, message=f"no new node of it would satisfy its {rules}")
        return Reason(
            where=where,
            code=ReasonCode.LIMITS,
            message="its limits leave room for no type that would hold it",
        )

    def _unmet(self, group: Group, rows: Bools) -> str:
        if not group.shape.terms:
            return "its required node affinity lists no term, which no node meets"
        texts = []
        for term in group.shape.terms:
            text = self._unmet_term(term, rows)
            if text not in texts:
                texts.append(text)
        return "; or ".join(texts)

    def _unmet_term(self, term: Term, rows: Bools) -> str:
        for wanted in term:
            if wanted.is_empty:
                return f"contradicts itself: nothing satisfies all it demands of label {wanted.key}"
        for wanted in term:
            if not (self._full.mask(wanted) & rows).any():
                return self._unmet_label(wanted, rows)
        return "no instance type meets all at once of: " + "; ".join(str(wanted) for wanted in term)

    def _unmet_label(self, wanted: Requirement, rows: Bools) -> str:
        column = self._full.column(wanted.key)
        codes = np.unique(column.codes[rows])
        values = [column.values[code] for code in codes.tolist() if code >= 0]
        if values:
            return f"needs {wanted}; there it is {_some(values)}"
        if len(column.values):
            return f"needs {wanted}; its nodes do not carry that label"
        hint = _near(wanted.key, self._known_keys())
        return f"needs {wanted}; label {wanted.key!r} is not known to any NodePool or instance type{hint}"

    def _known_keys(self) -> list[str]:
        keys = set(self._full.well_known) | {NODEPOOL_LABEL}
        for terms in self._full.pools:
            keys |= terms.requirements.keys()
        return sorted(keys)

    def _too_large(self, group: Group, rows: Bools) -> str:
        full = self._full
        at = np.flatnonzero(rows)
        lacking = []
        for name, size in sorted(group.sizes.items(), key=lambda item: full.resources.index(item[0])):
            column = full.allocatable[name][at]
            if size and int(column.max()) < size:
                best = int(at[int(column.argmax())])
                text = f"needs {_named(name, size)}, the largest type allowed has "
                text += f"{amount_text(name, max(int(full.allocatable[name][best]), 0))} allocatable"
                if full.overhead[name][best]:
                    text += f" beside daemons that take {amount_text(name, int(full.overhead[name][best]))}"
                text += f" ({full.kinds[best].name})"
                if name == "cpu" and size >= TYPO_CPU_MILLI:
                    text += "; is `m` meant where `M` is written?"
                lacking.append(text)
        if lacking:
            return "; ".join(lacking)
        wants = ", ".join(_named(name, size) for name, size in sorted(group.sizes.items()) if name != "pods")
        shares = sum(
            (np.maximum(size - full.allocatable[name][at], 0) / max(size, 1) for name, size in group.sizes.items()),
            start=np.zeros(len(at)),
        )
        nearest = int(at[int(np.argmin(shares))])
        missing = ", ".join(
            f"{amount_text(name, size - int(full.allocatable[name][nearest]))} {name}"
            for name, size in sorted(group.sizes.items())
            if size > int(full.allocatable[name][nearest])
        )
        return f"no type allowed has all of {wants} at once; the nearest, {full.kinds[nearest].name}, lacks {missing}"

    def _of_nodes(self, group: Group) -> list[Reason]:
        existing = self._problem.existing
        counts: dict[tuple[ReasonCode, str], int] = {}
        nearest: dict[tuple[ReasonCode, str], tuple[int, str]] = {}
        labelled = existing.mask_of_terms(group.shape.terms)
        for index, node in enumerate(existing.nodes):
            if not node.accepts:
                continue
            refused = untolerated(group.shape.tolerations, existing.taints[index])
            if refused:
                key = (ReasonCode.TAINTS, f"tainted {', '.join(taint_text(taint) for taint in refused)}")
            elif not labelled[index]:
                key = (ReasonCode.REQUIREMENTS, self._node_mismatch(group, index))
            else:
                short = self._shortage(group, index)
                if short is None:
                    key = (self._rule_code(group), "refused by its rules about other pods")
                    counts[key] = counts.get(key, 0) + 1
                    continue
                name, missing = short
                key = (ReasonCode.RESOURCES, name)
                if key not in nearest or (missing, node.name) < nearest[key]:
                    nearest[key] = (missing, node.name)
            counts[key] = counts.get(key, 0) + 1
        reasons = []
        for key, count in counts.items():
            code, text = key
            nodes = f"{count} node{'' if count == 1 else 's'}"
            if code is ReasonCode.RESOURCES:
                missing, name = nearest[key]
                verb = "lacks" if count == 1 else "lack"
                text = f"{nodes} {verb} {text} (the nearest, {name}: {amount_text(text, missing)} short)"
            else:
                text = f"{nodes} {text}"
            reasons.append(Reason(where="nodes", code=code, message=text, count=count))
        return reasons

    @staticmethod
    def _rule_code(group: Group) -> ReasonCode:
        if group.shape.ports:
            return ReasonCode.HOST_PORTS
        kinds = {rule.kind for rule in group.shape.rules if not rule.is_soft}
        if RuleKind.AFFINITY in kinds:
            return ReasonCode.POD_AFFINITY
        return ReasonCode.TOPOLOGY_SPREAD if RuleKind.SPREAD in kinds else ReasonCode.POD_ANTI_AFFINITY

    def _node_mismatch(self, group: Group, index: int) -> str:
        labels = self._problem.existing.labels[index]
        for term in group.shape.terms:
            for wanted in term:
                if not wanted.has(labels.get(wanted.key)):
                    return f"without {wanted}"
        return "outside its required node affinity"

    def _shortage(self, group: Group, index: int) -> tuple[str, int] | None:
        hosts, names = self._allocation.hosts, self._problem.universe.resources
        free: Mapping[str, int] = {name: int(hosts.free[row, index]) for row, name in enumerate(names)}
        for name, size in sorted(group.sizes.items(), key=lambda item: self._full.resources.index(item[0])):
            if size > free.get(name, 0) and size:
                return name, size - free.get(name, 0)
        return None


def _named(name: str, amount: int) -> str:
    return f"{name} {amount_text(name, amount)}"


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _near(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    if not close:
        tails = [name for name in known if name.rpartition("/")[2] == key.rpartition("/")[2]]
        close = tails[:1]
    return f", did you mean {close[0]!r}?" if close else ""
