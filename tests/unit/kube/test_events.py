import logging

import pytest

from tests.unit.kube.support import HandClock
from wainwright.api.reasons import EventReason
from wainwright.errors import KubeUnavailable
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import NODE_POOLS, PODS

GENERAL = ObjectReference(NODE_POOLS, "general", uid="u1")
POD = ObjectReference(PODS, "web-0", "team", "u2")


class EventServer:
    def __init__(self):
        self.created = []
        self.error = None

    def create(self, _resource, body, namespace):
        if self.error is not None:
            raise self.error
        self.created.append((namespace, body))


@pytest.fixture
def server():
    return EventServer()


@pytest.fixture
def clock():
    return HandClock()


def reasons(server):
    return [body["reason"] for _, body in server.created]


def test_event_names_its_object(server, clock):
    recorder = EventRecorder(server, clock=clock)
    recorder.event(POD, EventReason.NOMINATED, "Normal", "node node-1")
    recorder.event(GENERAL, EventReason.NODE_POOL_INVALID, "Warning", "x" * 2000)
    recorder.drain()
    (namespace, pod_event), (pool_namespace, pool_event) = server.created
    assert namespace == "team"
    assert pod_event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-0",
        "namespace": "team",
        "uid": "u2",
    }
    assert pod_event["firstTimestamp"] == "2026-06-01T12:00:00Z"
    assert pool_namespace == "default", "events about what lives in no namespace go there, as kubectl expects"
    assert len(pool_event["message"]) == 1024


def test_same_event_is_recorded_once_in_two_minutes(server, clock):
    recorder = EventRecorder(server, clock=clock)
    for _ in range(3):
        recorder.event(POD, EventReason.NOMINATED, "Normal", "node-1")
        clock.seconds += 39
    recorder.event(POD, EventReason.NOMINATED, "Normal", "node-2")
    clock.seconds += 4
    recorder.event(POD, EventReason.NOMINATED, "Normal", "node-1")
    recorder.drain()
    assert [body["message"] for _, body in server.created] == ["node-1", "node-2", "node-1"]


def test_too_many_events_are_dropped(server, clock):
    recorder = EventRecorder(server, clock=clock, per_second=4, burst=5)
    for number in range(20):
        recorder.event(POD, EventReason.NOMINATED, "Normal", f"node-{number}")
    clock.seconds += 0.75
    for number in range(20, 40):
        recorder.event(POD, EventReason.NOMINATED, "Normal", f"node-{number}")
    recorder.drain()
    assert len(server.created) == 8, "five at once, then three that 0.75 s earned"


@pytest.mark.parametrize("error", [KubeUnavailable("down"), RuntimeError("a bug")])
def test_failure_to_record_is_told_once_and_never_raised(server, clock, caplog, error):
    server.error = error
    recorder = EventRecorder(server, clock=clock)
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            recorder.event(POD, EventReason.NOMINATED, "Normal", f"node-{number}")
        recorder.drain()
    assert len(caplog.records) == 1
