"""The command line: `wainwright`."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from config.settings import Settings, documentation, environment, variables
from wainwright.errors import StoreUnavailable, WainwrightError
from workers.process import EXIT_USAGE, settings_or_exit

if TYPE_CHECKING:
    from workers.plan.inputs import CurrentCluster

EXIT_FAILED = 1

cli = typer.Typer(
    help="Just-in-time nodes and request-driven pod scaling for Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False)


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs")]
FolderOption = Annotated[
    Path, typer.Option("--dir", help="where the embedded stack keeps its data, logs and kubeconfig", envvar=None)
]
DEFAULT_FOLDER = Path(".wainwright")


def say_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


@contextmanager
def problems() -> Iterator[None]:
    """Turns what can go wrong outside into one line on stderr and exit status 1."""
    try:
        yield
    except StoreUnavailable as error:
        err.print(f"[red]{error}[/red]\nIs it running, and is WAINWRIGHT_REDIS_URL right? (`wainwright up` prints it.)")
        raise typer.Exit(EXIT_FAILED) from error
    except WainwrightError as error:
        err.print(f"[red]{error}[/red]")
        raise typer.Exit(EXIT_FAILED) from error


def running_settings(folder: Path) -> Settings:
    """The environment's settings; where it names no Redis, those of the embedded stack in `folder`, if one runs."""
    file = folder / "settings.json"
    if "WAINWRIGHT_REDIS_URL" not in os.environ and file.exists():
        return settings_or_exit(msgspec.json.decode(file.read_bytes(), type=dict[str, str]))
    return settings_or_exit()


