"""`python -m bench [NAME…] [--quick]`: runs benchmarks one after the other, shows tables, keeps the figures as JSON."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType

import msgspec
from rich.console import Console

from bench.figures import Figure, Result, Run, fill, machine, printed, shown
from bench.processes import busy_share
from wainwright.clock import SystemClock

ORDER = ("batching", "autoscaling", "solve_record", "latency", "takeover", "scale", "packing", "embedded_cluster")
"""In which they run; those whose module is not there are left out."""
RESULTS = Path(".bench/results.json")
PAGE = Path("docs/performance.md")

WIDTH = 180
"""Tables have many columns: no narrower than this, whatever the terminal."""

out, err = (Console(stderr=stderr, highlight=False, soft_wrap=True) for stderr in (False, True))
out.width = max(out.width, WIDTH)


def available() -> dict[str, Path]:
    here = Path(__file__).parent
    return {name: here / f"{name}.py" for name in ORDER if (here / f"{name}.py").exists()}


def run_one(name: str, *, quick: bool) -> Result:
    """Runs a benchmark to its end. Whatever it raises goes through."""
    module: ModuleType = importlib.import_module(f"bench.{name}")
    title = (module.__doc__ or name).strip().splitlines()[0].rstrip(".")
    err.print(f"[bold]{name}[/bold]: {title}")
    busy, began, at = busy_share(), time.monotonic(), SystemClock().now()

    def report(step: str) -> None:
        err.print(f"[dim]{time.monotonic() - began:6.1f} s  {name}: {step}[/dim]")

    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="wainwright-bench-") as folder:
        for figure in module.measure(Run(quick=quick, folder=Path(folder), report=report)):
            figures.append(figure)
            values = ", ".join(f"{column} {shown(value)}".strip() for column, value in figure.values.items())
            report(f"{figure.name}: {values} {figure.unit}")
    return Result(
        title=title,
        command=f"python -m bench {name}{' --quick' if quick else ''}",
        quick=quick,
        at=at.isoformat(timespec="seconds"),
        took_seconds=time.monotonic() - began,
        busy_before=busy,
        machine=machine(),
        figures=tuple(figures),
    )


def read(file: Path) -> dict[str, Result]:
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Result]) if file.exists() else {}


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 when a benchmark could not be carried out; slow ones are no failures."""
    known = available()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller sizes: to see that it works")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help=f"figures as JSON ({RESULTS})")
    parser.add_argument("--markdown", action="store_true", help=f"measure nothing: write the figures into {PAGE}")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.markdown:
        PAGE.write_text(fill(PAGE.read_text(), read(arguments.output)))
        out.print(f"{PAGE} shows the figures of {arguments.output}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    facts = machine()
    out.print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in arguments.names or known:
        try:
            result = run_one(name, quick=arguments.quick)
        except KeyboardInterrupt:
            err.print("stopped")
            return 130
        except Exception:
            failed.append(name)
            err.print(traceback.format_exc(), markup=False)
            continue
        for part in printed(result):
            out.print(part)
        arguments.output.write_bytes(
            msgspec.json.format(msgspec.json.encode({**read(arguments.output), name: result}), indent=1) + b"\n"
        )
    out.print(f"figures: {arguments.output}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
