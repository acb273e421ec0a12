"""One decision of the autoscaler: how many pods the load of now asks for.

`decide` is the readable version, for one autoscaler; `arrays.decide_shard` does the same for a whole shard.
Source: Knative Serving, pkg/autoscaler/scaling (autoscaler.go), whose answers the golden traces record.
"""

from __future__ import annotations

import enum
import math
from datetime import datetime
from typing import Final

import msgspec

from wainwright.autoscaling.delay import DelayWindow
from wainwright.autoscaling.instants import unix_ms, unix_second
from wainwright.autoscaling.literals import MAX_INT32, MIN_INT32
from wainwright.autoscaling.parsers import UNLIMITED
from wainwright.autoscaling.spec import DeciderSpec, first_excess_burst_capacity
from wainwright.autoscaling.windows import Averages, Windows

SCALE_UNKNOWN: Final = -1
"""No wish yet; never written to a target."""
ENDLESS_PODS: Final = 2.0**53
"""Wishes are cut here, far beyond every limit, so that an absurd load cannot overflow."""
_NOTHING: Final = Averages(0.0, 0.0)


class Verdict(enum.StrEnum):
    """Why a decision is valid, or why nothing may be changed."""

    DECIDED = "Decided"
    NO_DATA = "NoData"
    """No sample for longer than the stable window, and silence does not mean zero."""
    READY_PODS_UNKNOWN = "ReadyPodsUnknown"
    OLDER_THAN_STATE = "OlderThanState"
    """The state was made at a later instant: a late tick, or a clock that went back."""


class Limit(enum.StrEnum):
    """What moved the wish away from load divided by target, in the order of application."""

    SCALE_DOWN_RATE = "max-scale-down-rate"
    SCALE_UP_RATE = "max-scale-up-rate"
    ACTIVATION_SCALE = "activation-scale"
    PANIC = "panic"
    """Panic holds the largest wish since it began."""
    SCALE_DOWN_DELAY = "scale-down-delay"


