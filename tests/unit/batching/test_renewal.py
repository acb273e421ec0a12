import threading

from wainwright.batching.locks import Renewal
from wainwright.errors import StoreUnavailable


class HandClock:
    """Monotonic seconds that move only when told."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic_seconds(self):
        return self.seconds


class Renewer:
    """Answers renewals as told, and lets a test wait for them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = threading.Semaphore(0)

    def __call__(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait_for(self, count):
        for _ in range(count):
            assert self.asked.acquire(timeout=20)


def test_lease_is_renewed_while_its_holder_works():
    renewer = Renewer(True)
    with Renewal(renewer, 30, clock=HandClock()) as renewal:
        renewer.wait_for(3)
        assert not renewal.lost


def test_refused_renewal_means_the_lease_is_lost():
    renewer = Renewer(False)
    renewal = Renewal(renewer, 30, clock=HandClock())
    with renewal:
        renewer.wait_for(1)
    assert renewal.lost


def test_lease_counts_as_lost_when_its_time_is_over_even_before_anybody_noticed():
    """A holder that was stopped (SIGSTOP, a long pause) asks before the renewing thread has run again."""
    clock = HandClock()
    with Renewal(Renewer(True), 60_000, clock=clock) as renewal:
        assert not renewal.lost
        clock.seconds += 60.0
        assert renewal.lost


def test_renewal_goes_on_while_redis_does_not_answer():
    renewer = Renewer(StoreUnavailable("down"), StoreUnavailable("down"), True)
    with Renewal(renewer, 60, clock=HandClock()) as renewal:
        renewer.wait_for(4)
        assert not renewal.lost


def test_time_counts_from_when_renewal_was_asked_for_not_from_its_answer():
    """The answer may have taken long; the lease began before it."""
    clock, answered = HandClock(), threading.Event()

    def slow_renewal():
        clock.seconds += 0.02
        answered.set()
        return True

    with Renewal(slow_renewal, 30, clock=clock) as renewal:
        assert answered.wait(20)
    asked = 100.0
    while asked + 0.03 <= clock.seconds:
        asked += 0.02
    clock.seconds = asked + 0.06
    assert renewal.lost
