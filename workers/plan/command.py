"""`wainwright plan` from its options to its answer: what is read, solved, checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml
from rich.console import RenderableType

from wainwright.cloud.catalog import CatalogError, parse_packing_catalog
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.errors import WainwrightError
from wainwright.scheduling.checker import Violation, check
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Plan, SolveBudget, Unplaced
from wainwright.scheduling.solver import solve
from workers.plan.documents import STDIN, InputError, read_sources
from workers.plan.explain import explain, render_explanation
from workers.plan.findings import Findings
from workers.plan.inputs import CurrentCluster, PlanInput, assemble, empty_cluster
from workers.plan.manifests import sort_documents
from workers.plan.output import make_output
from workers.plan.render import render_plan
from workers.plan.scenario import load_scenario, plain_bytes

PLAN_BUDGET = SolveBudget(improvement_units=20_000_000, bound_rounds=100)
"""Ten times a live batch's, about five seconds for thousands of pods: nobody waits for these nodes."""


EXIT_PLACED = 0
EXIT_UNPLACED = 1
EXIT_INPUT = 2
EXIT_BROKEN = 70
"""EX_SOFTWARE of sysexits.h."""


class PlanOptions(NamedTuple):
    """manifests, node_pools: files, folders, `-`. catalog: a packing-catalog/v1 file; None: the simulated cloud's."""

    manifests: tuple[str, ...] = ()
    node_pools: str | None = None
    catalog: Path | None = None
    scenario: Path | None = None
    current: bool = False


class BrokenPlan(Exception):
    """The solver's plan does not hold: a fault of ours, not of the input. One line per violation."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__("\n".join(f"{v.rule} at {v.where}: {v.message}" for v in violations[:20]))
        self.violations = violations


def read_input(options: PlanOptions, stdin: Callable[[], bytes], current: Callable[[], CurrentCluster]) -> PlanInput:
    """What is to be planned. current: reads the running Wainwright, asked only where the options say so.

    Raises InputError: files that cannot be opened, a catalog or scenario that cannot be used, documents none of which
    can be used.
    """
    catalog = load_catalog(options.catalog) if options.catalog is not None else None
    if options.scenario is not None:
        return load_scenario(options.scenario, catalog)
    findings = Findings()
    sources = (*options.manifests, *([options.node_pools] if options.node_pools else []))
    manifests = sort_documents(read_sources(sources, stdin, findings), findings)
    if options.current:
        cluster = current()
        given = assemble(
            manifests,
            cluster.state,
            cluster.catalog_of if catalog is None else lambda _pool: catalog,
            findings,
            policies=cluster.policies,
            guess=False,
        )
    else:
        chosen = catalog if catalog is not None else generated_catalog()
        if catalog is None:
            findings.warn("no --catalog is given: types and prices are those of the simulated cloud")
        given = assemble(manifests, empty_cluster(), lambda _pool: chosen, findings)
    if findings.faults and not given.pods:
        raise InputError("\n".join(str(fault) for fault in findings.faults))
    return given


def load_catalog(path: Path) -> Catalog:
    """A packing-catalog/v1 file, plain or gzipped. Raises InputError."""
    try:
        return parse_packing_catalog(plain_bytes(path), str(path))
    except CatalogError as error:
        raise InputError(str(error)) from error


def make_plan(given: PlanInput, budget: SolveBudget = PLAN_BUDGET) -> Plan:
    """Solves, and has an independent checker look at the answer. Raises BrokenPlan when it finds anything."""
    plan = solve(given.snapshot, given.pods, given.snapshot.taken_at, budget)
    violations = check(given.snapshot, given.pods, plan)
    if violations:
        raise BrokenPlan(violations)
    if not given.refusals:
        return plan
    unplaced = tuple(Unplaced(pod=left.pod, reasons=(*left.reasons, *given.refusals)) for left in plan.unplaced)
    return msgspec.structs.replace(plan, unplaced=unplaced)


class Answer(NamedTuple):
    """What the command ends with. shown: for standard output, a text or something for rich; problem: for stderr."""

    status: int
    shown: str | RenderableType = ""
    problem: str = ""


def run_plan(
    options: PlanOptions,
    *,
    explained: str | None,
    form: str,
    stdin: Callable[[], bytes],
    current: Callable[[], CurrentCluster],
) -> Answer:
    """Reads, solves, checks and answers. explained: tell about this pod only. form: text, json or yaml.

    Statuses: EXIT_PLACED, EXIT_UNPLACED (of the pod explained, if there is one), EXIT_INPUT, EXIT_BROKEN.
    """
    if problem := _misused(options):
        return Answer(EXIT_INPUT, problem=problem)
    try:
        given = read_input(options, stdin, current)
        plan = make_plan(given)
        if explained is not None:
            found = explain(given, plan, explained)
            shown = render_explanation(found) if form == "text" else encoded(found, form)
            return Answer(EXIT_PLACED if found.placed else EXIT_UNPLACED, shown)
    except (InputError, WainwrightError) as error:
        return Answer(EXIT_INPUT, problem=str(error))
    except BrokenPlan as error:
        text = f"internal error: the plan breaks rules of its own input and is not shown; please report it\n{error}"
        return Answer(EXIT_BROKEN, problem=text)
    output = make_output(given, plan)
    shown = render_plan(given, plan, output) if form == "text" else encoded(output, form)
    return Answer(EXIT_UNPLACED if output.pod_errors else EXIT_PLACED, shown)


def _misused(options: PlanOptions) -> str:
    """What is wrong with the options taken together; empty: nothing."""
    if options.scenario is not None and (options.manifests or options.node_pools or options.current):
        return "--scenario brings everything but a catalog: leave out -f, --nodepools and --cluster"
    if not (options.manifests or options.node_pools or options.scenario or options.current):
        return "nothing to plan: give manifests with -f (a file, a folder, or - for standard input), or --scenario FILE"
    if (*options.manifests, options.node_pools).count(STDIN) > 1:
        return "standard input (-) can be read once only"
    return ""


def encoded(answer: object, form: str) -> str:
    """An answer as indented JSON, or as YAML."""
    text = msgspec.json.encode(answer)
    if form == "json":
        return msgspec.json.format(text, indent=2).decode() + "\n"
    return str(yaml.safe_dump(msgspec.json.decode(text), sort_keys=False, allow_unicode=True, width=100))
