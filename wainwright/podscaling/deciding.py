"""A shard's decisions: read windows and load of all its autoscalers at once, decide with array arithmetic, write once.

The number of Redis round trips does not grow with the number of autoscalers. Everything is decided at one instant of
the Redis server's clock; what somebody decided meanwhile is not overwritten.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from wainwright.autoscaling.arrays import UNKNOWN_READY, StateArrays, decide_arrays
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.decider import SCALE_UNKNOWN, DeciderState, Decision, Verdict
from wainwright.autoscaling.instants import from_unix_ms, unix_ms, unix_second
from wainwright.autoscaling.window_arrays import WindowArrays
from wainwright.batching.store import Argument, Store, translated
from wainwright.kube.resources import POD_AUTOSCALERS
from wainwright.kube.view import check_view
from wainwright.podscaling.autoscalers import Autoscaler, Chosen, Roster, RosterCache, TargetKey
from wainwright.podscaling.dynamic_config import decode_config
from wainwright.podscaling.folding import folded, missing, together
from wainwright.podscaling.records import LastDecision, Record, SourceRecord, decode_record, encode_record
from wainwright.podscaling.samples import Sample, decode_samples
from wainwright.podscaling.targets import VIEWED, TargetFacts, viewed_facts

LAG: Final = timedelta(seconds=2)
"""Decisions are made as of so long ago. A sample needs up to two seconds from its source into the windows; without the
lag, the newest seconds would look empty to a decision that comes before it, and a panic window of one second always
would. Samples that are newer count all the same.
"""
CLOCK_TOLERANCE_MS: Final = 10_000
"""A clock that went back by more is not waited for: the windows start anew."""
EntryId = tuple[int, int]
"""Of a stream entry: milliseconds and number, so that ids compare as the server compares them."""
FIRST: Final[EntryId] = (0, 0)
_DECIDED: Final = re.compile(rb'^\{"decided_ms":(\d+)')
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
    """What one pass has read. records: None where there is none, or none that can be read; expected: decided_ms that
    stands in Redis, empty for none. inboxes: by shard, oldest entry first.
    """

    now: datetime
    records: list[Record | None]
    expected: list[str]
    specs: list[bytes | None]
    facts: dict[TargetKey, TargetFacts]
    inboxes: dict[int, list[tuple[EntryId, list[Sample]]]]


class _Begun(NamedTuple):
    """Where a decision goes on from. back_ms: by how much the clock is behind the record."""

    uid: str
    folded: EntryId
    state: DeciderState
    sources: dict[str, SourceRecord]
    back_ms: int = 0


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
        return self._decide(roster.shard(shard), config, trims=shard)

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
        chosen = roster.named(keys)
        read = self._read(chosen.working)
        second = unix_second(read.now)
        found = [
            Decided(
                one,
                read.facts[one.target],
                record,
                record.last.with_state(record.state),
                missing(record.sources, one.sources, second),
            )
            for one, record in zip(chosen.working, read.records, strict=True)
            if record is not None and record.last is not None and record.uid == one.uid
        ]
        return Pass(read.now, config, found, chosen.aside)

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
        texts = answers.pop(0) if chosen else []
        records = [decode_record(text) for text in texts]
        expected = [_decided_ms(text, record) for text, record in zip(texts, records, strict=True)]
        specs = answers.pop(0) if chosen else []
        inboxes = {shard: [_entry(*entry) for entry in answers.pop(0)] for shard in shards}
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return _Read(from_unix_ms(now_ms), records, expected, specs, facts, inboxes)

    # Deciding ---------------------------------------------------------------------------------------------------------

    def _decide(self, chosen: Chosen, config: AutoscalerConfig, trims: int | None = None) -> Pass:
        """trims: the shard that is decided as a whole, whose inbox is emptied by it."""
        working = chosen.working
        if not working:
            return Pass(self._now(), config, [], chosen.aside)
        read = self._read(working)
        as_of = read.now - LAG
        second = unix_second(read.now)
        begun = self._folded(working, read, as_of, second)
        windows = [together(one.sources, of.spec) for one, of in zip(begun, working, strict=True)]
        ready = [read.facts[one.target].ready for one in working]
        decisions, states = decide_arrays(
            chosen.specs,
            StateArrays.of([one.state for one in begun]),
            WindowArrays.of([one.stable for one in windows], [one.panic for one in windows]),
            np.array([UNKNOWN_READY if count is None else count for count in ready], dtype=np.int64),
            as_of,
        )
        decided: list[Decided] = []
        as_of_ms = unix_ms(as_of)
        for one, stored, base, free, new_state in zip(
            working, read.records, begun, decisions.values(), states.values(), strict=True
        ):
            absent = missing(base.sources, one.sources, second)
            decision, state = free, new_state
            if absent and free.valid and not one.spec.silence_is_zero:
                decision, state = held(free, new_state, base.state)
            if decision.verdict is Verdict.OLDER_THAN_STATE and stored is not None:
                after = stored
            else:
                after = Record(
                    decided_ms=as_of_ms,
                    uid=base.uid,
                    folded=_entry_text(base.folded),
                    state=state,
                    last=LastDecision.of(decision),
                    sources=base.sources,
                )
            facts = read.facts[one.target]
            decided.append(Decided(one, facts, after, decision, absent, clock_back_s=base.back_ms / 1000))
        return Pass(read.now, config, self._commit(decided, read, trims), chosen.aside)

    def _folded(self, working: Sequence[Autoscaler], read: _Read, as_of: datetime, second: int) -> list[_Begun]:
        """Where each goes on from, with what its inbox held in its windows."""
        fresh: defaultdict[str, list[Sample]] = defaultdict(list)
        for entries in read.inboxes.values():
            for _, samples in entries:
                for sample in samples:
                    fresh[sample.key].append(sample)
        oldest = {shard: entries[0][0] if entries else FIRST for shard, entries in read.inboxes.items()}
        newest = {shard: entries[-1][0] if entries else FIRST for shard, entries in read.inboxes.items()}
        begun: list[_Begun] = []
        for one, stored in zip(working, read.records, strict=True):
            base = self._begun(one, stored, read.facts[one.target], as_of)
            new: Sequence[Sample] = fresh.get(one.key, ())
            if base.folded >= oldest[one.shard]:
                new = _behind(base.folded, read.inboxes[one.shard], one.key)
            sources = folded(base.sources, new, one.spec, one.sources, second)
            up_to = max(base.folded, newest[one.shard])
            begun.append(_Begun(base.uid, up_to, base.state, sources, base.back_ms))
        return begun

    def _begun(self, one: Autoscaler, stored: Record | None, facts: TargetFacts, as_of: datetime) -> _Begun:
        if stored is None or stored.uid != one.uid:
            return _Begun(one.uid, FIRST, DeciderState.start(one.spec, facts.ready, as_of), {})
        entry = _entry_id(stored.folded)
        back_ms = max(0, stored.decided_ms - unix_ms(as_of))
        state = stored.state
        if back_ms > CLOCK_TOLERANCE_MS:
            anew = DeciderState.start(one.spec, facts.ready, as_of)
            return _Begun(one.uid, entry, msgspec.structs.replace(anew, desired=state.desired), {}, back_ms)
        if (state.delay.length if state.delay is not None else 0) != -(-one.spec.scale_down_delay_s // 2):
            # The object is mutable, so a changed delay counts at once (upstream: never for a live scaler).
            state = state.with_delay(one.spec)
        return _Begun(one.uid, entry, state, stored.sources, back_ms)

    def _now(self) -> datetime:
        return from_unix_ms(self._store.now_ms())

    # Writing ----------------------------------------------------------------------------------------------------------

    def _commit(self, decided: list[Decided], read: _Read, trims: int | None) -> list[Decided]:
        """Writes all in one script; what was decided by somebody else meanwhile comes back as not written."""
        records: list[Argument] = []
        more: list[Argument] = []
        places: list[int] = []
        for place, (one, stored) in enumerate(zip(decided, read.records, strict=True)):
            if one.decision.verdict is Verdict.OLDER_THAN_STATE:
                continue
            key, uid = one.autoscaler.key, one.autoscaler.uid
            places.append(place)
            records += [key, read.expected[place], encode_record(one.record)]
            known = stored.state.desired if stored is not None and stored.uid == uid else SCALE_UNKNOWN
            wish = one.desired
            new_wish = wish != SCALE_UNKNOWN and (wish != known or _is_short(one.record) != _is_short(stored))
            new_spec = read.specs[place] != one.autoscaler.spec_text
            if new_wish or new_spec or one.clock_back_s:
                more += [
                    len(places),
                    "anew" if one.clock_back_s else "",
                    one.autoscaler.spec_text if new_spec else "",
                    wish if new_wish else "",
                    1 if new_wish else 0,
                ]
        if not places:
            return decided
        trim = ""
        if trims is not None and len(places) == len(decided):  # what was skipped still needs its samples
            entries = read.inboxes[trims]
            trim = _entry_text(_following(entries[-1][0])) if entries else ""
        answer = self._store.run("kpa_commit", trims or 0, trim, len(places), *records, *more)
        for number in answer:
            place = places[int(number) - 1]
            decided[place] = decided[place]._replace(written=False)
        return decided


def held(decision: Decision, state: DeciderState, before: DeciderState) -> tuple[Decision, DeciderState]:
    """What the sources that could be read say is a lower bound: it may raise the wish, never lower it.

    Without an earlier wish the pods that are ready stay.
    """
    floor = before.desired if before.desired != SCALE_UNKNOWN else decision.ready_pods or 0
    if decision.desired is None or decision.desired >= floor:
        return decision, state
    return msgspec.structs.replace(decision, desired=floor), msgspec.structs.replace(state, desired=floor)


def _is_short(record: Record | None) -> bool:
    """Is there no room for a burst any more? Who scales cares about this, not about the number."""
    return record is not None and record.state.excess_burst_capacity < 0


def _decided_ms(text: bytes | None, record: Record | None) -> str:
    """What the script will find, also in a record that cannot be read any more."""
    if record is not None:
        return str(record.decided_ms)
    found = _DECIDED.match(text or b"")
    return found[1].decode() if found else ""


def _behind(folded_up_to: EntryId, entries: Sequence[tuple[EntryId, list[Sample]]], key: str) -> list[Sample]:
    """One autoscaler's samples in the entries that are not in its windows yet."""
    return [sample for entry, samples in entries if entry > folded_up_to for sample in samples if sample.key == key]


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> tuple[EntryId, list[Sample]]:
    try:
        return _entry_id(identity.decode()), decode_samples(fields[b"samples"])
    except (KeyError, msgspec.MsgspecError):
        return _entry_id(identity.decode()), []


def _entry_id(text: str) -> EntryId:
    milliseconds, _, number = text.partition("-")
    return int(milliseconds), int(number or 0)


def _entry_text(entry: EntryId) -> str:
    return f"{entry[0]}-{entry[1]}"


def _following(entry: EntryId) -> EntryId:
    return entry[0], entry[1] + 1
