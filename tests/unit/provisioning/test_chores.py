import logging

import pytest

from tests.unit.kube.support import HandClock
from wainwright.errors import KubeUnavailable
from wainwright.provisioning.chores import Chores


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def chores(clock):
    return Chores(clock=clock)


@pytest.fixture
def done():
    return []


def test_works_are_done_in_the_order_they_are_due(chores, done, clock):
    chores.soon("later", lambda: done.append("later"), after_seconds=5)
    chores.soon("a", lambda: done.append("a"))
    clock.seconds += 1
    chores.soon("b", lambda: done.append("b"))
    chores.run_due()
    assert done == ["a", "b"]
    clock.seconds += 4
    chores.run_due()
    assert done == ["a", "b", "later"]


def test_newer_work_takes_the_place_of_one_that_waits(chores, done):
    chores.soon("pool", lambda: done.append("old"))
    chores.soon("pool", lambda: done.append("new"), after_seconds=60)
    chores.run_due()
    chores.run_due()
    assert done == ["new"]


def test_regular_work_comes_again_after_it_is_done(chores, done, clock):
    chores.every(30, "resync", lambda: done.append(clock.seconds))
    chores.run_due()
    clock.seconds += 29
    chores.run_due()
    clock.seconds += 1
    chores.run_due()
    assert done == [1000.0, 1030.0]


def test_regular_work_may_be_asked_for_earlier(chores, done, clock):
    chores.every(30, "resync", lambda: done.append(clock.seconds))
    chores.run_due()
    clock.seconds += 5
    chores.soon("resync", lambda: done.append(clock.seconds))
    chores.run_due()
    clock.seconds += 29
    chores.run_due()
    assert done == [1000.0, 1005.0]


def test_work_that_met_an_outage_is_done_again_and_the_log_stays_short(chores, done, clock, caplog):
    def work():
        done.append(clock.seconds)
        raise KubeUnavailable("down")

    with caplog.at_level(logging.WARNING):
        chores.soon("pool", work)
        for _ in range(600):
            chores.run_due()
            clock.seconds += 0.1
    assert 12 <= len(done) <= 20, "back-off to five seconds"
    assert len(caplog.records) == 1
    chores.soon("pool", lambda: done.append("recovered"))
    chores.run_due()
    assert done[-1] == "recovered"


def test_work_with_a_fault_of_ours_is_dropped_and_others_go_on(chores, done, clock, caplog):
    def faulty():
        raise ZeroDivisionError

    with caplog.at_level(logging.WARNING):
        chores.soon("faulty", faulty)
        chores.soon("good", lambda: done.append("good"))
        chores.run_due()
        clock.seconds += 10
        chores.run_due()
    assert done == ["good"]
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_run_ends_when_stopped(chores, done):
    chores.soon("last", chores.stop)
    chores.run()
