"""Samples into windows, and the windows of several sources into one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from wainwright.autoscaling.buckets import merged
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.autoscaling.windows import Windows
from wainwright.podscaling.records import SourceRecord
from wainwright.podscaling.samples import NAME_SEPARATOR, Sample

SILENT_SECONDS: Final = 10
"""A source that said nothing for longer is missing: what the others see is then a lower bound of the load."""
_AHEAD_SECONDS: Final = 1
"""Samples further in the future are dropped: they would zero the seconds before them."""


def source_of(name: str) -> str:
    """The source through which a reporter reports."""
    return name.partition(NAME_SEPARATOR)[0]


def fitted(windows: Windows, spec: DeciderSpec) -> Windows:
    """With the lengths, the metric and the averaging that the spec asks for now."""
    if windows.metric is not spec.metric:
        return Windows.new(spec)
    stable = windows.stable
    if stable.aggregation is not spec.aggregation:
        windows = windows.with_aggregation(spec.aggregation)
    if stable.length != spec.stable_window_s or windows.panic.length != spec.panic_window_s:
        windows = windows.fitted(spec)
    return windows


def folded(
    sources: Mapping[str, SourceRecord],
    samples: Sequence[Sample],
    spec: DeciderSpec,
    declared: Collection[str],
    second: int,
) -> dict[str, SourceRecord]:
    """The sources with one autoscaler's new samples in their windows, in the order given.

    Each source has windows of its own, in which a repeated second replaces; so writing a sample twice changes nothing.
    Sources that are not declared any more are dropped, and so are reporters that have been silent for a whole window.
    """
    new: dict[str, SourceRecord] = {}
    for name, one in sources.items():
        if name in declared or source_of(name) in declared:
            windows = one.windows
            fits = windows is None or (windows := fitted(windows, spec)) is one.windows
            new[name] = one if fits else msgspec.structs.replace(one, windows=windows)
    if samples and len(declared) == len(new) == 1:
        name, only = next(iter(new.items()))
        quick = _quickly(name, only, samples, spec, second)
        if quick is not None:
            return {name: quick}
    for sample in samples:
        if source_of(sample.source) in declared and sample.second <= second + _AHEAD_SECONDS:
            new[sample.source] = _with_sample(new.get(sample.source, _NEW), sample, spec)
    return {
        name: one
        for name, one in new.items()
        if name in declared or (one.windows is not None and not one.windows.stable.is_empty(second))
    }


_NEW: Final = SourceRecord()


def _quickly(
    name: str, source: SourceRecord, samples: Sequence[Sample], spec: DeciderSpec, second: int
) -> SourceRecord | None:
    """The same as `_with_sample` for each, at once, where nothing is out of the ordinary: a source that can be read and
    says the same as before, newer seconds only. None: something is.
    """
    windows = source.windows
    if windows is None or source.failed_s or not windows.stable.values or not source.since_s:
        return None
    newest, held = windows.stable.last_s, windows.stable.values[-1]
    values: list[float] = []
    for sample in samples:
        value, hole = sample.value, sample.second - newest - 1
        if value is None or hole < 0 or sample.message != source.message or sample.source != name:
            return None
        if hole:
            if hole > SILENT_SECONDS or spec.silence_is_zero:
                return None
            values += [held] * hole
        values.append(value)
        newest, held = sample.second, value
    if newest > second + _AHEAD_SECONDS:
        return None
    try:
        windows = Windows(
            metric=windows.metric, stable=windows.stable.extended(values), panic=windows.panic.extended(values)
        )
    except ValueError:
        return None
    return SourceRecord(windows=windows, message=source.message, since_s=source.since_s)


def _with_sample(source: SourceRecord, sample: Sample, spec: DeciderSpec) -> SourceRecord:
    since_s = source.since_s if source.message == sample.message and source.since_s else sample.second
    if sample.value is None:
        failed_s = max(source.failed_s, sample.second)
        return msgspec.structs.replace(source, failed_s=failed_s, message=sample.message, since_s=since_s)
    windows = source.windows or Windows.new(spec)
    try:
        if not spec.silence_is_zero:
            windows = _bridged(windows, sample.second, spec)
        windows = msgspec.structs.replace(
            windows,
            stable=windows.stable.put(sample.second, sample.value),
            panic=windows.panic.put(sample.second, sample.value),
        )
    except ValueError as error:
        return msgspec.structs.replace(source, failed_s=sample.second, message=str(error), since_s=since_s)
    healed = sample.second >= source.failed_s
    return msgspec.structs.replace(
        source,
        windows=windows,
        failed_s=0 if healed else source.failed_s,
        message=sample.message if healed else source.message,
        since_s=since_s if healed else source.since_s,
    )


def _bridged(windows: Windows, second: int, spec: DeciderSpec) -> Windows:
    """Without a hole between the newest sample and the one to come, which the average would take for zeros.

    Seconds that no tick came in count as the one before them; after more than SILENT_SECONDS nothing is known of them,
    and the windows start anew.
    """
    stable = windows.stable
    hole = second - stable.last_s - 1
    if not stable.values or hole <= 0:
        return windows
    if hole > SILENT_SECONDS:
        return Windows.new(spec)
    held = [stable.values[-1]] * hole
    return msgspec.structs.replace(windows, stable=stable.extended(held), panic=windows.panic.extended(held))


def together(sources: Mapping[str, SourceRecord], spec: DeciderSpec) -> Windows:
    """One pair of windows over all sources."""
    parts: Sequence[Windows] = [one.windows for one in sources.values() if one.windows is not None]
    if not parts:
        return Windows.new(spec)
    if len(parts) == 1:
        return parts[0]
    return Windows(
        metric=spec.metric,
        stable=merged([part.stable for part in parts]),
        panic=merged([part.panic for part in parts]),
    )


def missing(sources: Mapping[str, SourceRecord], declared: Collection[str], second: int) -> tuple[str, ...]:
    """Declared sources that cannot be read now: their last attempt failed, or nothing came for SILENT_SECONDS."""
    if len(declared) == len(sources) == 1:
        (name,), ((found, one),) = declared, sources.items()
        if name == found:
            last_s = one.last_s
            return (name,) if one.failed_s > last_s or second - last_s > SILENT_SECONDS else ()
    newest: dict[str, int] = {}
    failed: dict[str, int] = {}
    for name, one in sources.items():
        source = name if name in declared else source_of(name)
        newest[source] = max(newest.get(source, 0), one.last_s)
        failed[source] = max(failed.get(source, 0), one.failed_s)
    return tuple(
        name
        for name in declared
        if failed.get(name, 0) > newest.get(name, 0) or second - newest.get(name, 0) > SILENT_SECONDS
    )
