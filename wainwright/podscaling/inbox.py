"""Where samples wait for the next decision: one stream per shard in Redis, written in one step for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from wainwright.batching.store import Argument, Store, translated
from wainwright.podscaling.autoscalers import Roster
from wainwright.podscaling.samples import NAME_SEPARATOR, LoadRefused, Sample, believable, encode_samples, loaded_keys
from wainwright.podscaling.sharding import shard_of

KEEP_MS: Final = 120_000
"""Samples that nobody decided on for so long are given up."""
PUSHES_PER_STEP: Final = 25_000
PUSHES_KEPT: Final = 500_000
"""Pushed samples that wait at most; of more, the oldest are given up."""
FUTURE_MS: Final = 1000
"""A pushed sample further in the future is stamped with the time of its arrival."""


def record(store: Store, samples: Sequence[Sample], shards: int) -> list[str]:
    """Puts samples into the inboxes of their shards. Returns autoscalers at zero that have load: decide on them now.

    Raises StoreUnavailable; writing the same samples twice changes nothing.
    """
    return _put(store, samples, shards, "", "") if samples else []


def _put(store: Store, samples: Sequence[Sample], shards: int, expected: str, position: str) -> list[str]:
    by_shard: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_shard[shard_of(sample.key, shards)].append(sample)
    arguments: list[Argument] = [KEEP_MS, expected, position]
    for shard, part in sorted(by_shard.items()):
        loaded = loaded_keys(part)
        arguments += [shard, encode_samples(part), len(loaded), *loaded]
    answer: Any = store.run("kpa_record", *arguments)
    return [str(key) for key in answer]


class Push(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One report of an application. pa: `namespace/name`. source: name of the push source, empty for its first.
    reporter: who reports; loads of different reporters add up, a reporter's repeats replace. at_ms: unix time it was
    measured at; 0: now.
    """

    value: float
    pa: str = ""
    source: str = ""
    reporter: str = ""
    at_ms: int = 0


class PushRefused(ValueError):
    """What is wrong with which report."""


def push(store: Store, pushes: Sequence[Push]) -> None:
    """Notes reports in the stream that applications may also write to themselves. Raises PushRefused (nothing is noted
    then), StoreUnavailable.
    """
    for number, one in enumerate(pushes):
        if one.pa.count("/") != 1 or one.pa.startswith("/") or one.pa.endswith("/"):
            raise PushRefused(f"item {number}: pa {one.pa!r} is not namespace/name")
        if one.at_ms < 0:
            raise PushRefused(f"item {number}: at_ms {one.at_ms} is negative")
        try:
            believable(one.value)
        except LoadRefused as error:
            raise PushRefused(f"item {number}: value {error}") from error
    with translated():
        pipe: Any = store.redis.pipeline(transaction=False)
        for one in pushes:
            fields: dict[str, str] = {"pa": one.pa, "value": repr(one.value)}
            fields |= {name: text for name, text in (("source", one.source), ("reporter", one.reporter)) if text}
            if one.at_ms:
                fields["at_ms"] = str(one.at_ms)
            pipe.xadd(store.keys.kpa_push, fields, maxlen=PUSHES_KEPT, approximate=True)
        pipe.execute()


class TakenOver(NamedTuple):
    """taken: pushed samples that were taken over; refused: why others were not, each reason with one example; awake:
    autoscalers at zero that have load.
    """

    taken: int
    refused: dict[str, str]
    awake: list[str]


def take_pushes(store: Store, roster: Roster, shards: int) -> TakenOver:
    """Takes what applications pushed over into the inboxes. Raises StoreUnavailable.

    Where two do so at once, one of them does; the position moves in the step that writes the samples.
    """
    keys = store.keys
    expected = str(store.read(lambda redis: redis.get(keys.kpa_push_read)) or "")
    entries: Any = store.read(
        lambda redis: redis.xrange(keys.kpa_push, min=f"({expected}" if expected else "-", count=PUSHES_PER_STEP)
    )
    if not entries:
        return TakenOver(0, {}, [])
    refused: dict[str, str] = {}
    samples = list(_pushed(entries, roster, refused))
    awake = _put(store, samples, shards, expected, str(entries[-1][0]))
    return TakenOver(len(samples), refused, awake)


def _pushed(entries: Any, roster: Roster, refused: dict[str, str]) -> Iterable[Sample]:
    for identity, fields in entries:
        try:
            yield _push(str(identity), fields, roster)
        except ValueError as error:
            refused.setdefault(str(error), f"{fields.get('pa', '?')} at {identity}")


def _push(identity: str, fields: dict[str, str], roster: Roster) -> Sample:
    """Raises ValueError (LoadRefused) with what is wrong."""
    one = roster.by_key.get(fields.get("pa", ""))
    if one is None:
        raise ValueError("no such PodAutoscaler")
    wanted = fields.get("source", "")
    names = [name for name, source in one.sources.items() if source.type == "push" and wanted in ("", name)]
    if not names:
        raise ValueError("it has no push source of that name" if wanted else "it has no push source")
    try:
        value = believable(float(fields.get("value", "")))
    except LoadRefused:
        raise
    except ValueError:
        raise ValueError("the value is no number") from None
    arrived_ms = int(identity.partition("-")[0])
    at = fields.get("at_ms", "")
    at_ms = int(at) if at.isdigit() and len(at) <= 15 else arrived_ms
    reporter = fields.get("reporter", "")[:253]
    name = f"{names[0]}{NAME_SEPARATOR}{reporter}" if reporter else names[0]
    return Sample(one.key, name, min(at_ms, arrived_ms + FUTURE_MS) // 1000, value)
