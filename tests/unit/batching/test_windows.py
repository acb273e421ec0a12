from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from wainwright.batching.windows import Window, WindowPolicy, closed, is_due, with_item

POLICY = WindowPolicy()


def test_defaults_are_karpenters():
    assert (POLICY.idle_ms, POLICY.max_ms, POLICY.max_items) == (1000, 10_000, 2000)


def test_window_opens_with_the_first_item_and_is_due_an_idle_duration_later():
    assert with_item(None, 500, POLICY) == Window(opened_ms=500, due_ms=1500, items=1)


def test_new_item_extends_the_window():
    window = with_item(with_item(None, 0, POLICY), 400, POLICY)
    assert window == Window(opened_ms=0, due_ms=1400, items=2)


def test_window_is_never_extended_past_its_maximum():
    """Items at 0, 900, 1800 … 9900: the last would make it 10,900."""
    window = None
    for now_ms in range(0, 10_000, 900):
        window = with_item(window, now_ms, POLICY)
    assert window.due_ms == 10_000


def test_retry_joins_without_extending():
    window = with_item(with_item(None, 0, POLICY), 400, POLICY, extends=False)
    assert window == Window(opened_ms=0, due_ms=1000, items=2)


def test_item_after_the_deadline_joins_without_extending():
    """The worker is late; extending would make it later still."""
    window = with_item(with_item(None, 0, POLICY), 1000, POLICY)
    assert window == Window(opened_ms=0, due_ms=1000, items=2)


def test_full_window_is_due_at_once():
    policy = WindowPolicy(max_items=2)
    assert with_item(with_item(None, 0, policy), 10, policy).due_ms == 10
    assert with_item(None, 5, WindowPolicy(max_items=1)).due_ms == 5


def test_window_is_due_at_its_deadline_not_before():
    window = Window(opened_ms=0, due_ms=1000, items=1)
    assert not is_due(window, 999)
    assert is_due(window, 1000)


def test_surplus_opens_the_next_window():
    policy = WindowPolicy(max_items=3)
    assert closed(Window(opened_ms=0, due_ms=7, items=3), 9, policy) == (3, None)
    assert closed(Window(opened_ms=0, due_ms=7, items=5), 9, policy) == (3, Window(opened_ms=9, due_ms=1009, items=2))
    assert closed(Window(opened_ms=0, due_ms=7, items=8), 9, policy) == (3, Window(opened_ms=9, due_ms=9, items=5))


def test_idle_duration_above_the_maximum_is_cut():
    assert with_item(None, 0, WindowPolicy(idle_ms=50, max_ms=20)).due_ms == 20


@dataclass
class Departure:
    """A batch as it left in the simulation."""

    opened_ms: int
    closed_ms: int
    items: list[int]
    window: Window


POLICIES = st.builds(WindowPolicy, idle_ms=st.integers(0, 50), max_ms=st.integers(0, 200), max_items=st.integers(1, 8))
ARRIVALS = st.lists(st.tuples(st.integers(0, 70), st.booleans()), max_size=60)
"""Milliseconds since the one before, and whether the item extends (a fresh pod) or not (a retry)."""


def departures(arrivals, policy, lateness_ms=0):
    """Plays arrivals against a worker that closes each window lateness_ms after its deadline."""
    window, queue, left, now_ms, arrived = None, [], [], 0, {}

    def close(at_ms):
        nonlocal window
        before = window
        count, window = closed(window, at_ms, policy)
        left.append(Departure(before.opened_ms, at_ms, queue[:count], before))
        del queue[:count]

    for number, (gap_ms, extends) in enumerate(arrivals):
        now_ms += gap_ms
        while window is not None and window.due_ms + lateness_ms <= now_ms:
            close(window.due_ms + lateness_ms)
        window = with_item(window, now_ms, policy, extends=extends)
        queue.append(number)
        arrived[number] = now_ms
        while lateness_ms == 0 and window is not None and is_due(window, now_ms):
            close(now_ms)
    while window is not None:
        close(window.due_ms + lateness_ms)
    return left, arrived


@given(ARRIVALS, POLICIES, st.integers(0, 40))
def test_every_item_leaves_in_exactly_one_batch_in_order(arrivals, policy, lateness_ms):
    left, _ = departures(arrivals, policy, lateness_ms)
    assert [item for departure in left for item in departure.items] == list(range(len(arrivals)))
    assert all(0 < len(departure.items) <= policy.max_items for departure in left)


@given(ARRIVALS, POLICIES, st.integers(0, 40))
def test_no_window_is_longer_than_the_maximum_and_its_workers_lateness(arrivals, policy, lateness_ms):
    left, _ = departures(arrivals, policy, lateness_ms)
    assert all(departure.closed_ms - departure.opened_ms <= policy.max_ms + lateness_ms for departure in left)


@given(ARRIVALS, POLICIES)
def test_none_is_closed_before_it_was_idle_unless_full_or_at_its_maximum(arrivals, policy):
    arrivals = [(gap_ms, True) for gap_ms, _ in arrivals]
    left, arrived = departures(arrivals, policy)
    for departure in left:
        idle_ms = departure.closed_ms - max(arrived[item] for item in departure.items)
        full = departure.window.items >= policy.max_items
        at_maximum = departure.closed_ms - departure.opened_ms >= policy.max_ms
        assert full or at_maximum or idle_ms >= policy.idle_ms


@given(ARRIVALS, POLICIES)
def test_retries_that_join_change_no_windows_end_unless_they_fill_it(arrivals, policy):
    """With room for all, the windows opened by fresh pods close when they would have closed without the retries."""
    roomy = WindowPolicy(idle_ms=policy.idle_ms, max_ms=policy.max_ms, max_items=10_000)
    with_retries = without = None
    now_ms = 0
    for gap_ms, extends in arrivals:
        now_ms += gap_ms
        if without is not None and is_due(without, now_ms):
            with_retries = without = None
        if extends:
            with_retries, without = with_item(with_retries, now_ms, roomy), with_item(without, now_ms, roomy)
        elif with_retries is not None:
            with_retries = with_item(with_retries, now_ms, roomy, extends=False)
        if without is not None:
            assert (with_retries.opened_ms, with_retries.due_ms) == (without.opened_ms, without.due_ms)
