from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cloud.builders import NOON, a_catalog, a_request, after, an_option
from wainwright.cloud.errors import (
    CloudError,
    InstanceNotFound,
    InstanceTerminated,
    InsufficientCapacity,
    RequestExpired,
    RequestRefused,
    TokenMismatch,
)
from wainwright.cloud.port import Instance, InstanceState
from wainwright.cloud.simulated.state import CloudState, Event, Launched, matches_offering
from wainwright.scheduling.instance_types import OfferingKey

BOOTED = after(2)


def a_state():
    return CloudState(a_catalog())


def launch(state, request, *, now=NOON, boots_at=BOOTED, sold_out=()):
    outcome = state.launch(request, now=now, boots_at=boots_at, sold_out=sold_out)
    if isinstance(outcome, Launched):
        state.apply(outcome)
        return outcome.instance
    return outcome


def terminate(state, instance_id, *, now, delay=0.5):
    event = state.terminate(instance_id, now=now, delay=timedelta(seconds=delay))
    if event is not None:
        state.apply(event)


class TestTokens:
    def test_the_same_request_again_gives_the_same_instance(self):
        state = a_state()
        first = launch(state, a_request())
        again = launch(state, a_request(issued_at=after(8)), now=after(9))
        assert again == first
        assert len(state.record().launches) == 1

    def test_another_request_under_a_used_token_launches_nothing(self):
        state = a_state()
        launch(state, a_request())
        with pytest.raises(TokenMismatch):
            launch(state, a_request(options=(an_option(zone="b"),)))
        assert len(state.record().launches) == 1

    def test_a_token_is_used_up_by_its_instance_even_after_that_was_forgotten(self):
        """A hint that was delivered twice, ten minutes apart, must not buy a second node."""
        state = a_state()
        instance = launch(state, a_request())
        terminate(state, instance.id, now=after(5))
        state.advance(after(900))
        assert state.instances() == []
        with pytest.raises(InstanceTerminated) as caught:
            launch(state, a_request(issued_at=after(900)), now=after(900))
        assert caught.value.instance.id == instance.id
        assert state.find("uid-1/1").state is InstanceState.TERMINATED

    def test_an_attempt_that_found_no_room_leaves_its_token_free(self):
        state = a_state()
        everything = (OfferingKey("*", "*", "*"),)
        with pytest.raises(InsufficientCapacity):
            launch(state, a_request(), sold_out=everything)
        assert state.find("uid-1/1") is None
        assert launch(state, a_request()).token == "uid-1/1"

    def test_a_second_live_instance_of_one_claim_is_on_record_for_ever(self):
        state = a_state()
        first = launch(state, a_request("uid-1/1"))
        second = launch(state, a_request("uid-1/2"))
        terminate(state, first.id, now=after(1))
        terminate(state, second.id, now=after(1))
        assert state.record().doubles == ("default-x7k2p",)
        assert state.record().by_claim == {"default-x7k2p": 2}

    def test_a_second_attempt_after_the_first_instance_ended_is_no_double(self):
        state = a_state()
        first = launch(state, a_request("uid-1/1"))
        terminate(state, first.id, now=after(1))
        launch(state, a_request("uid-1/2"))
        assert state.record().doubles == ()


class TestDates:
    @pytest.mark.parametrize("age", [0, 29.999, 30])
    def test_a_request_up_to_thirty_seconds_old_is_carried_out(self, age):
        assert launch(a_state(), a_request(), now=after(age)).launched_at == after(age)

    @pytest.mark.parametrize("age", [30.001, 3600, -5.001])
    def test_an_older_one_and_one_from_the_future_never_is(self, age):
        state = a_state()
        with pytest.raises(RequestExpired):
            launch(state, a_request(), now=after(age))
        assert state.record().launches == ()

    def test_an_expired_request_is_refused_though_its_token_is_known(self):
        """EC2 checks the signature's date before it looks at the token."""
        state = a_state()
        launch(state, a_request())
        with pytest.raises(RequestExpired):
            launch(state, a_request(), now=after(31))


