"""Replayed decisions for people: a table of what changed, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from wainwright.autoscaling.replay import ReplayedDecision, Trace
from workers.kpa.traces import load_by_second

PLOT_FORMATS = (".svg", ".png", ".pdf")


class PlotUnavailable(Exception):
    """matplotlib is not installed."""


def decision_table(name: str, decisions: Sequence[ReplayedDecision], *, everything: bool) -> Table:
    """everything: also decisions that are like the one before."""
    shown = [
        one
        for before, one in zip([None, *decisions], decisions, strict=False)
        if everything or before is None or _essence(before) != _essence(one)
    ]
    title = f"{name}: {len(decisions)} decisions" + ("" if len(shown) == len(decisions) else f", {len(shown)} changes")
    table = Table("t", "ready", "desired", "panic", "stable", "panic load", "why", title=title, title_justify="left")
    for one in shown:
        decision = one.decision
        why = ", ".join(decision.limits) if decision.valid else str(decision.verdict)
        table.add_row(
            f"{one.t:g}",
            "?" if decision.ready_pods is None else str(decision.ready_pods),
            "-" if decision.desired is None else str(decision.desired),
            "panic" if decision.panic else "",
            _number(decision.stable_value),
            _number(decision.panic_value),
            why,
        )
    return table


def _essence(one: ReplayedDecision) -> tuple[Any, ...]:
    return (one.decision.desired, one.decision.panic, one.decision.verdict, one.decision.limits)


def _number(value: float | None) -> str:
    return "no data" if value is None else f"{value:g}"


def draw(path: Path, traces: Sequence[tuple[Trace, Sequence[ReplayedDecision]]]) -> None:
    """Load, desired and ready pods over time, panic as bands; one pair of axes per trace. Raises PlotUnavailable,
    OSError.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotUnavailable("--plot needs matplotlib: pip install 'wainwright[plot]'") from error
    figure = Figure(figsize=(11, 4.2 * len(traces)), layout="constrained")
    FigureCanvasAgg(figure)
    for row, (trace, decisions) in enumerate(traces):
        pods = figure.add_subplot(len(traces), 1, row + 1)
        loads = load_by_second(trace)
        load = pods.twinx()
        load.plot(list(loads), list(loads.values()), color="0.75", linewidth=1, label="load")
        load.set_ylabel("load")
        load.set_ylim(bottom=0)
        pods.set_zorder(load.get_zorder() + 1)
        pods.patch.set_visible(False)
        times = [one.t for one in decisions]
        pods.step(times, _held(decisions), where="post", color="tab:blue", label="desired")
        ready = [float("nan") if one.decision.ready_pods is None else one.decision.ready_pods for one in decisions]
        pods.step(times, ready, where="post", color="tab:green", linestyle="--", label="ready")
        for begin, end in panics(decisions):
            pods.axvspan(begin, end, color="tab:red", alpha=0.12, linewidth=0)
        pods.set_title(trace.name, loc="left")
        pods.set_xlabel("seconds")
        pods.set_ylabel("pods")
        pods.set_ylim(bottom=0)
        handles = [*pods.get_legend_handles_labels()[0], *load.get_legend_handles_labels()[0]]
        pods.legend(handles=handles, loc="upper right", frameon=False)
    figure.savefig(path, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)


def _held(decisions: Sequence[ReplayedDecision]) -> list[float]:
    """Desired pods; what no valid decision changed stays."""
    held, values = float("nan"), []
    for one in decisions:
        held = held if one.decision.desired is None else float(one.decision.desired)
        values.append(held)
    return values


def panics(decisions: Sequence[ReplayedDecision]) -> list[tuple[float, float]]:
    """When panic began and ended, in seconds."""
    spans: list[tuple[float, float]] = []
    begin: float | None = None
    for one in decisions:
        if one.decision.panic and begin is None:
            begin = one.t
        elif not one.decision.panic and begin is not None:
            spans.append((begin, one.t))
            begin = None
    if begin is not None:
        spans.append((begin, decisions[-1].t))
    return spans
