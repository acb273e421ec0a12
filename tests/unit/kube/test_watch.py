"""A follower against scripted lists and watches; what it tells the sink is the outcome."""

import logging

import pytest

from tests.unit.kube.support import HandClock, a_pod
from wainwright.api.pods import Pod
from wainwright.errors import Expired, KubeError, KubeUnavailable, NotFound
from wainwright.kube.client import Page, Undecodable, WatchEvent
from wainwright.kube.resources import PODS
from wainwright.kube.watch import Follower


class ScriptedWatch:
    def __init__(self, steps):
        self.steps = steps

    def __iter__(self):
        return self.steps

    def stop(self):
        """Nothing waits here."""


class ScriptedClient:
    """Each list takes the next of `lists`, each watch the next of `watches`: what to yield, errors raised in place."""

    def __init__(self, lists, watches, on_end):
        self.lists, self.watches = list(lists), list(watches)
        self.asked = []
        self.on_end = on_end

    def pages(self, _resource, _as_type, *, limit):
        self.asked.append("list")
        yield from self._play(self.lists)

    def watch(self, _resource, _as_type, version, *, timeout_seconds, silence_seconds):
        assert silence_seconds > timeout_seconds
        self.asked.append(version)
        return ScriptedWatch(self._play(self.watches))

    def _play(self, script):
        if not script:
            self.on_end()
            return
        for step in script.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


class RecordingSink:
    def __init__(self):
        self.told = []

    def put(self, _resource, thing):
        self.told.append(("put", thing.metadata.name))

    def gone(self, _resource, thing):
        self.told.append(("gone", thing.metadata.name))

    def undecodable(self, _resource, bad, *, gone):
        self.told.append(("bad", bad.key, gone))

    def alive(self, _resource, version):
        self.told.append(("alive", version))

    def listing(self, _resource):
        self.told.append("listing")

    def listed(self, _resource, version):
        self.told.append(("listed", version))


def follow(lists, watches, *, required=True):
    """Plays the script to its end; what was told, and what was asked of the server."""
    sink = RecordingSink()
    follower = None

    def on_end():
        follower.stop()

    client = ScriptedClient(lists, watches, on_end)
    follower = Follower(client, PODS, Pod, sink, required=required, clock=HandClock())
    follower._back_off = lambda _attempts: None
    follower._stay_absent = lambda: None
    follower.run()
    return sink.told, client.asked


def page(*names, version="5", bad=()):
    return Page([a_pod(name) for name in names], version, list(bad))


def added(name, version):
    return WatchEvent("ADDED", a_pod(name, rv=version), version)


def bookmark(version):
    return WatchEvent("BOOKMARK", None, version)


def test_lists_then_watches_from_there():
    told, asked = follow([[page("a"), page("b")]], [[added("c", "6")]])
    assert told[:5] == ["listing", ("put", "a"), ("put", "b"), ("listed", "5"), ("put", "c")]
    assert asked == ["list", "5", "6"]


def test_resumes_where_it_was_after_a_broken_connection():
    told, asked = follow([[page()]], [[added("a", "6"), KubeUnavailable("cut")], [added("b", "9")]])
    assert asked == ["list", "5", "6", "9"]
    assert [one for one in told if one[0] == "put"] == [("put", "a"), ("put", "b")]


def test_bookmark_is_a_sign_of_life_and_the_place_to_resume_from():
    told, asked = follow([[page()]], [[bookmark("77"), KubeUnavailable("cut")], []])
    assert ("alive", "77") in told
    assert asked == ["list", "5", "77", "77"]


def test_watch_that_ends_by_its_own_time_out_is_a_sign_of_life():
    told, _ = follow([[page()]], [[]])
    assert ("alive", "5") in told


def test_broken_watch_is_no_sign_of_life():
    told, _ = follow([[page()]], [[KubeUnavailable("cut")], [KubeUnavailable("cut")]])
    assert not [one for one in told if one[0] == "alive"]


def test_version_that_is_too_old_means_listing_anew():
    told, asked = follow([[page("a")], [page("b", version="50")]], [[added("c", "6"), Expired("old", status=410)], []])
    assert asked == ["list", "5", "list", "50", "50"]
    assert told.count("listing") == 2
    assert ("listed", "50") in told


def test_list_that_expires_halfway_begins_anew():
    told, _ = follow([[page("a"), Expired("token", status=410)], [page("a", version="8")]], [[]])
    assert told[:5] == ["listing", ("put", "a"), "listing", ("put", "a"), ("listed", "8")]


def test_deleted_and_undecodable_are_told_apart():
    bad = Undecodable(PODS, "default/x", "u", "7", "why", b"{}")
    events = [
        WatchEvent("DELETED", a_pod("a"), "6"),
        WatchEvent("MODIFIED", None, "7", bad),
        WatchEvent("DELETED", None, "8", bad),
    ]
    told, asked = follow([[page(bad=[bad])]], [events])
    assert told == [
        "listing",
        ("bad", "default/x", False),
        ("listed", "5"),
        ("gone", "a"),
        ("bad", "default/x", False),
        ("bad", "default/x", True),
        ("alive", "8"),
    ]
    assert asked[-1] == "8", "an event that cannot be decoded is not asked for again"


def test_optional_kind_that_is_not_served_counts_as_empty():
    told, asked = follow([[NotFound("no such path", status=404)], []], [], required=False)
    assert told[:2] == ["listing", ("listed", "")]
    assert asked[:2] == ["list", "list"]


def test_required_kind_that_is_not_served_is_asked_for_again():
    told, asked = follow([[NotFound("no CRD", status=404)], [page("a")]], [[]])
    assert asked[:3] == ["list", "list", "5"]
    assert told[:4] == ["listing", "listing", ("put", "a"), ("listed", "5")]


@pytest.mark.parametrize("error", [KubeUnavailable("down"), KubeError("forbidden", status=403)])
def test_long_outage_is_two_log_lines(caplog, error):
    """f57: consumers logged hundreds of lines a second until somebody restarted them."""
    with caplog.at_level(logging.INFO):
        follow([[page()]], [[error] for _ in range(200)] + [[added("a", "6")]])
    assert [record.message.split()[0] for record in caplog.records] == ["action=watch_broken", "action=watch_recovered"]
    assert "attempts=200" in caplog.records[1].message


def test_fault_of_ours_means_listing_anew(caplog):
    told, asked = follow([[page("a")], [page("b", version="8")]], [[ZeroDivisionError()], []])
    assert asked[:4] == ["list", "5", "list", "8"]
    assert ("put", "b") in told
    assert caplog.records[0].exc_info is not None