class TestChoice:
    def test_the_cheapest_option_with_room_is_taken_and_what_was_passed_over_is_told(self):
        options = (
            an_option(zone="a"),
            an_option(zone="b", price=0.04),
            an_option(capacity_type="on-demand", price=0.1),
        )
        instance = launch(a_state(), a_request(options=options), sold_out=(OfferingKey("spot", "*", "a"),))
        assert instance.offering == OfferingKey("spot", "small", "b")
        assert instance.price == 0.04
        assert instance.sold_out == (OfferingKey("spot", "small", "a"),)

    def test_the_clouds_price_decides_not_the_order_of_a_plan_made_from_an_older_catalog(self):
        options = (an_option(zone="b", price=0.01), an_option(zone="a", price=0.02))
        assert launch(a_state(), a_request(options=options)).zone == "a"

    def test_no_room_anywhere_names_every_offering_once(self):
        options = (an_option(zone="a"), an_option(zone="b"), an_option(zone="a"))
        with pytest.raises(InsufficientCapacity) as caught:
            launch(a_state(), a_request(options=options), sold_out=(OfferingKey("*", "small", "*"),))
        assert caught.value.offerings == (OfferingKey("spot", "small", "a"), OfferingKey("spot", "small", "b"))

    def test_an_offering_that_the_catalog_calls_unavailable_has_no_room(self):
        with pytest.raises(InsufficientCapacity):
            launch(a_state(), a_request(options=(an_option("large", "b", "on-demand"),)))

    def test_options_that_do_not_exist_are_passed_over_or_refused_when_none_is_left(self):
        unknown = an_option("huge")
        assert launch(a_state(), a_request(options=(unknown, an_option()))).instance_type == "small"
        with pytest.raises(RequestRefused, match="spot/huge/a") as caught:
            launch(a_state(), a_request(options=(unknown,)))
        assert caught.value.reason == "UnknownOffering"

    def test_a_reservation_has_room_for_as_many_as_it_counts(self):
        state = a_state()
        reserved = (an_option("large", "a", "reserved", 0.001, "cr-1"),)
        first = launch(state, a_request("uid-1/1", options=reserved))
        with pytest.raises(InsufficientCapacity):
            launch(state, a_request("uid-2/1", options=reserved))
        terminate(state, first.id, now=after(1))
        assert launch(state, a_request("uid-2/1", options=reserved)).reservation_id == "cr-1"

    def test_a_request_without_token_or_options_is_refused(self):
        with pytest.raises(RequestRefused, match="token"):
            launch(a_state(), a_request(""))
        with pytest.raises(RequestRefused, match="option"):
            launch(a_state(), msgspec.structs.replace(a_request(), options=()))


