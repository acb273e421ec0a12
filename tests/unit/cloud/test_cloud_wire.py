import msgspec
import pytest

from tests.unit.cloud.builders import NOON, a_catalog, a_request, after
from wainwright.cloud.errors import (
    CloudUnavailable,
    InstanceNotFound,
    InstanceTerminated,
    InsufficientCapacity,
    RequestExpired,
    RequestRefused,
    Throttled,
    TokenMismatch,
)
from wainwright.cloud.simulated.state import CloudState
from wainwright.cloud.simulated.wire import ErrorAnswer, answer_of, error_of
from wainwright.scheduling.instance_types import OfferingKey

INSTANCE = CloudState(a_catalog()).launch(a_request(), now=NOON, boots_at=after(2)).instance
ERRORS = [
    InsufficientCapacity((OfferingKey("spot", "small", "a"),)),
    RequestRefused("Quota", "no more than three"),
    TokenMismatch("used"),
    InstanceTerminated(INSTANCE),
    InstanceNotFound("gone"),
    RequestExpired("old"),
    Throttled(0.25),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_what_it_was(error):
    status, answer = answer_of(error)
    arrived = error_of(msgspec.json.decode(msgspec.json.encode(answer), type=ErrorAnswer))
    assert status >= 400
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_each_error_has_a_status_of_its_own():
    assert len({answer_of(error)[0] for error in ERRORS}) == len(ERRORS)


def test_an_answer_that_is_not_known_leaves_the_outcome_unknown():
    assert isinstance(error_of(ErrorAnswer(error="Teapot", message="short and stout")), CloudUnavailable)
