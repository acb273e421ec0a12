"""Leader election over a Lease kept in memory, with clocks moved by hand."""

import msgspec
import pytest

from tests.unit.kube.support import NOON, HandClock
from wainwright.errors import AlreadyExists, Conflict, KubeUnavailable, NotFound
from wainwright.kube.leases import FENCE_ANNOTATION, LeaderElector, Lease, fresh_holder


class LeaseServer:
    """One Lease, with resourceVersions; `down` makes every call fail, `lose_answers` only the answers."""

    def __init__(self):
        self.body = None
        self.version = 0
        self.down = False
        self.lose_answers = False
        self.before_update = None

    def get(self, _resource, name, _namespace, *, as_type):
        self._check()
        if self.body is None:
            raise NotFound(name, status=404)
        return msgspec.convert(self.body, as_type, strict=False)

    def create(self, _resource, body, _namespace):
        self._check()
        if self.body is not None:
            raise AlreadyExists("lease", status=409)
        return self._stored(body)

    def update(self, _resource, body):
        self._check()
        if self.before_update:
            hook, self.before_update = self.before_update, None
            hook()
        if self.body is None:
            raise NotFound("lease", status=404)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("lease", status=409)
        return self._stored(body)

    def _stored(self, body):
        self.version += 1
        self.body = {**body, "metadata": {**body["metadata"], "uid": "lease-uid", "resourceVersion": str(self.version)}}
        if self.lose_answers:
            raise KubeUnavailable("the answer was lost")
        return self.body

    def _check(self):
        if self.down:
            raise KubeUnavailable("down")

    @property
    def holder(self):
        return self.body["spec"].get("holderIdentity")


@pytest.fixture
def server():
    return LeaseServer()


@pytest.fixture
def clock():
    return HandClock()


def an_elector(server, clock, identity):
    return LeaderElector(server, name="watcher", identity=identity, duration_seconds=6, clock=clock)


def test_first_to_come_leads_and_the_second_stands_by(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    assert first.step()
    assert not second.step()
    assert second.other == "a"
    assert first.fence > 0


def test_standby_takes_over_within_ten_seconds(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    first.step()
    second.step()
    waited = 0
    while not second.step():
        clock.seconds += 0.5
        waited += 0.5
    assert 6 <= waited <= 7
    assert not first.leads, "the old holder stopped before the new one began"
    assert second.fence > first.fence
    assert server.body["spec"]["leaseTransitions"] == 1


def test_holder_that_renews_is_never_replaced(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    for _ in range(60):
        assert first.step()
        assert not second.step()
        clock.seconds += 0.5
    assert server.body["spec"]["leaseTransitions"] == 0


def test_holder_stops_by_itself_when_it_cannot_renew(server, clock):
    elector = an_elector(server, clock, "a")
    elector.step()
    server.down = True
    for seconds in (2, 2, 0.9):
        clock.seconds += seconds
        assert elector.step(), "until its time is over it leads on"
    clock.seconds += 0.2
    assert not elector.leads
    assert not elector.step()


def test_standby_that_just_started_waits_out_a_lease_it_has_not_watched(server, clock):
    """Clocks may differ: a Lease that looks old may have been renewed a moment ago."""
    first = an_elector(server, clock, "a")
    first.step()
    other_clock = HandClock()
    other_clock.seconds = 999_999.0
    second = an_elector(server, other_clock, "b")
    assert not second.step()
    other_clock.seconds += 5.9
    assert not second.step()
    other_clock.seconds += 0.2
    assert second.step()


def test_released_lease_is_taken_at_once(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    first.step()
    second.step()
    first.release()
    assert not first.leads
    assert second.step()


def test_of_two_that_try_at_once_one_leads(server, clock):
    first, second, third = (an_elector(server, clock, name) for name in "abc")
    first.step()
    second.step()
    third.step()
    clock.seconds += 7
    server.before_update = third.step
    assert not second.step()
    assert third.leads
    assert server.holder == "c"


def test_write_whose_answer_was_lost_is_found_to_be_ours(server, clock):
    elector = an_elector(server, clock, "a")
    server.lose_answers = True
    assert not elector.step()
    server.lose_answers = False
    assert elector.step()
    assert server.holder == "a"


def test_fence_grows_even_when_the_lease_was_deleted(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    first.step()
    clock.seconds += 1
    server.body = None
    assert second.step()
    assert second.fence > first.fence


def test_fence_is_raised_above_what_redis_remembers(server, clock):
    elector = an_elector(server, clock, "a")
    elector.step()
    above = elector.fence + 10**9
    assert elector.raise_fence(above)
    assert elector.fence == above + 1
    assert server.body["metadata"]["annotations"][FENCE_ANNOTATION] == str(above + 1)
    assert elector.leads


def test_deposed_holder_cannot_raise_its_fence(server, clock):
    first, second = an_elector(server, clock, "a"), an_elector(server, clock, "b")
    first.step()
    second.step()
    clock.seconds += 7
    second.step()
    fence = first.fence
    assert not first.raise_fence(second.fence)
    assert first.fence == fence
    assert second.leads


def test_times_are_written_as_api_servers_want_them(server, clock):
    an_elector(server, clock, "a").step()
    assert server.body["spec"]["renewTime"] == "2026-06-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"holderIdentity": "k", "renewTime": "2026-06-01T11:59:50.000000Z", "leaseDurationSeconds": 15}, "k"),
        ({"holderIdentity": "k", "renewTime": "2026-06-01T11:59:00.000000Z", "leaseDurationSeconds": 15}, ""),
        ({"holderIdentity": "", "renewTime": "2026-06-01T11:59:59.000000Z"}, ""),
        ({}, ""),
    ],
)
def test_lease_of_somebody_else_is_fresh_only_when_renewed_lately(server, spec, expected):
    server.body = {"metadata": {"name": "karpenter-leader-election"}, "spec": spec}
    assert fresh_holder(server, "kube-system", "karpenter-leader-election", NOON) == expected


def test_no_lease_means_nobody_is_at_work(server):
    assert fresh_holder(server, "kube-system", "karpenter-leader-election", NOON) == ""


def test_lease_struct_reads_what_an_api_server_writes():
    text = b'{"metadata":{"name":"x"},"spec":{"holderIdentity":null,"renewTime":"2026-06-01T12:00:00.123456Z"}}'
    assert msgspec.json.decode(text, type=Lease).spec.renew_time.microsecond == 123456