class TestInstances:
    def test_an_instance_carries_what_its_node_will(self):
        request = a_request(
            options=(an_option("large", "a", "on-demand"),),
            labels={"team": "x", "topology.kubernetes.io/zone": "elsewhere"},
        )
        instance = launch(a_state(), request)
        assert instance.labels == {
            "team": "x",
            "node.kubernetes.io/instance-type": "large",
            "topology.kubernetes.io/zone": "a",  # the machine knows better where it is
            "topology.kubernetes.io/region": "r1",
            "karpenter.sh/capacity-type": "on-demand",
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": "default-x7k2p",
        }
        assert instance.provider_id == f"simulated:///a/{instance.id}"

    def test_an_instance_without_a_name_given_is_called_by_its_id(self):
        instance = launch(a_state(), a_request(node_name=""))
        assert instance.node_name == instance.id == instance.labels["kubernetes.io/hostname"]

    def test_it_boots_goes_and_is_forgotten_at_the_instants_said(self):
        state = a_state()
        instance = launch(state, a_request(), boots_at=after(2))
        states = []
        for instant in (1.9, 2):
            state.advance(after(instant))
            states.append(state.get(instance.id).state)
        terminate(state, instance.id, now=after(10), delay=0.5)
        states.append(state.get(instance.id).state)
        state.advance(after(10.5))
        with pytest.raises(InstanceNotFound, match="is terminated"):
            state.get(instance.id)
        states += [i.state for i in state.instances()]
        state.advance(after(310.5))
        assert states == ["pending", "running", "terminating", "terminated"]
        assert state.instances() == []

    def test_terminating_twice_is_one_termination(self):
        state = a_state()
        instance = launch(state, a_request())
        terminate(state, instance.id, now=after(1))
        assert state.terminate(instance.id, now=after(1.2), delay=timedelta(0)) is None
        state.advance(after(1.5))
        with pytest.raises(InstanceNotFound):
            state.terminate(instance.id, now=after(2), delay=timedelta(0))

    def test_an_instance_deleted_while_it_boots_never_runs(self):
        state = a_state()
        instance = launch(state, a_request(), boots_at=after(2))
        terminate(state, instance.id, now=after(1))
        state.advance(after(100))
        assert [i.state for i in state.instances()] == ["terminated"]

    def test_changes_since_a_revision_are_exactly_those_instances(self):
        state = a_state()
        one = launch(state, a_request("uid-1/1"), boots_at=None)
        seen = state.revision
        two = launch(state, a_request("uid-2/1"), boots_at=None)
        assert [i.id for i in state.instances(changed_since=seen)] == [two.id]
        seen = state.revision
        terminate(state, one.id, now=after(1))
        assert [i.id for i in state.instances(changed_since=seen)] == [one.id]
        assert [i.id for i in state.instances()] == [two.id, one.id]

    def test_what_was_forgotten_can_not_be_missed_by_who_reads_changes(self):
        state = a_state()
        instance = launch(state, a_request())
        terminate(state, instance.id, now=after(3))
        seen_before_its_end = state.revision - 1
        state.advance(after(1000))
        assert state.forgotten_revision > seen_before_its_end


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (("spot", "small", "a"), True),
        (("*", "*", "*"), True),
        (("spot", "sm*", "*"), True),
        (("spot", "large", "*"), False),
        (("on-demand", "*", "*"), False),
    ],
)
def test_a_star_in_a_pattern_matches_everything(pattern, matches):
    assert matches_offering(OfferingKey(*pattern), OfferingKey("spot", "small", "a")) is matches


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["launch", "terminate", "wait"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.5, 3.0, 40.0, 400.0]),
    ),
    max_size=40,
)


@given(_STEPS)
def test_replaying_the_events_gives_the_same_cloud(steps):
    """Whatever was done, whenever the service was killed: what it knows afterwards is what it knew."""
    state, events, seconds = a_state(), [], 0.0
    for act, number, wait in steps:
        seconds += wait
        now = after(seconds)
        state.advance(now)
        try:
            if act == "launch":
                request = a_request(f"uid-{number}/1", claim=f"c{number}", issued_at=now)
                outcome = state.launch(request, now=now, boots_at=now + timedelta(seconds=2))
                event = None if isinstance(outcome, Instance) else outcome
            elif act == "terminate":
                found = state.find(f"uid-{number}/1")
                event = found and state.terminate(found.id, now=now, delay=timedelta(seconds=1))
            else:
                event = None
        except CloudError:
            event = None
        if event:
            events.append(msgspec.json.encode(event))
            state.apply(event)
    again = a_state()
    for line in events:
        again.apply(msgspec.json.decode(line, type=Event))
    again.advance(after(seconds))
    state.advance(after(seconds))
    by_id = sorted(state.instances(), key=lambda i: i.id)
    assert sorted(again.instances(), key=lambda i: i.id) == by_id
    assert again.record() == state.record()
    assert all(count == 1 for count in state.record().by_token.values())
