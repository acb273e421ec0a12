"""What `wainwright kpa replay` does: files and settings in, decisions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from wainwright.autoscaling.annotations import parse_annotations
from wainwright.autoscaling.config import parse_config
from wainwright.autoscaling.faults import InvalidSettings
from wainwright.autoscaling.pod_model import PodModel
from wainwright.autoscaling.replay import ReplayedDecision, Trace, prefixed, replay
from workers.kpa.traces import TraceError, read_csv, read_json, with_settings

DOMAIN = "autoscaling.knative.dev/"


class ReplayError(Exception):
    """It cannot be replayed: the message says which file or option, and why."""


def replay_files(
    files: Sequence[Path],
    *,
    config: Sequence[str],
    annotations: Sequence[str],
    container_concurrency: int | None,
    modelled: bool | None,
    ready: int,
    lag_s: float,
    tick_s: float,
    warn: Callable[[str], None],
) -> list[tuple[Trace, list[ReplayedDecision]]]:
    """Every file's decisions. modelled: ready pods are those of a model; None: where none were recorded.

    Raises ReplayError.
    """
    replayed = []
    for file in files:
        try:
            trace, recorded = _read(file, tick_s, ready)
            named = {name.removeprefix(DOMAIN): value for name, value in _pairs("--annotation", annotations).items()}
            trace = with_settings(trace, _pairs("--config", config), named, container_concurrency)
            for fault in trace.faults():
                warn(f"{file}: {fault}; counts as absent")
            model = _model(trace, lag_s) if modelled or (modelled is None and not recorded) else None
            replayed.append((trace, list(replay(trace, model))))
        except (TraceError, InvalidSettings, OSError, ValueError, msgspec.MsgspecError) as error:
            raise ReplayError(f"{file}: {error}") from error
    return replayed


def _read(file: Path, tick_s: float, ready: int) -> tuple[Trace, bool]:
    if file.suffix == ".json":
        trace = read_json(file.read_bytes())
        return (trace if trace.name else msgspec.structs.replace(trace, name=file.stem)), True
    with file.open(newline="", encoding="utf-8-sig") as lines:
        return read_csv(lines, name=file.stem, tick_s=tick_s, ready=ready)


def _model(trace: Trace, lag_s: float) -> PodModel:
    """Pods that follow the wishes, within the bounds that the settings give."""
    parsed = parse_config(trace.config)
    bounds, _ = parse_annotations(prefixed(trace.annotations), parsed)
    return PodModel(
        lag_s=lag_s,
        min_scale=parsed.min_scale if bounds.min_scale is None else bounds.min_scale,
        max_scale=parsed.max_scale if bounds.max_scale is None else bounds.max_scale,
        ready=trace.initial.ready_pods,
    )


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ReplayError(f"{option} {text!r} is not KEY=VALUE")
        pairs[name] = value
    return pairs


def decisions_as_json(replayed: Sequence[tuple[Trace, Sequence[ReplayedDecision]]]) -> list[dict[str, Any]]:
    """One object per decision, in order; of several traces, each says which it is from."""
    several = len(replayed) > 1
    return [
        {**({"trace": trace.name} if several else {}), **one.event()}
        for trace, decisions in replayed
        for one in decisions
    ]