class DeciderState(msgspec.Struct, frozen=True, kw_only=True):
    """What the next decision remembers. Times are milliseconds since 1970.

    desired: last valid wish, SCALE_UNKNOWN before the first. panic_since_ms: when panic was last entered or extended,
    None when calm. max_panic_pods: largest wish of this panic (and, before the first one, the pods that were ready at
    the start). delay: exists if there was a scale-down delay when the decider began. decided_ms: instant of the
    newest decision, valid or not; no older decision may replace this state.
    """

    desired: int = SCALE_UNKNOWN
    excess_burst_capacity: int
    panic_since_ms: int | None = None
    max_panic_pods: int = 0
    delay: DelayWindow | None = None
    decided_ms: int

    @classmethod
    def start(cls, spec: DeciderSpec, ready_pods: int | None, now: datetime) -> DeciderState:
        """A decider without a past. ready_pods None (cannot tell) counts as 0.

        With more than one pod ready it starts in panic, so that what runs is not scaled down for one stable window:
        its load is not known yet.
        """
        ready = ready_pods or 0
        now_ms = unix_ms(now)
        return cls(
            excess_burst_capacity=first_excess_burst_capacity(spec),
            panic_since_ms=now_ms if ready > 1 else None,
            max_panic_pods=ready,
            delay=DelayWindow.of(spec.scale_down_delay_s),
            decided_ms=now_ms,
        )

    def with_delay(self, spec: DeciderSpec) -> DeciderState:
        """With the spec's scale-down delay in force; wishes that it covers are kept.

        Knative only reads the delay when a decider begins, and `decide` keeps to that; call this where a changed
        setting shall count for a live one.
        """
        wanted = DelayWindow.of(spec.scale_down_delay_s)
        if wanted is not None and self.delay is not None:
            wanted = self.delay.resized(wanted.length)
        return msgspec.structs.replace(self, delay=wanted)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, named as the fields of a trace's "d" event. State fields are those after the decision.

    desired, excess_burst_capacity: None unless valid, and then nothing may be changed. stable_value, panic_value:
    None without data. limits: what moved the wish, in order; in panic, those of the value that won.
    """

    ready_pods: int | None
    desired: int | None
    excess_burst_capacity: int | None
    valid: bool
    verdict: Verdict
    panic: bool
    panic_since_ms: int | None
    max_panic_pods: int
    stable_value: float | None
    panic_value: float | None
    limits: tuple[Limit, ...] = ()


def excess_burst_capacity(spec: DeciderSpec, ready_pods: int, panic_value: float) -> int:
    """Spare load after serving the current one and keeping the burst reserve, rounded down.

    ready_pods counts what is Ready, 0 included; panic_value is summed over pods. Negative: a burst of the reserve's
    size would queue. 0 without a reserve, -1 for an endless one.
    """
    if spec.target_burst_capacity in (0.0, UNLIMITED):
        return int(spec.target_burst_capacity)
    spare = ready_pods * spec.total - spec.target_burst_capacity - panic_value
    return math.floor(min(max(spare, MIN_INT32), MAX_INT32))


def _pods_for(load: float, target: float) -> float:
    """Whole pods that the load asks for, before every limit. A float, as upstream: it may be huge."""
    return float(math.ceil(min(load / target, ENDLESS_PODS)))


def _limited(spec: DeciderSpec, wish: float, low: int, high: int) -> tuple[int, list[Limit]]:
    """A wish within the rates and from the activation scale on, and which of them moved it."""
    limits = []
    limited = wish
    if limited < low:
        limited, limits = float(low), [Limit.SCALE_DOWN_RATE]
    if limited > high:
        limited, limits = float(high), [Limit.SCALE_UP_RATE]
    pods = int(limited)
    if wish > 0 and pods < spec.activation_scale:
        pods, limits = spec.activation_scale, [Limit.ACTIVATION_SCALE]
    return pods, limits


def _undecided(verdict: Verdict, state: DeciderState, averages: Averages | None, ready_pods: int | None) -> Decision:
    return Decision(
        ready_pods=ready_pods,
        desired=None,
        excess_burst_capacity=None,
        valid=False,
        verdict=verdict,
        panic=state.panic_since_ms is not None,
        panic_since_ms=state.panic_since_ms,
        max_panic_pods=state.max_panic_pods,
        stable_value=None if averages is None else averages.stable,
        panic_value=None if averages is None else averages.panic,
    )


def decide(
    spec: DeciderSpec, state: DeciderState, windows: Windows, ready_pods: int | None, now: datetime
) -> tuple[Decision, DeciderState]:
    """How many pods the load asks for at `now`, and the state for the next decision.

    ready_pods: pods that are Ready; 0 when the target has none or is not there, None when that cannot be told.
    Without data, without a pod count, or with a state from after `now`, the decision is invalid and desired,
    excess burst capacity, panic and delay stay as they were.
    """
    now_ms = unix_ms(now)
    averages = windows.averages(now)
    if averages is None and spec.silence_is_zero:
        averages = _NOTHING
    if now_ms < state.decided_ms:
        return _undecided(Verdict.OLDER_THAN_STATE, state, averages, ready_pods), state
    state = msgspec.structs.replace(state, decided_ms=now_ms)
    if averages is None:
        return _undecided(Verdict.NO_DATA, state, averages, ready_pods), state
    if ready_pods is None:
        return _undecided(Verdict.READY_PODS_UNKNOWN, state, averages, ready_pods), state

    # The smallest number to scale from is 1: from 0 no rate would lead anywhere.
    ready = max(1, ready_pods)
    # Rate 1.1 on 2 pods gives 2.2, so round up (growing by one is always possible) ...
    high = math.ceil(min(spec.max_scale_up_rate * ready, float(MAX_INT32)))
    # ... and down on the way down: with rate 2 one pod may become none.
    low = math.floor(ready / spec.max_scale_down_rate) if spec.reachable else 0
    stable_wish = _pods_for(averages.stable, spec.target)
    panic_wish = _pods_for(averages.panic, spec.target)
    desired, limits = _limited(spec, stable_wish, low, high)

    panic_since, max_panic = state.panic_since_ms, state.max_panic_pods
    if panic_wish / ready >= spec.panic_threshold:
        panic_since = now_ms  # begins, or begins anew
    elif panic_since is not None and panic_since + 1000 * spec.stable_window_s < now_ms:
        panic_since, max_panic = None, 0
    if panic_since is not None:
        in_panic, panic_limits = _limited(spec, panic_wish, low, high)
        if in_panic > desired:
            desired, limits = in_panic, panic_limits
        if max_panic > desired:
            desired, limits = max_panic, [Limit.PANIC]
        max_panic = desired

    delay = state.delay
    if delay is not None and spec.reachable:
        delay = delay.record(unix_second(now), desired)
        if delay.maximum() > desired:
            desired, limits = delay.maximum(), [*limits, Limit.SCALE_DOWN_DELAY]

    spare = excess_burst_capacity(spec, ready_pods, averages.panic)
    decision = Decision(
        ready_pods=ready_pods,
        desired=desired,
        excess_burst_capacity=spare,
        valid=True,
        verdict=Verdict.DECIDED,
        panic=panic_since is not None,
        panic_since_ms=panic_since,
        max_panic_pods=max_panic,
        stable_value=averages.stable,
        panic_value=averages.panic,
        limits=tuple(limits),
    )
    return decision, DeciderState(
        desired=desired,
        excess_burst_capacity=spare,
        panic_since_ms=panic_since,
        max_panic_pods=max_panic,
        delay=delay,
        decided_ms=now_ms,
    )