@cli.command()
def up(
    folder: FolderOption = DEFAULT_FOLDER,
    redis_port: Annotated[int, typer.Option(min=0, max=65535, help="port of the embedded Redis; 0: any free one")] = 0,
    api_port: Annotated[
        int, typer.Option(min=0, max=65535, help="port of the embedded Kubernetes API; 0: any free one")
    ] = 0,
    watchers: Annotated[int, typer.Option(min=1, help="watchers; one is active, the others stand by")] = 1,
    launch_workers: Annotated[int, typer.Option(min=1, help="launch workers")] = 1,
    beats: Annotated[int, typer.Option(min=1, help="beats; each slot runs once however many there are")] = 1,
) -> None:
    """Start the embedded stack in the foreground: a cluster, a cloud, Redis and Wainwright. Ctrl-C stops all of it."""
    from workers.stack import Stack, StackError, StackOptions

    settings = settings_or_exit()
    options = StackOptions(
        folder=folder.absolute(),
        watchers=watchers,
        launch_workers=launch_workers,
        beats=beats,
        push=True,
        redis_port=redis_port,
        api_port=api_port,
        keep=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    stack = Stack(settings, options)
    stack_runs = False
    interrupt_on_sigterm()
    began = time.monotonic()
    note = folder / "settings.json"
    try:
        stack.start(lambda step: err.print(f"starting: {step}", style="dim"))
        stack_runs = True
        note.write_bytes(msgspec.json.encode(environment(stack.settings)))
        out.print(
            f"ready in {time.monotonic() - began:.1f} s. Ctrl-C stops it.\n\n"
            f"  export KUBECONFIG={stack.kubeconfig}\n"
            f"  kubectl apply -f examples/nodepool.yaml -f examples/deployment.yaml\n"
            f"  kubectl get nodeclaims,nodes,pods -w\n\n"
            f"  wainwright status --watch          pools, windows, plans, nodes\n"
            f"  wainwright pod default/NAME        what was decided for a pod, and why\n"
            f"  redis-cli -u {stack.settings.redis.url} KEYS 'wainwright:*'    (docs/redis.md)\n\n"
            f"Redis {stack.settings.redis.url}   cloud {stack.settings.cloud.url}   logs {stack.folder / 'logs'}\n"
            f"load of pod autoscalers: POST http://127.0.0.1:{stack.settings.autoscaling.push_port}/v1/load",
            soft_wrap=True,
        )
        known: dict[str, int] = {}
        while True:
            stack.check()
            for child in stack.children.all():
                if child.restarts != known.get(child.name, 0):
                    known[child.name] = child.restarts
                    err.print(f"{child.name} died and was started anew ({child.log})", style="yellow")
            time.sleep(0.25)
    except KeyboardInterrupt:
        err.print("stopping", style="dim")
    except StackError as error:
        err.print(f"[red]{error}[/red]", markup=True)
        raise typer.Exit(EXIT_FAILED) from error
    finally:
        if stack_runs:
            note.unlink(missing_ok=True)
        stack.stop()


cluster_commands = typer.Typer(help="The embedded Kubernetes cluster by itself.", no_args_is_help=True)
cli.add_typer(cluster_commands, name="cluster")


@cluster_commands.command(name="up")
def cluster_up(
    kubeconfig: Annotated[Path, typer.Option(help="written, readable by you only, when the cluster is ready")] = (
        DEFAULT_FOLDER / "cluster" / "kubeconfig"
    ),
    folder: Annotated[Path, typer.Option("--dir", help="state, certificates and logs")] = DEFAULT_FOLDER / "cluster",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the API; 0: any free one")] = 0,
    listen: Annotated[str, typer.Option(help="address to bind instead of loopback")] = "",
    advertise: Annotated[str, typer.Option(help="host name that the kubeconfig names")] = "",
    cloud: Annotated[str, typer.Option(help="URL of a simulated cloud whose instances carry the nodes")] = "",
) -> None:
    """Start the embedded cluster alone, in the foreground. Ctrl-C stops it; its state is kept in --dir."""
    from workers.cluster import Cluster, ClusterOptions
    from workers.stack import StackError

    options = ClusterOptions(
        folder=folder.absolute(),
        kubeconfig=kubeconfig.absolute(),
        port=port,
        listen=listen,
        advertise=advertise,
        cloud=cloud,
    )
    cluster = Cluster(options)
    interrupt_on_sigterm()
    try:
        cluster.start(lambda step: err.print(f"starting: {step}", style="dim"))
        out.print(f"ready. Ctrl-C stops it.\n\n  export KUBECONFIG={options.kubeconfig}", soft_wrap=True)
        while True:
            cluster.check()
            time.sleep(0.25)
    except KeyboardInterrupt:
        err.print("stopping", style="dim")
    except StackError as error:
        err.print(f"[red]{error}[/red]")
        raise typer.Exit(EXIT_FAILED) from error
    finally:
        cluster.stop()


@cli.command()
def demo(
    trace: Annotated[Path | None, typer.Option(help="CSV of pods to replay instead (docs/demo.md)")] = None,
    speedup: Annotated[float | None, typer.Option(help="trace time divided by real time; default: 30 s in all")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first so many pods of the trace")] = None,
    kill: Annotated[bool, typer.Option(help="kill -9 a launch worker halfway")] = True,  # noqa: FBT002
    folder: Annotated[Path | None, typer.Option("--dir", help="keep data and logs here (default: removed)")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run the main job end to end on a stack of its own, and tell whether all went right (exit status 0) or not (1)."""
    from workers.demo.run import DemoOptions, run_demo, run_trace
    from workers.demo.trace import TraceError, natural_speedup, read_trace
    from workers.demo.verdict import render_verdict
    from workers.stack import StackError

    settings = settings_or_exit()
    interrupt_on_sigterm()
    options = DemoOptions(folder=folder.absolute() if folder else None, kill=kill)
    began = time.monotonic()

    def report(step: str) -> None:
        err.print(f"{time.monotonic() - began:6.1f} s  {step}", style="dim")

    try:
        if trace is None:
            verdict = run_demo(settings, options, report)
        else:
            with trace.open(newline="") as lines:
                pods = read_trace(lines, limit=limit)
            if not pods:
                err.print(f"[red]{trace}: there is no pod in it[/red]")
                raise typer.Exit(EXIT_USAGE)
            verdict = run_trace(settings, options, pods, speedup or natural_speedup(pods), report)
    except (TraceError, OSError) as error:
        err.print(f"[red]{trace}: {error}[/red]")
        raise typer.Exit(EXIT_USAGE) from error
    except StackError as error:
        err.print(f"[red]{error}[/red]")
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if output is Output.JSON:
        say_json(verdict)
    else:
        out.print(render_verdict(verdict))
    raise typer.Exit(EXIT_FAILED if verdict.faults else 0)


@cli.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="refresh every second until Ctrl-C")] = False,  # noqa: FBT002
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell how it stands: NodePools, windows, queues, plans, nodes. Exit status 1 when the view is stale."""
    from rich.live import Live

    from tasks.context import make_store
    from workers.status import read_status, render_status

    settings = running_settings(folder)
    store = make_store(settings)
    with problems():
        state = read_status(store, settings)
        if output is Output.JSON:
            say_json(state)
        elif not watch:
            out.print(render_status(state))
        else:
            interrupt_on_sigterm()
            try:
                with Live(render_status(state), console=out, refresh_per_second=2) as live:
                    while True:
                        time.sleep(1.0)
                        live.update(render_status(read_status(store, settings)))
            except KeyboardInterrupt:
                return
    healthy = state.view_complete and not any(each.stale for each in state.watches)
    raise typer.Exit(0 if healthy else EXIT_FAILED)


@cli.command()
def pod(
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="the pod; without a namespace: default")],
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell what was decided for a pod, when and why, from the records. Exit status 1 when nothing is known of it."""
    from tasks.context import make_store
    from workers.pod_report import read_pod_report, render_pod_report

    namespace, _, short = name.rpartition("/")
    with problems():
        report = read_pod_report(make_store(running_settings(folder)), namespace or "default", short)
    if report is None:
        err.print(
            f"[red]{namespace or 'default'}/{short}: not in the cluster view, and nothing is recorded of it[/red]"
        )
        raise typer.Exit(EXIT_FAILED)
    if output is Output.JSON:
        say_json(report)
    else:
        out.print(render_pod_report(report))


class PlanOutput(StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class ClusterOption(StrEnum):
    NONE = "none"
    CURRENT = "current"


@cli.command()
def plan(
    manifests: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--filename", metavar="MANIFESTS", help="file, folder or - (standard input); may be repeated"
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="[MANIFESTS]...", help="the same as -f")] = None,
    node_pools: Annotated[
        str | None, typer.Option("--nodepools", help="NodePools; each takes the place of one of its name elsewhere")
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option(help="types and prices (packing-catalog/v1); default: the simulated cloud's")
    ] = None,
    cluster: Annotated[
        ClusterOption, typer.Option(help="current: beside what the running Wainwright sees; none: an empty cluster")
    ] = ClusterOption.NONE,
    scenario: Annotated[
        Path | None, typer.Option(help="a packing scenario (packing-scenario/v1), plain or gzipped, instead")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="POD", help="tell about this pod only: where it goes, and why")
    ] = None,
    output: Annotated[
        PlanOutput, typer.Option("--output", "-o", help="json, yaml: packing-output/v1")
    ] = PlanOutput.TEXT,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Tell what would happen, with no cluster: which nodes these manifests need, what they cost, what has no place.

    Exit status: 0 when every pod has a place, 1 when some have none, 2 when the input cannot be used, 70 when the
    checker finds a fault in the plan (then it is not shown).
    """
    from workers.plan.command import PlanOptions, run_plan

    def current() -> CurrentCluster:
        from tasks.context import make_store
        from workers.plan.current import read_current

        settings = running_settings(folder)
        return read_current(make_store(settings), settings)

    options = PlanOptions(
        manifests=(*(manifests or ()), *(more or ())),
        node_pools=node_pools,
        catalog=catalog,
        scenario=scenario,
        current=cluster is ClusterOption.CURRENT,
    )
    answer = run_plan(options, explained=explain, form=output.value, stdin=sys.stdin.buffer.read, current=current)
    if answer.problem:
        err.print(answer.problem, style="red", markup=False, soft_wrap=True)
    elif isinstance(answer.shown, str):
        sys.stdout.write(answer.shown)
    else:
        Console(highlight=False, width=min(80, out.width)).print(answer.shown)
    raise typer.Exit(answer.status)


@cli.command()
def replay(
    plan_id: Annotated[str, typer.Argument(metavar="PLAN_ID", help="as `wainwright status` and `pod` name it")],
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Solve a recorded plan's input again. Exit status 0: the same plan; 1: a different one; 2: it is not kept."""
    from tasks.context import make_store
    from workers.replay import read_replay, render_replay

    with problems():
        report = read_replay(make_store(running_settings(folder)), plan_id)
    if report is None:
        err.print(f"[red]{plan_id}: no such plan, or its input is not kept any more[/red]")
        raise typer.Exit(EXIT_USAGE)
    if output is Output.JSON:
        say_json(report)
    else:
        out.print(render_replay(report))
    raise typer.Exit(0 if report.same else EXIT_FAILED)


@cli.command()
def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as decisions are made, until Ctrl-C")] = False,  # noqa: FBT002
    count: Annotated[int, typer.Option("--count", "-n", min=0, max=10_000, help="how many of the last ones")] = 20,
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the decision log, newest last. With --follow, JSON comes as one object a line."""
    from tasks.context import make_store
    from workers.decisions import follow_decisions, read_decisions, render_decision

    store = make_store(running_settings(folder))
    with problems():
        last = read_decisions(store, max(count, 1))
        shown = last[-count:] if count else []
        if output is Output.JSON and not follow:
            say_json(shown)
            return
        interrupt_on_sigterm()
        try:
            for decision in itertools.chain(
                shown, follow_decisions(store, last[-1].id if last else "") if follow else ()
            ):
                if output is Output.JSON:
                    sys.stdout.write(msgspec.json.encode(decision).decode() + "\n")
                    sys.stdout.flush()
                else:
                    out.print(render_decision(decision, out.width))
        except KeyboardInterrupt:
            return


@cli.command()
def dead(
    retry: Annotated[str | None, typer.Option(metavar="KIND/ID", help="let this one be tried again")] = None,
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """List what was set aside because it cannot be parsed or kills its worker, each with its reason."""
    from rich.table import Table

    from tasks.context import make_store
    from wainwright.batching.dead import all_set_aside, put_back

    with problems():
        store = make_store(running_settings(folder))
        if retry is not None:
            kind, _, identity = retry.partition("/")
            if not put_back(store, kind, identity):
                err.print(f"[red]{retry}: not among what is set aside (`wainwright dead` lists it)[/red]")
                raise typer.Exit(EXIT_FAILED)
            return
        held = all_set_aside(store)
    if output is Output.JSON:
        say_json(held)
        return
    table = Table("what", "reason", "it is", title=f"{len(held)} set aside", title_justify="left")
    for key, entry in held.items():
        table.add_row(key, entry.reason, entry.what[:200])
    out.print(table)


kpa_commands = typer.Typer(
    help="Pod autoscaling: try settings on recorded load, see how it stands.", no_args_is_help=True
)
cli.add_typer(kpa_commands, name="kpa")


class PodsFrom(StrEnum):
    RECORDED = "recorded"
    MODEL = "model"


@kpa_commands.command(name="replay")
def kpa_replay(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="kpa-trace/1 (.json), or CSV: time,value[,source][,ready]")
    ],
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="a key of config-autoscaler")
    ] = None,
    annotation: Annotated[
        list[str] | None, typer.Option("--annotation", "-a", metavar="KEY=VALUE", help="with or without its prefix")
    ] = None,
    container_concurrency: Annotated[
        int | None, typer.Option(min=0, help="requests in flight that a pod admits; 0: any number")
    ] = None,
    pods: Annotated[
        PodsFrom | None, typer.Option(help="ready pods: recorded ones, or a model's (where none are recorded)")
    ] = None,
    ready: Annotated[int, typer.Option(min=0, help="CSV: pods ready at the start")] = 1,
    lag: Annotated[float, typer.Option(min=0, help="model: seconds from a wish to a ready pod")] = 10.0,
    tick: Annotated[float, typer.Option(min=0.5, help="CSV: seconds between decisions")] = 2.0,
    everything: Annotated[bool, typer.Option("--all", help="every decision, not changes only")] = False,  # noqa: FBT002
    plot: Annotated[Path | None, typer.Option(metavar="OUT.svg|png", help="write a picture; needs matplotlib")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run recorded load through the decision core: what would have been decided, under which settings?"""
    from workers.kpa.command import ReplayError, decisions_as_json, replay_files
    from workers.kpa.report import PLOT_FORMATS, PlotUnavailable, decision_table, draw

    if plot is not None and plot.suffix not in PLOT_FORMATS:
        err.print(f"--plot {plot}: the name must end in {', '.join(PLOT_FORMATS)}", style="red", markup=False)
        raise typer.Exit(EXIT_USAGE)
    try:
        replayed = replay_files(
            files,
            config=config or (),
            annotations=annotation or (),
            container_concurrency=container_concurrency,
            modelled=None if pods is None else pods is PodsFrom.MODEL,
            ready=ready,
            lag_s=lag,
            tick_s=tick,
            warn=lambda text: err.print(text, style="yellow", markup=False, soft_wrap=True),
        )
        if plot is not None:
            draw(plot, replayed)
    except (ReplayError, PlotUnavailable, OSError) as error:
        err.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_USAGE) from error
    if output is Output.JSON:
        say_json(decisions_as_json(replayed))
        return
    for trace, decisions in replayed:
        out.print(decision_table(trace.name, decisions, everything=everything))


@kpa_commands.command(name="status")
def kpa_status(
    name: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/NAME]", help="one autoscaler in detail; without a namespace: default")
    ] = "",
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell how autoscalers stand: load, wish, panic, what is wrong. Exit status 1 when the one asked for is unknown."""
    from tasks.context import make_store
    from workers.kpa.status import read_kpa_status, render_kpa_status

    namespace, _, short = name.rpartition("/")
    key = f"{namespace or 'default'}/{short}" if name else ""
    with problems():
        settings = running_settings(folder)
        state = read_kpa_status(make_store(settings), key, shards=settings.autoscaling.shards)
    if key and not state.autoscalers:
        err.print(f"{key}: there is no such PodAutoscaler in the cluster view", style="red", markup=False)
        raise typer.Exit(EXIT_FAILED)
    if output is Output.JSON:
        say_json(state)
    else:
        out.print(render_kpa_status(state, detailed=bool(key)))


@cli.command(name="settings")
def show_settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="as docs/settings.md")] = False,  # noqa: FBT002
    folder: FolderOption = DEFAULT_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """List every setting with its value: of the stack that runs in --dir, else of the environment, which is checked."""
    if markdown:
        sys.stdout.write(documentation())
        return
    settings = running_settings(folder)
    values = {name: getattr(getattr(settings, group), field) for name, (group, field) in variables().items()}
    if output is Output.JSON:
        say_json(values)
        return
    for name, value in values.items():
        mark = "*" if name in os.environ else " "
        out.print(f"{mark} {name}={value}", soft_wrap=True)


@cli.command()
def keys(
    markdown: Annotated[bool, typer.Option("--markdown", help="as docs/redis.md")] = False,  # noqa: FBT002
) -> None:
    """List every key in Redis: what it tells and how to read it with redis-cli."""
    from rich.table import Table

    from wainwright.keys import KEY_SPECS
    from workers.documents import redis_document

    if markdown:
        sys.stdout.write(redis_document())
        return
    prefix = settings_or_exit().redis.prefix
    table = Table("key", "type", "tells", "redis-cli …")
    for spec in KEY_SPECS:
        table.add_row(spec.pattern, spec.type, spec.tells, spec.command.format(prefix))
    out.print(table)


def interrupt_on_sigterm() -> None:
    """SIGTERM ends a foreground command as Ctrl-C does, so that its children are stopped too.

    Ctrl-C itself works also where the command was started in the background of a script, which ignores it.
    """

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)


def main() -> None:
    """Entry point."""
    cli()


if __name__ == "__main__":
    main()
