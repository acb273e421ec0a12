"""A shard's decisions: read windows and load of all its autoscalers at once, decide with array arithmetic, write once.

The number of Redis round trips does not grow with the number of autoscalers. Everything is decided at one instant of
the Redis server's clock; what somebody decided meanwhile is not overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from wainwright.autoscaling.arrays import decide_shard
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import SCALE_UNKNOWN, DeciderState, Decision, Verdict
from wainwright.autoscaling.instants import from_unix_ms, unix_ms, unix_second
from wainwright.autoscaling.windows import Windows
from wainwright.batching.store import Argument, Store, translated
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.kube.view import check_view
from wainwright.podscaling.autoscalers import Autoscaler, Roster, RosterCache, TargetKey
from wainwright.podscaling.dynamic_config import decode_config
from wainwright.podscaling.folding import folded, missing, together
from wainwright.podscaling.records import Record, decode_record, encode_record
from wainwright.podscaling.samples import Sample, decode_samples
from wainwright.podscaling.targets import VIEWED, TargetFacts, viewed_facts

LAG: Final = timedelta(seconds=2)
"""Decisions are made as of so long ago. A sample needs up to two seconds from its source into the windows; without the
lag, the newest seconds would look empty to a decision that comes before it, and a panic window of one second always
would. Samples that are newer count all the same.
"""
CLOCK_TOLERANCE_MS: Final = 10_000
"""A clock that went back by more is not waited for: the windows start anew."""
_FIRST: Final = "0-0"
_VIEW: Final = POD_AUTOSCALERS.plural


class Decided(NamedTuple):
    """One autoscaler after a pass. record: as in Redis now. missing: sources that could not be read. written: False
    when somebody else decided meanwhile, and this decision is void. clock_back_s: how far the clock was behind the
    record.
    """

    autoscaler: Autoscaler
    target: TargetFacts
    record: Record
    decision: Decision
    missing: tuple[str, ...] = ()
    written: bool = True
    clock_back_s: float = 0.0

    @property
    def desired(self) -> int:
        return self.record.state.desired


class Pass(NamedTuple):
    """What one pass did. now: its instant. aside: autoscalers that cannot work (faulty, or another's target)."""

    now: datetime
    config: AutoscalerConfig
    decided: list[Decided]
    aside: list[Autoscaler]

    @property
    def refused(self) -> int:
        return sum(not one.written for one in self.decided)


class _Read(NamedTuple):
    now: datetime
    records: list[Record | None]
    specs: list[bytes | None]
    facts: dict[TargetKey, TargetFacts]
    inboxes: dict[int, list[tuple[str, list[Sample]]]]


class ShardDecider:
    """Decides for shards, or for single autoscalers (a poke). Thread-safe.

    other_targets: facts of targets that the view does not show.
    """

    def __init__(
        self,
        store: Store,
        shards: int,
        other_targets: Callable[[Iterable[TargetKey]], dict[TargetKey, TargetFacts]],
    ) -> None:
        self._store = store
        self._others = other_targets
        self._rosters = RosterCache(shards)

    def roster(self) -> tuple[Roster, AutoscalerConfig]:
        """The autoscalers there are. Raises ViewNotReady, also while no valid configuration is known."""
        keys = self._store.keys
        with translated():
            pipe = self._store.raw.pipeline(transaction=True)
            pipe.time()
            pipe.hgetall(keys.view_meta)
            pipe.get(keys.kpa_config)
            (seconds, micros), raw_meta, config_text = pipe.execute()
            meta = {field.decode(): value.decode() for field, value in raw_meta.items()}
            check_view(meta, int(seconds) * 1000 + int(micros) // 1000)
            config = decode_config(config_text)
            stamp = (meta["epoch"], meta.get(f"rv:{_VIEW}", ""))
            roster = self._rosters.known(stamp, config)
            if roster is None:
                roster = self._rosters.build(stamp, config, self._raw_values(_VIEW))
        return roster, config

    def _raw_values(self, kind: str) -> list[bytes]:
        values: Any = self._store.raw.hvals(self._store.keys.view(kind))
        return list(values)

    def decide(self, shard: int) -> Pass:
        """All of a shard. Raises ViewNotReady, StoreUnavailable."""
        roster, config = self.roster()
        chosen = roster.shard(shard)
        return self._decide(chosen, config, trims=shard)

    def decide_keys(self, keys: Iterable[str]) -> Pass:
        """Some autoscalers of any shards, at once; those that do not exist are left out. Raises as `decide`."""
        roster, config = self.roster()
        return self._decide(roster.named(keys), config)

    def forget_gone(self) -> int:
        """Forgets what is kept of autoscalers that do not exist any more and whose end nobody saw; how many there were.

        Raises as `decide`.
        """
        roster, _ = self.roster()
        known: Any = self._store.read(lambda redis: redis.hkeys(self._store.keys.kpa_specs))
        gone = [key for key in known if key not in roster.by_key]
        return int(self._store.run("kpa_forget", *gone)) if gone else 0

    def look(self, keys: Iterable[str]) -> Pass:
        """What was decided last, with targets as they are now: nothing is decided or written. Raises as `decide`."""
        roster, config = self.roster()
        chosen, aside = _working(roster.named(keys))
        read = self._read(chosen)
        found = [
            Decided(
                one,
                read.facts[one.target],
                record,
                record.last,
                missing(record.sources, one.sources, unix_second(read.now)),
            )
            for one, record in zip(chosen, read.records, strict=True)
            if record is not None and record.last is not None and record.uid == one.uid
        ]
        return Pass(read.now, config, found, aside)

    # Reading ----------------------------------------------------------------------------------------------------------

    def _read(self, chosen: Sequence[Autoscaler]) -> _Read:
        keys = self._store.keys
        viewed: defaultdict[str, list[TargetKey]] = defaultdict(list)
        others: list[TargetKey] = []
        for target in dict.fromkeys(one.target for one in chosen):
            resource = VIEWED.get((target.group, target.kind))
            if resource is None:
                others.append(target)
            else:
                viewed[resource.plural].append(target)
        shards = sorted({one.shard for one in chosen})
        with translated():
            pipe: Any = self._store.raw.pipeline(transaction=True)
            pipe.time()
            for kind, targets in viewed.items():
                pipe.hmget(keys.view(kind), [target.key for target in targets])
            if chosen:
                pipe.mget([keys.kpa_state(one.key) for one in chosen])
                pipe.hmget(keys.kpa_specs, [one.key for one in chosen])
            for shard in shards:
                pipe.xrange(keys.kpa_inbox(shard))
            (seconds, micros), *answers = pipe.execute()
        facts = self._others(others) if others else {}
        for targets in viewed.values():
            for target, text in zip(targets, answers.pop(0), strict=True):
                facts[target] = viewed_facts(text, target)
        records = [decode_record(text) for text in answers.pop(0)] if chosen else []
        specs = answers.pop(0) if chosen else []
        inboxes = {shard: [_entry(*entry) for entry in answers.pop(0)] for shard in shards}
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return _Read(from_unix_ms(now_ms), records, specs, facts, inboxes)

    # Deciding ---------------------------------------------------------------------------------------------------------

    def _decide(self, wanted: Sequence[Autoscaler], config: AutoscalerConfig, trims: int | None = None) -> Pass:
        chosen, aside = _working(wanted)
        read = self._read(chosen)
        as_of = read.now - LAG
        second = unix_second(read.now)
        by_key: dict[str, list[tuple[str, Sample]]] = {one.key: [] for one in chosen}
        for entries in read.inboxes.values():
            for entry, samples in entries:
                for sample in samples:
                    if sample.key in by_key:
                        by_key[sample.key].append((entry, sample))
        newest = {shard: entries[-1][0] if entries else _FIRST for shard, entries in read.inboxes.items()}

        before: list[Record] = []
        windows: list[Windows] = []
        backs: list[int] = []
        for one, stored in zip(chosen, read.records, strict=True):
            record, back_ms = self._begun(one, stored, read.facts[one.target], as_of)
            folded_up_to = _entry_order(record.folded)
            fresh = [sample for entry, sample in by_key[one.key] if _entry_order(entry) > folded_up_to]
            sources = folded(record.sources, fresh, one.spec, one.sources, second)
            last_entry = newest[one.shard]
            before.append(
                msgspec.structs.replace(
                    record, folded=max(record.folded, last_entry, key=_entry_order), sources=sources
                )
            )
            windows.append(together(sources, one.spec))
            backs.append(back_ms)
        ready = [read.facts[one.target].ready for one in chosen]
        decisions, states = decide_shard(
            [one.spec for one in chosen], [record.state for record in before], windows, ready, as_of
        )
        decided: list[Decided] = []
        for one, stored, record, free, new_state, back_ms in zip(
            chosen, read.records, before, decisions, states, backs, strict=True
        ):
            absent = missing(record.sources, one.sources, second)
            decision, state = free, new_state
            if absent and free.valid and not one.spec.silence_is_zero:
                decision, state = held(free, new_state, record.state)
            after = msgspec.structs.replace(record, decided_ms=unix_ms(as_of), state=state, last=decision)
            if decision.verdict is Verdict.OLDER_THAN_STATE and stored is not None:
                after = stored
            facts = read.facts[one.target]
            decided.append(Decided(one, facts, after, decision, absent, clock_back_s=back_ms / 1000))
        return Pass(read.now, config, self._commit(decided, read, newest, trims), aside)

    def _begun(self, one: Autoscaler, stored: Record | None, facts: TargetFacts, now: datetime) -> tuple[Record, int]:
        """The record to go on from, and by how many ms the clock is behind it."""
        now_ms = unix_ms(now)
        if stored is None or stored.uid != one.uid:
            state = DeciderState.start(one.spec, facts.ready, now)
            return Record(decided_ms=now_ms, uid=one.uid, state=state), 0
        back_ms = max(0, stored.decided_ms - now_ms)
        if back_ms > CLOCK_TOLERANCE_MS:
            state = msgspec.structs.replace(
                DeciderState.start(one.spec, facts.ready, now), desired=stored.state.desired
            )
            return Record(decided_ms=now_ms, uid=one.uid, state=state, folded=stored.folded), back_ms
        state = stored.state
        if (state.delay.length if state.delay is not None else 0) != -(-one.spec.scale_down_delay_s // 2):
            # The object is mutable, so a changed delay counts at once (upstream: never for a live scaler).
            stored = msgspec.structs.replace(stored, state=state.with_delay(one.spec))
        return stored, back_ms

    # Writing ----------------------------------------------------------------------------------------------------------

    def _commit(self, decided: list[Decided], read: _Read, newest: dict[int, str], trims: int | None) -> list[Decided]:
        """Writes all in one script; what was decided by somebody else meanwhile comes back as not written."""
        arguments: list[Argument] = []
        places: list[int] = []
        for place, (one, stored, spec) in enumerate(zip(decided, read.records, read.specs, strict=True)):
            if one.decision.verdict is Verdict.OLDER_THAN_STATE:
                continue
            known = stored.state.desired if stored is not None and stored.uid == one.autoscaler.uid else SCALE_UNKNOWN
            wish = one.desired
            new_wish = wish != SCALE_UNKNOWN and (wish != known or _sign(one.record) != _sign(stored))
            arguments += [
                one.autoscaler.key,
                "" if stored is None else stored.decided_ms,
                encode_record(one.record),
                "anew" if one.clock_back_s else "",
                one.autoscaler.spec_text if spec != one.autoscaler.spec_text else "",
                wish if new_wish else "",
                1 if new_wish else 0,
            ]
            places.append(place)
        if not arguments:
            return decided
        everything = len(places) == len(decided)  # what was skipped still needs its samples
        trim = newest.get(trims, "") if trims is not None and everything else ""
        refused = {int(number) for number in self._store.run("kpa_commit", trims or 0, _after(trim), *arguments)}
        for number, place in enumerate(places, start=1):
            if number in refused:
                decided[place] = decided[place]._replace(written=False)
        return decided


def _working(autoscalers: Sequence[Autoscaler]) -> tuple[list[Autoscaler], list[Autoscaler]]:
    """Those that can work, and the others."""
    aside = [one for one in autoscalers if not one.is_ours_to_scale]
    return [one for one in autoscalers if one.is_ours_to_scale], aside


def held(decision: Decision, state: DeciderState, before: DeciderState) -> tuple[Decision, DeciderState]:
    """What the sources that could be read say is a lower bound: it may raise the wish, never lower it.

    Without an earlier wish the pods that are ready stay.
    """
    floor = before.desired if before.desired != SCALE_UNKNOWN else decision.ready_pods or 0
    if decision.desired is None or decision.desired >= floor:
        return decision, state
    return msgspec.structs.replace(decision, desired=floor), msgspec.structs.replace(state, desired=floor)


def _sign(record: Record | None) -> bool:
    """Is there no room for a burst any more? Who scales cares about this, not about the number."""
    return record is not None and record.state.excess_burst_capacity < 0


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> tuple[str, list[Sample]]:
    try:
        return identity.decode(), decode_samples(fields[b"samples"])
    except (KeyError, msgspec.MsgspecError):
        return identity.decode(), []


def _entry_order(identity: str) -> tuple[int, int]:
    milliseconds, _, number = identity.partition("-")
    return int(milliseconds), int(number or 0)


def _after(identity: str) -> str:
    """The first id behind an entry; empty for none."""
    if not identity or identity == _FIRST:
        return ""
    milliseconds, number = _entry_order(identity)
    return f"{milliseconds}-{number + 1}"
