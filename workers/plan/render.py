"""A plan for people: nodes with their fill, money, and what to look at, in 80 columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wainwright.api.pods import Pod
from wainwright.api.quantities import QuantityError, add
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.plan import Plan, Reason
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.snapshot import NodeState
from workers.plan.inputs import PlanInput
from workers.plan.output import Output

WIDTH = 80
HOURS_A_MONTH = 730
MOST_ROWS = 20
"""More nodes than this are shown by type, zone and capacity type, with their average fill."""
MOST_NAMES = 6
_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_CELLS = 6


class _Row(NamedTuple):
    """Equal nodes in one line. cpu, memory: share in use, 0 to 1."""

    kind: str
    zone: str
    capacity_type: str
    price: float
    cpu: float
    memory: float
    pods: float


def bar(share: float, cells: int = _BAR_CELLS) -> str:
    """A share of 0 to 1 as a bar with eighths of a cell, and in per cent; what is over is shown as full."""
    eighths = round(min(max(share, 0.0), 1.0) * cells * 8)
    full, rest = divmod(eighths, 8)
    blocks = "█" * full + (_BLOCKS[rest] if rest else "")
    return f"{blocks:·<{cells}}{share * 100:4.0f}%"


def render_plan(given: PlanInput, plan: Plan, output: Output) -> RenderableType:
    """The whole answer. Parts without content are left out."""
    parts: list[RenderableType] = [Text(headline(output), style="bold"), *_new_nodes(given, plan)]
    parts += _existing(given, plan)
    parts += _money(output)
    parts += _unplaced(output)
    parts += _relaxed(output)
    if not output.complete:
        parts += ["", Text("The solver's budget ran out: the plan is valid, and not as cheap as it could be.")]
    parts += warnings_part(output.warnings)
    return Group(*parts)


def headline(output: Output) -> str:
    """One sentence with all counts."""
    summary = output.summary
    texts = []
    if summary.claims:
        texts.append(f"{_many(summary.claims, 'new node')} for {_many(summary.pods_on_new, 'pod')}")
    if summary.pods_on_existing:
        texts.append(f"{_many(summary.pods_on_existing, 'pod')} on nodes that exist")
    if summary.pod_errors:
        texts.append(f"{_many(summary.pod_errors, 'pod')} not placed")
    title = f"{output.scenario}: " if output.scenario else ""
    return title + (", ".join(texts) or "nothing to do")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def _new_nodes(given: PlanInput, plan: Plan) -> list[RenderableType]:
    rows: dict[str, list[_Row]] = defaultdict(list)
    for claim in plan.claims:
        first = claim.options[0]
        sizes = _sizes(given.snapshot.catalogs.get(claim.node_pool), first.instance_type)
        rows[claim.node_pool].append(
            _Row(
                first.instance_type,
                first.zone,
                first.capacity_type,
                first.price,
                _share(claim.requests, sizes, "cpu"),
                _share(claim.requests, sizes, "memory"),
                len(claim.pods),
            )
        )
    parts: list[RenderableType] = []
    for pool, found in rows.items():
        price = sum(row.price for row in found)
        parts += ["", Text(f"NodePool {pool}: {_many(len(found), 'node')}, {dollars(price)} $/h")]
        parts.append(_table(_lines(found)))
    return parts


def _sizes(catalog: Catalog | None, kind: str) -> Mapping[str, int]:
    found = next((each for each in catalog.instance_types if each.name == kind), None) if catalog is not None else None
    return found.allocatable if found is not None else {}


def _share(used: Mapping[str, int], room: Mapping[str, int], name: str) -> float:
    return used.get(name, 0) / room[name] if room.get(name, 0) > 0 else 0.0


def _lines(rows: Sequence[_Row]) -> list[tuple[int, _Row]]:
    """Equal rows once, with how many there are; by type, zone and capacity type alone where they are many."""
    shown = [row._replace(cpu=round(row.cpu, 2), memory=round(row.memory, 2)) for row in rows]
    counts = Counter(shown)
    if len(counts) > MOST_ROWS:
        alike: dict[tuple[str, str, str, float], list[_Row]] = defaultdict(list)
        for row in rows:
            alike[row[:4]].append(row)
        lines = [(len(group), _average(group)) for group in alike.values()]
    else:
        lines = [(count, row) for row, count in counts.items()]
    return sorted(lines, key=lambda line: (-line[1].price, line[1]))


def _average(rows: Sequence[_Row]) -> _Row:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(rows)

    return rows[0]._replace(
        cpu=mean(row.cpu for row in rows), memory=mean(row.memory for row in rows), pods=mean(row.pods for row in rows)
    )


def _table(lines: Sequence[tuple[int, _Row]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), width=WIDTH, header_style="dim")
    table.add_column("", justify="right", no_wrap=True, min_width=3)
    table.add_column("type", overflow="fold", ratio=1)
    table.add_column("zone", overflow="fold", max_width=14)
    table.add_column("capacity", no_wrap=True)
    table.add_column("$/h each", justify="right", no_wrap=True)
    table.add_column("cpu", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_column("pods", justify="right", no_wrap=True)
    for count, row in lines:
        table.add_row(
            f"{count}x",
            row.kind,
            row.zone,
            row.capacity_type,
            dollars(row.price),
            bar(row.cpu),
            bar(row.memory),
            f"{row.pods:.0f}",
        )
    return table


def _existing(given: PlanInput, plan: Plan) -> list[RenderableType]:
    pods = {pod.uid: pod for pod in given.pods}
    onto: dict[str, list[Pod]] = defaultdict(list)
    for placement in plan.placements:
        onto[placement.node].append(pods[placement.pod])
    if not onto:
        return []
    table = Table(box=None, padding=(0, 1, 0, 0), width=WIDTH, header_style="dim")
    table.add_column("node", overflow="fold", ratio=1)
    table.add_column("cpu then", no_wrap=True)
    table.add_column("memory then", no_wrap=True)
    table.add_column("new pods", justify="right", no_wrap=True)
    nodes = [node for node in given.snapshot.nodes if node.name in onto]
    for node in nodes[:MOST_ROWS]:
        used = _used(node, onto[node.name])
        shares = [bar(_share(used, node.allocatable, name)) for name in ("cpu", "memory")]
        table.add_row(node.name, *shares, str(len(onto[node.name])))
    parts: list[RenderableType] = ["", Text(f"Existing nodes that get pods: {len(nodes)}"), table]
    if len(nodes) > MOST_ROWS:
        parts.append(Text(f"and {len(nodes) - MOST_ROWS} more (--output json lists them)", style="dim"))
    return parts


def _used(node: NodeState, new: Iterable[Pod]) -> dict[str, int]:
    used: dict[str, int] = {}
    for pod in (*node.pods, *new):
        try:
            used = add(used, pod_requests(pod))
        except QuantityError:
            continue  # it runs there whatever its text says
    return used


def _money(output: Output) -> list[RenderableType]:
    summary = output.summary
    if not summary.claims:
        return []
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    month = f"{summary.total_price * HOURS_A_MONTH:,.2f} $ a month of {HOURS_A_MONTH} hours"
    table.add_row("price", f"{dollars(summary.total_price)} $/h", month)
    if output.worst_price > summary.total_price:
        table.add_row("at most", f"{dollars(output.worst_price)} $/h", "each node launched in the dearest way it keeps")
    if output.lower_bound is None:
        table.add_row("lower bound", "", "none was proved for this plan")
    else:
        gap = "" if output.gap is None else f"the plan is {output.gap * 100:.1f} % above it"
        table.add_row("lower bound", f"{dollars(output.lower_bound)} $/h", gap)
    return ["", table]


def _unplaced(output: Output) -> list[RenderableType]:
    alike: dict[tuple[Reason, ...], list[str]] = defaultdict(list)
    for name, reasons in output.pod_reasons.items():
        alike[reasons].append(name)
    parts: list[RenderableType] = []
    for reasons, names in alike.items():
        parts += ["", Text(f"Not placed: {some(names)}", style="red"), reasons_part(reasons)]
    return parts


def reasons_part(reasons: Sequence[Reason]) -> RenderableType:
    """Each reason with where it applies, indented."""
    return Group(*(bullet(f"{reason.where}: {reason.message}") for reason in reasons))


def _relaxed(output: Output) -> list[RenderableType]:
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, preferences in output.relaxed.items():
        alike[preferences].append(name)
    parts: list[RenderableType] = []
    for preferences, names in alike.items():
        parts += ["", Text(f"Preferences dropped for {some(names)}"), *(bullet(each) for each in preferences)]
    return parts


def warnings_part(warnings: Sequence[str]) -> list[RenderableType]:
    if not warnings:
        return []
    return ["", Text(_many(len(warnings), "warning"), style="yellow"), *(bullet(each) for each in warnings)]


def bullet(text: str) -> RenderableType:
    """A line that begins with a dash; what follows is indented below it."""
    grid = Table.grid(padding=0)
    grid.add_column(width=4, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("  - ", Text(text))
    return grid


def some(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def dollars(price: float) -> str:
    """Four digits behind the point: prices of small spot nodes are cents."""
    return f"{price:,.4f}"
