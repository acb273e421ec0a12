"""Queues on a real Redis-compatible server, filled as Celery, kombu and stream consumers fill them."""

import json

import pytest
from celery import Celery

from tests.contract.podscaling.conftest import an_autoscaler, now
from wainwright.podscaling.sources.brokers import COUNTED, ONLY_LATE, load_key


def a_queue(queue, **more):
    return {"type": "celery", "celery": {"queue": queue, **more}}


def readings(collector, *metrics):
    """By source: value and message."""
    samples = collector.collect([an_autoscaler(*metrics)], {}, now(), seconds=5)
    return {sample.source: (sample.value, sample.message) for sample in samples}


def publish(client, queue, worker, running, busy, *, age_ms=0, prefix=""):
    seconds, micros = client.time()
    at_ms = seconds * 1000 + micros // 1000 - age_ms
    client.hset(load_key(prefix, queue), worker, f"{at_ms} {running} {busy}")


@pytest.fixture
def app(redis_server, name):
    """A Celery application with key prefix and queue of its own."""
    app = Celery(broker=redis_server.url, set_as_current=False)
    app.conf.update(
        task_default_queue=name,
        broker_transport_options={"global_keyprefix": f"{name}:", "priority_steps": list(range(10))},
        task_ignore_result=True,
    )
    yield app
    app.producer_pool.force_close_all()
    app.pool.force_close_all()
    app.close()


def test_waiting_tasks_count_in_every_priority(collector, app, name):
    for number in range(7):
        app.send_task("t", priority=number % 3)
    assert readings(collector, a_queue(name, keyPrefix=f"{name}:")) == {"celery": (7.0, ONLY_LATE)}


def test_reserved_tasks_count_for_their_own_queue(collector, app, name):
    """What a worker has taken and not acknowledged lies in one hash for all queues of the broker."""
    for queue in (name, name, name, "other"):
        app.send_task("t", queue=queue)
    with app.connection_for_read() as connection, connection.channel() as channel:
        consumer = app.amqp.TaskConsumer(channel, queues=[app.amqp.queues[name]])
        queue = consumer.queues[0](channel)
        held = [queue.get(), queue.get()]
        assert all(held)
        prefix = {"keyPrefix": f"{name}:"}
        found = readings(
            collector, {**a_queue(name, **prefix), "name": "mine"}, {**a_queue("other", **prefix), "name": "other"}
        )
        assert found == {"mine": (3.0, ONLY_LATE), "other": (1.0, ONLY_LATE)}
        held[0].ack()
        assert readings(collector, a_queue(name, **prefix))["celery"][0] == 2.0


def test_running_tasks_count_as_their_workers_publish_them(collector, client, name):
    publish(client, name, f"celery@{name}-a", 2, 5)
    publish(client, name, f"celery@{name}-b", 1, 1)
    publish(client, name, "celery@gone", 9, 9, age_ms=20_000)
    assert readings(collector, a_queue(name)) == {"celery": (3.0, COUNTED)}
    loads = collector.pod_loads(an_autoscaler(a_queue(name)), [])
    assert loads[f"{name}-a"] == 5
    assert loads[f"{name}-b"] == 1


def test_another_exchange_is_followed_to_its_queue(collector, client, name):
    client.sadd("_kombu.binding.orders-" + name, "\x06\x16".join(["new." + name, "", name]))
    client.hset(f"{name}:unacked", "t", "ignored: another prefix")
    client.hset("unacked", f"tag-{name}", json.dumps([{"body": "x"}, "orders-" + name, "new." + name]))
    assert readings(collector, a_queue(name))["celery"][0] == 1.0
    client.hdel("unacked", f"tag-{name}")


def test_an_empty_queue_is_a_real_zero(collector, name):
    assert readings(collector, a_queue(name)) == {"celery": (0.0, ONLY_LATE)}


def test_a_stream_counts_lag_and_pending_of_the_group(collector, client, name):
    source = {"type": "redisStream", "redisStream": {"stream": name, "group": "workers"}}
    assert readings(collector, source) == {"redisStream": (0.0, f"stream {name} does not exist")}
    for number in range(10):
        client.xadd(name, {"n": number})
    assert readings(collector, source) == {"redisStream": (10.0, "all entries: there is no group workers yet")}
    client.xgroup_create(name, "workers", "0")
    taken = client.xreadgroup("workers", "one", {name: ">"}, count=4)
    assert readings(collector, source) == {"redisStream": (10.0, "lag and pending entries")}
    client.xack(name, "workers", *(entry for entry, _ in taken[0][1][:3]))
    assert readings(collector, source)["redisStream"][0] == 7.0


def test_a_lag_that_the_server_cannot_tell_is_counted(collector, client, name):
    ids = [client.xadd(name, {"n": number}) for number in range(10)]
    client.xgroup_create(name, "workers", "0")
    client.xreadgroup("workers", "one", {name: ">"}, count=2)
    client.xdel(name, ids[5])
    source = {"type": "redisStream", "redisStream": {"stream": name, "group": "workers"}}
    assert readings(collector, source)["redisStream"][0] == 7.0 + 2.0


def test_a_list_counts_its_length(collector, client, name):
    client.rpush(name, *"abc")
    source = {"type": "redisList", "redisList": {"list": name}}
    assert readings(collector, source) == {"redisList": (3.0, f"length of {name}")}


def test_a_key_of_another_type_cannot_be_told_and_harms_no_other(collector, client, name):
    client.set(name, "text")
    client.rpush(f"{name}-good", "a")
    wrong = {"type": "redisList", "name": "wrong", "redisList": {"list": name}}
    good = {"type": "redisList", "name": "good", "redisList": {"list": f"{name}-good"}}
    found = readings(collector, wrong, good, {**a_queue(name), "name": "queue"})
    assert found["good"][0] == 1.0
    assert found["wrong"][0] is None
    assert "WRONGTYPE" in found["wrong"][1]
    assert found["queue"][0] is None


def test_an_unreachable_server_cannot_be_told(collector, name):
    source = {"type": "redisList", "redisList": {"list": name, "url": "redis://127.0.0.1:1/0"}}
    value, message = readings(collector, source)["redisList"]
    assert value is None
    assert "Redis: " in message


def test_connections_are_kept_in_files(redis_server, client, name, tmp_path):
    from wainwright.clock import SystemClock
    from wainwright.podscaling.collector import Collector
    from wainwright.podscaling.connections import Connections

    (tmp_path / "orders").write_text(redis_server.url + "\n")
    client.rpush(name, "a")
    kept = Collector(Connections("redis://127.0.0.1:1/0", tmp_path), SystemClock())
    source = {"type": "redisList", "redisList": {"list": name, "connection": "orders"}}
    assert readings(kept, source)["redisList"][0] == 1.0
    for wrong in ("missing", "../orders"):
        source["redisList"]["connection"] = wrong
        assert readings(kept, source)["redisList"] == (None, f"there is no connection {wrong}")
    kept.close()


def test_the_number_of_round_trips_does_not_grow_with_the_autoscalers(collector, client, name):
    autoscalers = [
        an_autoscaler({"type": "redisList", "redisList": {"list": f"{name}-{n}"}}, a_queue(name), name=f"w{n}")
        for n in range(200)
    ]
    before = client.info("stats")["total_connections_received"]
    samples = collector.collect(autoscalers, {}, now(), seconds=5)
    assert len(samples) == 400
    assert client.info("stats")["total_connections_received"] - before <= 2
