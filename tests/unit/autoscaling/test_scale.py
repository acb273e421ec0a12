from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.autoscaling.builders import a_policy, a_target
from tests.unit.autoscaling.strategies import START
from wainwright.autoscaling.annotations import ScalingAnnotations
from wainwright.autoscaling.conditions import ActiveReason, active_condition
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.scale import (
    Active,
    Probe,
    ScaleReason,
    bounded,
    derive_scale_policy,
    scale_step,
)
from wainwright.autoscaling.spec import Reachability


def ago(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def test_no_wish_writes_nothing() -> None:
    decision = scale_step(a_policy(min_scale=2), a_target(), -1, START)
    assert (decision.scale, decision.write, decision.reason) == (-1, None, ScaleReason.UNKNOWN)


def test_while_activating_even_no_wish_rises_to_the_min_scale() -> None:
    target = a_target(active=Active.UNKNOWN, replicas=0)
    assert scale_step(a_policy(min_scale=2), target, -1, START).write == 2
    assert scale_step(a_policy(), target, -1, START).write is None


def test_only_what_differs_is_written() -> None:
    assert scale_step(a_policy(), a_target(replicas=3), 3, START).write is None
    assert scale_step(a_policy(), a_target(replicas=4), 3, START).write == 3


def test_min_scale_wins_over_a_smaller_max_scale() -> None:
    for wish in (1, 4, 9):
        assert bounded(a_policy(min_scale=5, max_scale=3), wish, initialized=True) == 5


def test_initial_scale_is_a_min_scale_until_the_target_was_initialized() -> None:
    policy = a_policy(initial_scale=4, max_scale=3)
    assert bounded(policy, 1, initialized=False) == 4
    assert bounded(policy, 1, initialized=True) == 1
    assert bounded(msgspec.structs.replace(policy, reachable=False), 1, initialized=False) == 1


def test_an_unreachable_target_has_no_lower_bound_and_no_retention() -> None:
    annotations = ScalingAnnotations(min_scale=3, scale_to_zero_pod_retention_period=timedelta(minutes=5))
    policy = derive_scale_policy(AutoscalerConfig(), annotations, reachability=Reachability.UNREACHABLE)
    assert (policy.min_scale, policy.pod_retention) == (0, timedelta())
    assert derive_scale_policy(AutoscalerConfig(), annotations).min_scale == 3


def test_an_active_target_keeps_one_pod_for_the_rest_of_its_stable_window() -> None:
    decision = scale_step(a_policy(), a_target(active_since=START - ago(20)), 0, START)
    assert (decision.scale, decision.write, decision.recheck_after) == (1, 1, ago(40))
    assert decision.reason is ScaleReason.STABLE_WINDOW


def test_the_first_zero_only_marks_the_target_inactive() -> None:
    decision = scale_step(a_policy(), a_target(active_since=START - ago(60)), 0, START)
    assert (decision.scale, decision.write, decision.reason) == (0, None, ScaleReason.DEACTIVATING)


def test_an_idle_target_goes_to_zero_after_the_grace_period() -> None:
    policy = a_policy(probes_buffer=False)
    for idle, write in ((29.999, None), (30, 0)):
        target = a_target(active=Active.FALSE, active_since=START - ago(idle))
        assert scale_step(policy, target, 0, START).write == write


def test_the_last_pod_is_retained_and_the_grace_period_does_not_shorten_it() -> None:
    policy = a_policy(probes_buffer=False, pod_retention=ago(100))
    target = a_target(active=Active.FALSE, active_since=START - ago(90), buffered_since=START - ago(3600))
    decision = scale_step(policy, target, 0, START)
    assert (decision.write, decision.reason, decision.recheck_after) == (None, ScaleReason.POD_RETENTION, ago(10))


def test_a_buffer_is_probed_before_zero() -> None:
    target = a_target(active=Active.FALSE, active_since=START - ago(60))
    assert scale_step(a_policy(), target, 0, START).probe_wanted
    silent = msgspec.structs.replace(target, probe=Probe.SILENT)
    assert scale_step(a_policy(), silent, 0, START).keep_probing
    answers = msgspec.structs.replace(target, probe=Probe.ANSWERS)
    assert scale_step(a_policy(), answers, 0, START).write == 0


def test_the_last_pod_stays_where_nothing_could_see_load_without_it() -> None:
    policy = a_policy(sees_load_at_zero=False)
    for active in Active:
        decision = scale_step(policy, a_target(active=active), 0, START)
        assert (decision.scale, decision.write, decision.reason) == (1, 1, ScaleReason.NO_SOURCE_AT_ZERO)


def test_the_last_pod_stays_where_zero_is_disabled() -> None:
    decision = scale_step(a_policy(enable_scale_to_zero=False), a_target(), 0, START)
    assert (decision.write, decision.reason) == (1, ScaleReason.ZERO_DISABLED)


def test_activation_that_takes_too_long_ends_at_zero() -> None:
    for lasted, write, scale in ((630, None, -1), (630.001, 0, 0)):
        target = a_target(active=Active.UNKNOWN, active_since=START - ago(lasted))
        decision = scale_step(a_policy(), target, 0, START)
        assert (decision.write, decision.scale) == (write, scale)


@given(
    policy=st.builds(
        a_policy,
        min_scale=st.integers(0, 5),
        max_scale=st.integers(0, 9),
        initial_scale=st.integers(0, 4),
        enable_scale_to_zero=st.booleans(),
        sees_load_at_zero=st.booleans(),
        probes_buffer=st.booleans(),
        pod_retention=st.integers(0, 90).map(ago),
    ),
    target=st.builds(
        a_target,
        active=st.sampled_from(Active),
        active_since=st.integers(-10, 900).map(lambda seconds: START - ago(seconds)),
        initialized=st.booleans(),
        replicas=st.integers(0, 12),
        proxying=st.booleans(),
        buffered_since=st.one_of(st.none(), st.integers(-10, 90).map(lambda seconds: START - ago(seconds))),
        probe=st.sampled_from(Probe),
    ),
    wish=st.integers(-1, 12),
)
def test_whatever_is_written_is_a_change_within_the_bounds(policy, target, wish) -> None:
    decision = scale_step(policy, target, wish, START)
    if decision.write is None:
        return
    assert decision.write >= 0
    assert decision.write != target.replicas
    assert decision.scale == decision.write
    assert decision.write >= policy.min_scale
    if policy.max_scale:
        assert decision.write <= max(policy.max_scale, policy.min_scale, policy.initial_scale)
    if decision.write == 0:
        assert policy.enable_scale_to_zero
        assert policy.sees_load_at_zero
    assert decision.recheck_after is None or decision.recheck_after > timedelta()


@pytest.mark.parametrize(
    ("before", "wish", "ready", "status", "reason"),
    [
        (Active.TRUE, 3, 0, Active.UNKNOWN, ActiveReason.QUEUED),
        (Active.TRUE, 0, 3, Active.FALSE, ActiveReason.NO_TRAFFIC),
        (Active.UNKNOWN, 0, 0, Active.FALSE, ActiveReason.TIMED_OUT),
        (Active.FALSE, -1, 3, Active.FALSE, ActiveReason.NO_TRAFFIC),  # no wish wakes nothing
        (Active.TRUE, -1, 3, Active.TRUE, ActiveReason.NONE),
        (Active.FALSE, 1, 1, Active.TRUE, ActiveReason.NONE),
    ],
)
def test_active_condition(before: Active, wish: int, ready: int, status: Active, reason: ActiveReason) -> None:
    condition = active_condition(
        before=before, initialized=True, wish=wish, ready_pods=ready, min_scale=0, initial_scale=1
    )
    assert (condition.status, condition.reason, condition.initialized) == (status, reason, True)
