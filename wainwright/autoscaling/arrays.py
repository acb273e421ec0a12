"""Decisions for a whole shard at once. Equal to `decider.decide`, which says what each step means.

A property test keeps both equal: bit for bit under linear averaging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from wainwright.autoscaling.decider import ENDLESS_PODS, DeciderState, Decision, Limit, Verdict
from wainwright.autoscaling.delay_arrays import DelayArrays
from wainwright.autoscaling.instants import unix_ms, unix_second
from wainwright.autoscaling.literals import MAX_INT32, MIN_INT32
from wainwright.autoscaling.parsers import UNLIMITED
from wainwright.autoscaling.spec import DeciderSpec
from wainwright.autoscaling.window_arrays import Bools, Floats, Ints, WindowArrays
from wainwright.autoscaling.windows import Windows

UNKNOWN_READY: Final = -1
"""In an array of ready pods: cannot tell."""
_CALM: Final = -1
_VERDICTS: Final = (
    Verdict.DECIDED,
    Verdict.OLDER_THAN_STATE,
    Verdict.NO_DATA,
    Verdict.READY_PODS_UNKNOWN,
)
_LIMITS: Final[tuple[tuple[Limit, ...], ...]] = (
    (),
    (Limit.SCALE_DOWN_RATE,),
    (Limit.SCALE_UP_RATE,),
    (Limit.ACTIVATION_SCALE,),
    (Limit.PANIC,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecArrays:
    """The fields of DeciderSpec that a decision reads, one item per autoscaler."""

    target: Floats
    total: Floats
    target_burst_capacity: Floats
    panic_threshold: Floats
    max_scale_up_rate: Floats
    max_scale_down_rate: Floats
    activation_scale: Ints
    stable_window_ms: Ints
    reachable: Bools
    silence_is_zero: Bools

    @classmethod
    def of(cls, specs: Sequence[DeciderSpec]) -> SpecArrays:
        return cls(
            target=np.array([spec.target for spec in specs], dtype=np.float64),
            total=np.array([spec.total for spec in specs], dtype=np.float64),
            target_burst_capacity=np.array([spec.target_burst_capacity for spec in specs], dtype=np.float64),
            panic_threshold=np.array([spec.panic_threshold for spec in specs], dtype=np.float64),
            max_scale_up_rate=np.array([spec.max_scale_up_rate for spec in specs], dtype=np.float64),
            max_scale_down_rate=np.array([spec.max_scale_down_rate for spec in specs], dtype=np.float64),
            activation_scale=np.array([spec.activation_scale for spec in specs], dtype=np.int64),
            stable_window_ms=np.array([1000 * spec.stable_window_s for spec in specs], dtype=np.int64),
            reachable=np.array([spec.reachable for spec in specs], dtype=np.bool_),
            silence_is_zero=np.array([spec.silence_is_zero for spec in specs], dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateArrays:
    """The fields of DeciderState, one item per autoscaler; panic_since_ms is -1 when calm."""

    desired: Ints
    excess_burst_capacity: Ints
    panic_since_ms: Ints
    max_panic_pods: Ints
    decided_ms: Ints
    delay: DelayArrays

    @classmethod
    def of(cls, states: Sequence[DeciderState]) -> StateArrays:
        return cls(
            desired=np.array([state.desired for state in states], dtype=np.int64),
            excess_burst_capacity=np.array([state.excess_burst_capacity for state in states], dtype=np.int64),
            panic_since_ms=np.array(
                [_CALM if state.panic_since_ms is None else state.panic_since_ms for state in states], dtype=np.int64
            ),
            max_panic_pods=np.array([state.max_panic_pods for state in states], dtype=np.int64),
            decided_ms=np.array([state.decided_ms for state in states], dtype=np.int64),
            delay=DelayArrays.of([state.delay for state in states]),
        )

    def values(self) -> list[DeciderState]:
        return [
            DeciderState(
                desired=desired,
                excess_burst_capacity=spare,
                panic_since_ms=None if since == _CALM else since,
                max_panic_pods=max_panic,
                delay=delay,
                decided_ms=decided,
            )
            for desired, spare, since, max_panic, delay, decided in zip(
                self.desired.tolist(),
                self.excess_burst_capacity.tolist(),
                self.panic_since_ms.tolist(),
                self.max_panic_pods.tolist(),
                self.delay.values(),
                self.decided_ms.tolist(),
                strict=True,
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionArrays:
    """The fields of Decision, one item per autoscaler.

    verdict: place in _VERDICTS, 0 for a valid decision; desired and excess_burst_capacity mean nothing elsewhere.
    limit: place in _LIMITS; delayed: the scale-down delay raised the wish besides.
    """

    ready_pods: Ints
    desired: Ints
    excess_burst_capacity: Ints
    verdict: Ints
    panic_since_ms: Ints
    max_panic_pods: Ints
    stable_value: Floats
    panic_value: Floats
    known: Bools
    limit: Ints
    delayed: Bools

    @property
    def valid(self) -> Bools:
        return np.equal(self.verdict, 0)

    def values(self) -> list[Decision]:
        return [
            Decision(
                ready_pods=None if ready == UNKNOWN_READY else ready,
                desired=desired if verdict == 0 else None,
                excess_burst_capacity=spare if verdict == 0 else None,
                valid=verdict == 0,
                verdict=_VERDICTS[verdict],
                panic=since != _CALM,
                panic_since_ms=None if since == _CALM else since,
                max_panic_pods=max_panic,
                stable_value=stable if known else None,
                panic_value=panic if known else None,
                limits=() if verdict else (*_LIMITS[limit], *((Limit.SCALE_DOWN_DELAY,) if delayed else ())),
            )
            for ready, desired, spare, verdict, since, max_panic, stable, panic, known, limit, delayed in zip(
                self.ready_pods.tolist(),
                self.desired.tolist(),
                self.excess_burst_capacity.tolist(),
                self.verdict.tolist(),
                self.panic_since_ms.tolist(),
                self.max_panic_pods.tolist(),
                self.stable_value.tolist(),
                self.panic_value.tolist(),
                self.known.tolist(),
                self.limit.tolist(),
                self.delayed.tolist(),
                strict=True,
            )
        ]


def _limited(spec: SpecArrays, wish: Floats, low: Floats, high: Floats) -> tuple[Ints, Ints]:
    """Wishes within the rates and from the activation scale on, and the place in _LIMITS of what moved each."""
    pods = np.minimum(np.maximum(wish, low), high).astype(np.int64)
    limit = np.where(wish < low, 1, np.where(wish > high, 2, 0))
    raised = (wish > 0) & (pods < spec.activation_scale)
    return np.where(raised, spec.activation_scale, pods), np.where(raised, 3, limit)


@np.errstate(over="ignore", invalid="ignore")  # absurd loads end as the largest wish, as in the scalar version
def decide_arrays(
    spec: SpecArrays, state: StateArrays, windows: WindowArrays, ready_pods: Ints, now: datetime
) -> tuple[DecisionArrays, StateArrays]:
    """One decision per autoscaler at `now`, and the states for the next ones.

    ready_pods: pods that are Ready, UNKNOWN_READY where that cannot be told.
    """
    now_ms, second = unix_ms(now), unix_second(now)
    stable, panic, known = windows.averages(second)
    known = known | spec.silence_is_zero
    older = now_ms < state.decided_ms
    verdict = np.where(older, 1, np.where(~known, 2, np.where(ready_pods == UNKNOWN_READY, 3, 0)))
    valid = verdict == 0

    ready = np.maximum(1, ready_pods)
    high = np.ceil(np.minimum(spec.max_scale_up_rate * ready, float(MAX_INT32)))
    low = np.where(spec.reachable, np.floor(ready / spec.max_scale_down_rate), 0.0)
    stable_wish = np.ceil(np.minimum(stable / spec.target, ENDLESS_PODS))
    panic_wish = np.ceil(np.minimum(panic / spec.target, ENDLESS_PODS))
    desired, limit = _limited(spec, stable_wish, low, high)

    over = panic_wish / ready >= spec.panic_threshold
    calm = state.panic_since_ms == _CALM
    ended = ~over & ~calm & (state.panic_since_ms + spec.stable_window_ms < now_ms)
    since = np.where(over, now_ms, np.where(ended, _CALM, state.panic_since_ms))
    max_panic = np.where(ended, 0, state.max_panic_pods)
    panicking = since != _CALM
    in_panic, panic_limit = _limited(spec, panic_wish, low, high)
    larger = panicking & (in_panic > desired)
    desired, limit = np.where(larger, in_panic, desired), np.where(larger, panic_limit, limit)
    held = panicking & (max_panic > desired)
    desired, limit = np.where(held, max_panic, desired), np.where(held, 4, limit)
    max_panic = np.where(panicking, desired, max_panic)

    delay, largest = state.delay.record(second, desired, valid & spec.reachable)
    delayed = largest > desired
    desired = np.where(delayed, largest, desired)

    burst = spec.target_burst_capacity
    spare = np.floor(np.minimum(np.maximum(ready_pods * spec.total - burst - panic, MIN_INT32), MAX_INT32))
    spare = np.where((burst == 0.0) | (burst == UNLIMITED), burst, spare).astype(np.int64)

    new = StateArrays(
        desired=np.where(valid, desired, state.desired),
        excess_burst_capacity=np.where(valid, spare, state.excess_burst_capacity),
        panic_since_ms=np.where(valid, since, state.panic_since_ms),
        max_panic_pods=np.where(valid, max_panic, state.max_panic_pods),
        decided_ms=np.where(older, state.decided_ms, now_ms),
        delay=delay,
    )
    decisions = DecisionArrays(
        ready_pods=ready_pods,
        desired=desired,
        excess_burst_capacity=spare,
        verdict=verdict,
        panic_since_ms=new.panic_since_ms,
        max_panic_pods=new.max_panic_pods,
        stable_value=stable,
        panic_value=panic,
        known=known,
        limit=limit,
        delayed=delayed,
    )
    return decisions, new


def decide_shard(
    specs: Sequence[DeciderSpec],
    states: Sequence[DeciderState],
    windows: Sequence[Windows],
    ready_pods: Sequence[int | None],
    now: datetime,
) -> tuple[list[Decision], list[DeciderState]]:
    """`decider.decide` for each autoscaler of a shard: the four sequences run in parallel, and so do the answers."""
    if not specs:
        return [], []
    ready = np.array([UNKNOWN_READY if count is None else count for count in ready_pods], dtype=np.int64)
    decisions, new_states = decide_arrays(
        SpecArrays.of(specs),
        StateArrays.of(states),
        WindowArrays.of([one.stable for one in windows], [one.panic for one in windows]),
        ready,
        now,
    )
    return decisions.values(), new_states.values()
