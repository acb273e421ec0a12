"""What a worker publishes of the tasks it has in hand."""

from types import SimpleNamespace

from celery import Celery
from kombu import Exchange, Queue

from wainwright.celery_load import LoadStep, in_hand, install, routes_of, stale_workers


def a_request(key="jobs", exchange="", *, acknowledged=True):
    return SimpleNamespace(delivery_info={"exchange": exchange, "routing_key": key}, acknowledged=acknowledged)


def test_running_tasks_that_left_the_broker_are_counted_and_all_in_hand_are_busy():
    early, late, waiting = a_request(), a_request(acknowledged=False), a_request(acknowledged=False)
    running, busy = in_hand([early, late, waiting], [early, late], {})
    assert (running["jobs"], busy["jobs"]) == (1, 3)


def test_tasks_count_for_the_queue_that_they_came_by():
    queues = {"orders": Queue("orders", Exchange("shop"), routing_key="new")}
    running, _ = in_hand([], [a_request("new", "shop"), a_request("mail")], routes_of(queues))
    assert running == {"orders": 1, "mail": 1}


def test_workers_that_ended_are_told_from_living_ones():
    held = {"celery@a": b"100000 1 1", "celery@b": "1000 1 1", "celery@c": "nonsense"}
    assert stale_workers(held, 120_000) == ["celery@b", "celery@c"]
    assert stale_workers([b"celery@b", b"1000 1 1"], 120_000) == [b"celery@b"]


def test_one_line_installs_it_once():
    app = Celery(set_as_current=False)
    install(app)
    install(app)
    assert [step for step in app.steps["worker"] if step is LoadStep] == [LoadStep]
