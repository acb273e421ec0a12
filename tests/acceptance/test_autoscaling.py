"""Pod autoscaling on the whole stack: beat, workers, watcher, a real Redis, the embedded cluster."""

import json
import time

import pytest
from celery import Celery

from tests.acceptance.builders import a_deployment, a_node_pool
from tests.acceptance.celery_fleet import Fleet
from tests.acceptance.celery_jobs import KEY_PREFIX, QUEUE

DOMAIN = "autoscaling.knative.dev/"
QUICK = {"window": "6s", "target": "1", "target-utilization-percentage": "100"}


def an_autoscaler(name, *metrics, **annotations):
    return {
        "apiVersion": "autoscaling.wainwright.dev/v1alpha1",
        "kind": "PodAutoscaler",
        "metadata": {"name": name, "annotations": {DOMAIN + k: v for k, v in {**QUICK, **annotations}.items()}},
        "spec": {"scaleTargetRef": {"name": name}, "metrics": list(metrics)},
    }


def a_config(**data):
    meta = {"name": "config-autoscaler", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def replicas(system, name):
    return system.get("Deployment", name)["spec"].get("replicas", 0)


@pytest.fixture
def cluster(system):
    system.apply(a_config(**{"scale-to-zero-grace-period": "2s"}), a_node_pool(types=("c6a.large", "c6a.4xlarge")))
    yield system
    for thing in system.list("PodAutoscaler"):
        system.delete("PodAutoscaler", thing["metadata"]["name"])
    system.delete("ConfigMap", "config-autoscaler", "kube-system")


def test_a_celery_worker_deployment_follows_its_queue_and_no_task_is_cut_off(cluster):
    """From zero to many and back on its own queue: every task that began has ended, and who was told to go finished."""
    url = cluster.stack.settings.redis.url
    queue = {"type": "celery", "celery": {"queue": QUEUE, "keyPrefix": KEY_PREFIX, "url": url}}
    cluster.apply(a_deployment("jobs", 0, cpu="100m"), an_autoscaler("jobs", queue, **{"max-scale": "3"}))
    app = Celery(broker=url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": KEY_PREFIX}

    def send(number, seconds):
        app.send_task("jobs.work", (number, seconds), queue=QUEUE, ignore_result=True)

    def begun():
        return [line.split() for line in cluster.redis(lambda redis: redis.lrange("jobs-notes:begun", 0, -1))]

    def ended():
        return cluster.redis(lambda redis: redis.lrange("jobs-notes:ended", 0, -1))

    cluster.wait("the empty queue is read", lambda: cluster.get("PodAutoscaler", "jobs").get("status"), 20)
    assert replicas(cluster, "jobs") == 0
    with Fleet(cluster, "app=jobs", url) as fleet:
        for number in range(18):
            send(number, 1.0)
        cluster.wait("three workers", lambda: replicas(cluster, "jobs") == 3, 30)
        cluster.wait("they work", lambda: len({pod for _, pod in begun()}) == 3, 30)
        # One long task: of three workers two are idle, and it is they who go.
        cluster.wait("the queue is worked off", lambda: len(ended()) == 18, 60)
        send(18, 14.0)
        cluster.wait("it runs", lambda: len(begun()) == 19, 20)
        busy = begun()[-1][1]
        cluster.wait("idle workers go", lambda: replicas(cluster, "jobs") == 1, 40)
        assert [pod["metadata"]["name"] for pod in cluster.pods("app=jobs")] == [busy]
        assert len(ended()) == 18, "the long task still runs, early-acknowledged, and counts"
        cluster.wait("zero", lambda: replicas(cluster, "jobs") == 0, 60)
        cluster.wait("every worker has gone by itself", lambda: len(fleet.ended) == 3, 30)
        assert sorted(int(number) for number, _ in begun()) == sorted(int(number) for number in ended())
        assert sorted(int(number) for number in ended()) == list(range(19))
        assert {status for _, status in fleet.ended.values()} == {0}
    (source,) = cluster.get("PodAutoscaler", "jobs")["status"]["metrics"]
    assert source["type"] == "celery"
    app.close()
    told = [event["message"] for event in cluster.events_of("PodAutoscaler", "jobs")]
    assert any("from 0 to" in message for message in told)
    assert any("to 0 (Idle)" in message for message in told)


def test_load_on_something_at_zero_is_answered_within_seconds_and_nodes_are_bought_for_it(cluster):
    cluster.apply(a_deployment("web", 0, cpu="1"), an_autoscaler("web", {"type": "push"}, target="10"))
    cluster.wait("it is known", lambda: cluster.get("PodAutoscaler", "web").get("status"), 20)
    cluster.redis(lambda redis: redis.xadd(cluster.keys.kpa_push, {"pa": "default/web", "value": 0}))
    cluster.wait(
        "a wish of zero", lambda: cluster.redis(lambda r: r.sismember(cluster.keys.kpa_zero, "default/web")), 20
    )
    began = time.monotonic()
    until = began + 30

    def burst():
        cluster.redis(lambda redis: redis.xadd(cluster.keys.kpa_push, {"pa": "default/web", "value": 40}))
        return replicas(cluster, "web") > 0

    cluster.wait("the first pods are wished", burst, 10, pause=0.3)
    assert time.monotonic() - began < 6
    while len(cluster.running("app=web")) < 4 and time.monotonic() < until:
        burst()
        time.sleep(0.3)
    assert len(cluster.running("app=web")) == 4
    assert cluster.claims(), "nodes were bought for them"


def test_a_restart_of_every_process_goes_on_where_it_was(cluster):
    cluster.apply(
        a_deployment("steady", 1, cpu="100m"),
        an_autoscaler("steady", {"type": "push"}, target="10", window="60s"),
    )

    def feed():
        cluster.redis(lambda redis: redis.xadd(cluster.keys.kpa_push, {"pa": "default/steady", "value": 60}))
        state = cluster.redis(lambda redis: redis.get(cluster.keys.kpa_state("default/steady")))
        return json.loads(state or "{}")

    def window(held):
        source = (held.get("sources") or {}).get("push")
        return source["windows"]["stable"]["values"] if source else []

    began = cluster.wait("load is known", lambda: (held := feed()) and len(window(held)) >= 6 and held, 30, pause=0.5)
    assert began["state"]["panic_since_ms"], "six pods wished, one ready"
    for name in ("tick", "beat-1", "watcher-1"):
        cluster.kill(name)
    before = feed()
    later = before["decided_ms"] + 4000
    after = cluster.wait("it goes on", lambda: (held := feed()) and held["decided_ms"] > later and held, 40, pause=0.5)
    assert after["state"]["panic_since_ms"] >= began["state"]["panic_since_ms"]
    assert after["uid"] == before["uid"]
    assert len(window(after)) >= len(window(before)), "nothing of the window is lost"
    cluster.wait("and it goes on filling", lambda: len(window(feed())) > len(window(before)) + 5, 20, pause=0.5)
    cluster.wait("it is scaled", lambda: feed() and replicas(cluster, "steady") == 6, 30, pause=0.5)
