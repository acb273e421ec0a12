import msgspec
import pytest

from tests.unit.cloud.builders import NOON, after
from wainwright.cloud.simulated.faults import (
    Fail,
    FaultBoard,
    Faults,
    Hang,
    LoseAnswers,
    NeverBoot,
    Operation,
    Refuse,
    Throttle,
)


def a_board(**faults):
    board = FaultBoard()
    board.replace(Faults(**faults))
    return board


def test_nothing_goes_wrong_by_default():
    board = FaultBoard()
    assert board.throttled_for(Operation.LAUNCH, NOON) == 0
    assert board.hang_seconds(Operation.LAUNCH) == 0
    assert not board.loses_answer(Operation.LAUNCH)
    assert not board.fails(Operation.LAUNCH)
    assert board.refusal("default") is None
    assert board.boots()


def test_a_fault_for_the_next_few_is_over_after_them():
    board = a_board(lose_answers=LoseAnswers(next=2))
    assert [board.loses_answer(Operation.LAUNCH) for _ in range(4)] == [True, True, False, False]
    assert board.faults == Faults()


def test_a_fault_without_a_number_stays():
    board = a_board(fail=Fail(), never_boot=NeverBoot())
    assert all(board.fails(Operation.LAUNCH) for _ in range(10))
    assert not any(board.boots() for _ in range(10))


def test_a_fault_meets_only_the_operations_it_names_and_counts_only_those():
    board = a_board(hang=Hang(seconds=5, next=1, operations=(Operation.LIST,)))
    assert board.hang_seconds(Operation.LAUNCH) == 0
    assert board.hang_seconds(Operation.LIST) == 5
    assert board.hang_seconds(Operation.LIST) == 0


def test_a_refusal_can_be_for_one_node_pool():
    board = a_board(refuse=Refuse(node_pool="gpu", reason="Quota"))
    assert board.refusal("default") is None
    assert board.refusal("gpu").reason == "Quota"


def test_throttling_lets_a_burst_through_and_then_a_rate():
    """Two at once, then one every half second; who is refused is told how long to wait."""
    board = a_board(throttle=Throttle(per_second=2, burst=2))
    assert [board.throttled_for(Operation.LAUNCH, NOON) for _ in range(3)] == [0, 0, 0.5]
    assert board.throttled_for(Operation.LAUNCH, after(0.25)) == 0.25
    assert board.throttled_for(Operation.LAUNCH, after(0.5)) == 0
    assert board.throttled_for(Operation.LIST, after(0.5)) == 0


def test_throttling_at_no_rate_lets_only_the_burst_through():
    board = a_board(throttle=Throttle(per_second=0, burst=1))
    assert board.throttled_for(Operation.LAUNCH, NOON) == 0
    assert board.throttled_for(Operation.LAUNCH, after(10**6)) > 0


def test_a_clock_that_goes_back_gives_no_room():
    board = a_board(throttle=Throttle(per_second=1, burst=1))
    assert board.throttled_for(Operation.LAUNCH, after(10)) == 0
    assert board.throttled_for(Operation.LAUNCH, NOON) == 1


def test_a_misspelt_fault_is_refused():
    with pytest.raises(msgspec.ValidationError, match="sold_oot"):
        msgspec.json.decode(b'{"sold_oot": []}', type=Faults)
