"""What is asked of the cloud, and asked again."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.provisioning.fakes import START
from wainwright.cloud.port import LaunchRequest
from wainwright.provisioning.attempts import (
    Attempt,
    decode_attempts,
    encode_attempts,
    ended,
    first_attempt,
    is_matched,
    next_attempt,
    request_of,
    token,
    uid_of,
    without_any,
)
from wainwright.scheduling.instance_types import OfferingKey
from wainwright.scheduling.snapshot import Option


def an_option(kind="m.large", zone="a", capacity_type="spot", price=1.0):
    return Option(instance_type=kind, zone=zone, capacity_type=capacity_type, price=price)


BARE = LaunchRequest(token="", issued_at=START, cluster="c", node_claim="n", node_pool="p", options=())
LARGE, XLARGE, DEMAND = an_option(), an_option("m.xlarge"), an_option(capacity_type="on-demand")
ALL = (LARGE, XLARGE, DEMAND)


def test_the_same_attempt_is_the_same_request_but_for_its_date():
    attempt = first_attempt(BARE, ALL, ())
    [again] = decode_attempts(encode_attempts([attempt]))
    one = request_of(attempt, "u", ALL, START)
    two = request_of(again, "u", ALL, START + timedelta(seconds=9))
    assert one.token == two.token == "u-1"
    assert one.options == two.options == ALL
    assert two.issued_at - one.issued_at == timedelta(seconds=9)


def test_what_is_known_to_be_sold_out_is_not_asked_for_unless_nothing_else_is_left():
    assert first_attempt(BARE, ALL, {LARGE.key}).without == ("spot/m.large/a",)
    assert first_attempt(BARE, ALL, {OfferingKey("*", "*", "*")}).without == ()


def test_a_new_attempt_has_what_is_left_and_another_token():
    attempts = (first_attempt(BARE, ALL, ()),)
    over, fresh = next_attempt(attempts, ALL, (), (LARGE.key,))
    assert (over.outcome, over.request) == ("InsufficientCapacity", None)
    assert request_of(fresh, "u", ALL, START).options == (XLARGE, DEMAND)
    assert request_of(fresh, "u", ALL, START).token == "u-2"


def test_what_an_earlier_attempt_left_out_stays_out():
    attempts = next_attempt((first_attempt(BARE, ALL, ()),), ALL, (), (LARGE.key,))
    attempts = next_attempt(attempts, ALL, (), (XLARGE.key,))
    assert request_of(attempts[-1], "u", ALL, START).options == (DEMAND,)
    assert next_attempt(attempts, ALL, (), (DEMAND.key,)) is None


def test_an_answer_that_names_nothing_of_the_request_counts_against_all_of_it():
    assert next_attempt((first_attempt(BARE, ALL, ()),), ALL, (), (OfferingKey("spot", "other", "a"),)) is None


def test_ended_attempts_keep_number_and_outcome_only():
    [attempt] = ended((first_attempt(BARE, ALL, ()),), "Launched")
    assert attempt == Attempt(number=1, outcome="Launched")
    assert ended((attempt,), "Else") == (attempt,)


def test_an_annotation_that_somebody_changed_is_no_attempt():
    assert [decode_attempts(text) for text in ("", "x", "[1]", '{"a":1}')] == [(), (), (), ()]


def test_a_token_tells_whose_it_is():
    assert uid_of(token("a-b-c", 12)) == "a-b-c"


fields = st.sampled_from(["*", "x", "y"])
keys = st.builds(OfferingKey, fields, fields, fields)
options = st.lists(
    st.builds(an_option, st.sampled_from("xyz"), st.sampled_from("xyz"), st.sampled_from("xyz")), max_size=8
)


@given(options, st.sets(keys, max_size=4))
def test_without_any_leaves_exactly_what_no_pattern_matches(given_options, patterns):
    left = without_any(given_options, patterns)
    assert list(left) == [o for o in given_options if not any(is_matched(o.key, p) for p in patterns)]
