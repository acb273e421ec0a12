"""A recorded trace through the decision core: what would have been decided, under which settings?

Schema `kpa-trace/1`: samples, changed settings and decisions in order; ready pods are input.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from wainwright.autoscaling.annotations import DOMAIN, PROGRESS_DEADLINE_ANNOTATION, parse_annotations
from wainwright.autoscaling.config import parse_config
from wainwright.autoscaling.decider import DeciderState, Decision, Verdict, decide
from wainwright.autoscaling.faults import Fault
from wainwright.autoscaling.instants import from_unix_ms, unix_ms
from wainwright.autoscaling.pod_model import PodModel
from wainwright.autoscaling.spec import DeciderSpec, Reachability, derive_spec
from wainwright.autoscaling.windows import Windows

TRACE_SCHEMA: Final = "kpa-trace/1"
UNSET: Final = "<unset>"
"""In an update: take this key away."""
POD_COUNT_NOT_FOUND: Final = "error:notfound"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a scaler is told. annotations: without the prefix `autoscaling.knative.dev/`."""

    config: dict[str, str] = {}
    annotations: dict[str, str] = {}
    container_concurrency: int = 0
    reachability: Reachability = Reachability.UNKNOWN

    def spec(self) -> DeciderSpec:
        """Annotations at fault count as absent, as they do on a live object; `faults` names them.

        Raises InvalidSettings for faults in config.
        """
        config = parse_config(self.config)
        annotations, _ = parse_annotations(prefixed(self.annotations), config)
        return derive_spec(
            config,
            annotations,
            container_concurrency=self.container_concurrency,
            reachability=self.reachability,
        )

    def faults(self) -> tuple[Fault, ...]:
        """Faults in the annotations."""
        return parse_annotations(prefixed(self.annotations), parse_config(self.config))[1]

    def updated(self, update: SettingsUpdate) -> Settings:
        return Settings(
            config=_patched(self.config, update.config),
            annotations=_patched(self.annotations, update.annotations),
            container_concurrency=(
                self.container_concurrency if update.container_concurrency is None else update.container_concurrency
            ),
            reachability=self.reachability if update.reachability is None else update.reachability,
        )


class SettingsUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changed keys only; UNSET as a value takes a key away."""

    config: dict[str, str] = {}
    annotations: dict[str, str] = {}
    container_concurrency: int | None = None
    reachability: Reachability | None = None


class Initial(msgspec.Struct, frozen=True, kw_only=True):
    """How the decider begins. panic, max_panic_pods: None to begin as one does with that many ready pods."""

    ready_pods: int = 0
    panic: bool | None = None
    max_panic_pods: int | None = None

    def state(self, spec: DeciderSpec, now: datetime) -> DeciderState:
        state = DeciderState.start(spec, self.ready_pods, now)
        if self.panic is not None:
            state = msgspec.structs.replace(state, panic_since_ms=unix_ms(now) if self.panic else None)
        if self.max_panic_pods is not None:
            state = msgspec.structs.replace(state, max_panic_pods=self.max_panic_pods)
        return state


class Trace(Settings, frozen=True, kw_only=True):
    """A trace file. events: lists whose first item is the kind (s, x, u, d), as the schema's page has them."""

    schema: str = TRACE_SCHEMA
    name: str = ""
    t0_unix: int = 0
    initial: Initial = Initial()
    events: list[list[Any]] = []


class ReplayedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """t: seconds after the trace's start; spec: the parameters in force."""

    t: float
    spec: DeciderSpec
    decision: Decision
    panic_since: float | None

    def event(self) -> dict[str, Any]:
        """Named as the fields of a "d" event."""
        decision = self.decision
        return {
            "t": self.t,
            "ready_pods": decision.ready_pods,
            "desired": decision.desired,
            "excess_burst_capacity": decision.excess_burst_capacity,
            "valid": decision.valid,
            "panic": decision.panic,
            "max_panic_pods": decision.max_panic_pods,
            "stable_value": "nodata" if decision.verdict is Verdict.NO_DATA else decision.stable_value,
            "panic_value": decision.panic_value,
            "panic_since": self.panic_since,
        }


def prefixed(annotations: dict[str, str]) -> dict[str, str]:
    """Annotations of a trace under their full keys."""
    return {
        PROGRESS_DEADLINE_ANNOTATION if name == "progress-deadline" else DOMAIN + name: value
        for name, value in annotations.items()
    }


def _patched(values: dict[str, str], changes: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in {**values, **changes}.items() if value != UNSET}


def replay(trace: Trace, pods: PodModel | None = None) -> Iterator[ReplayedDecision]:
    """Every decision of the trace, in order. pods: takes the place of the recorded pod counts, and follows the wishes.

    Raises InvalidSettings for faults in the trace's config, ValueError for an event that is none.
    """
    start = from_unix_ms(1000 * trace.t0_unix)

    def instant(t: float) -> datetime:
        return start + timedelta(milliseconds=round(1000 * t))

    settings: Settings = trace
    spec = settings.spec()
    windows = Windows.new(spec)
    state = trace.initial.state(spec, start)
    for event in trace.events:
        match event:
            case ["s", t, value]:
                windows = windows.record(instant(t), value)
            case ["x", _, stamped, value, proxied]:
                windows = windows.record(instant(stamped), value - proxied)
            case ["u", _, update, *_]:
                settings = settings.updated(msgspec.convert(update, SettingsUpdate))
                spec = settings.spec()
                windows = windows.fitted(spec)
            case ["d", t, recorded, *_]:
                pods = pods.at(t) if pods is not None else None
                ready = _ready_pods(recorded) if pods is None else pods.ready
                decision, state = decide(spec, state, windows, ready, instant(t))
                if pods is not None and decision.desired is not None:
                    pods = pods.wished(t, decision.desired)
                since = decision.panic_since_ms
                yield ReplayedDecision(
                    t=t,
                    spec=spec,
                    decision=decision,
                    panic_since=None if since is None else since / 1000 - trace.t0_unix,
                )
            case _:
                raise ValueError(f"not an event of {TRACE_SCHEMA}: {event!r}")


def _ready_pods(ready: int | str) -> int | None:
    """A count; 0 for a target that is not there; None for one that could not be counted."""
    if isinstance(ready, str):
        return 0 if ready == POD_COUNT_NOT_FOUND else None
    return ready
