"""Every key that a live stack writes is documented in wainwright/keys.py, with its type and a command that reads it."""

import re
import signal

import pytest

from tests.acceptance.builders import a_deployment, a_node_pool, a_pod
from wainwright.keys import KEY_SPECS

TYPES = {"hash": "hash", "stream": "stream", "sorted set": "zset", "set": "set", "string": "string", "list": "list"}

SELDOM = {
    "dead",  # only what cannot be parsed, or kills its worker
    "refused",  # only NodePools that the cloud refuses
    "lock:<name>",  # for the moment in which somebody holds it
    "window:<nodepool>",
    "windows",
    "seen",
    "planned",
    "view:pending",
    "claims:due",
    "batch:<id>:effects",
    "batches:<state>",
    "celery:unacked",
    "celery:unacked_index",
    "celery:unacked_mutex",
}
"""Patterns that the walk may miss without being wrong: they are there for moments, or in trouble only."""


def pattern_of(key):
    """The spec that describes a key: of those that match it the one that says most of it literally."""
    fitting = [spec for spec in KEY_SPECS if re.fullmatch(expression(spec.pattern), key)]
    return max(fitting, key=lambda spec: len(re.sub(r"<[^>]*>", "", spec.pattern)), default=None)


def expression(pattern):
    return "".join(".+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<[^>]*>)", pattern))


def walk(system, seen):
    """Adds every key and its type. One that is gone before its type was asked for is left out."""
    prefix = system.keys.prefix
    for key in system.redis(lambda redis: list(redis.scan_iter("*", count=1000))):
        assert key.startswith(prefix), f"{key} is outside of the prefix {prefix}"
        kind = system.redis(lambda redis, key=key: redis.type(key))
        if kind != "none":
            seen[key.removeprefix(prefix)] = kind


def an_autoscaler(name):
    """On load that is pushed; its Deployment begins with no pods."""
    return {
        "apiVersion": "autoscaling.wainwright.dev/v1alpha1",
        "kind": "PodAutoscaler",
        "metadata": {"name": name, "annotations": {"autoscaling.knative.dev/target": "10"}},
        "spec": {"scaleTargetRef": {"name": name}, "metrics": [{"type": "push"}]},
    }


@pytest.fixture
def autoscaled(system):
    """One Deployment that has load and one that has none; called again and again, it reports both."""
    system.apply(*(a_deployment(name, 0, cpu="100m") for name in ("loaded", "idle")))
    system.apply(*(an_autoscaler(name) for name in ("loaded", "idle")))

    def report():
        for name, value in (("loaded", 5), ("idle", 0)):
            fields = {"pa": f"default/{name}", "value": value}
            system.redis(lambda redis, fields=fields: redis.xadd(system.keys.kpa_push, fields, maxlen=1000))

    yield report
    for name in ("loaded", "idle"):
        system.delete("PodAutoscaler", name)


def test_every_key_of_a_live_stack_is_documented(system, autoscaled):
    """Walked while all sorts of things happen: nodes bought and shared, pods that wait, offerings sold out, load."""
    seen = {}
    system.cloud("PUT", "/v1/faults", {"sold_out": [{"instance_type": "c6a.large", "zone": "us-east-1a"}]})
    system.apply(
        a_node_pool(),
        a_deployment("web", 3, cpu="1500m"),
        a_pod("too-large", cpu="900"),
        a_pod("with-affinity", cpu="100m", labels={"app": "with-affinity"}),
    )

    def everything_happened():
        walk(system, seen)
        keys = system.keys
        waiting = system.redis(lambda redis: redis.zcard(keys.retry))
        return waiting and len(system.running("app=web")) == 3

    system.wait("three pods run and one is to be retried", everything_happened, 30, pause=0.02)
    nominated = system.keys.nominated
    system.kill("launch-1", signal.SIGSTOP)
    system.kill("launch-2", signal.SIGSTOP)
    try:
        system.apply(a_pod("small-1", cpu="200m"), a_pod("small-2", cpu="200m"), a_deployment("more", 2, cpu="1500m"))

        def hints_wait():
            walk(system, seen)
            return "celery:launch" in seen and system.redis(lambda redis: redis.zcard(system.keys.claims_due))

        system.wait("hints wait in the queue", hints_wait, 30, pause=0.02)
    finally:
        system.kill("launch-1", signal.SIGCONT)
        system.kill("launch-2", signal.SIGCONT)

    def settled():
        autoscaled()
        walk(system, seen)
        return len(system.running()) == 9 and "kpa:zero" in seen

    system.wait("all that fit run", settled, 40, pause=0.02)
    walk(system, seen)
    undocumented = sorted(key for key in seen if pattern_of(key) is None)
    assert not undocumented, f"keys without a KeySpec in wainwright/keys.py: {undocumented}"
    wrong = [f"{key} is a {kind}" for key, kind in seen.items() if TYPES[pattern_of(key).type] != kind]
    assert not wrong, wrong
    unseen = {spec.pattern for spec in KEY_SPECS} - {pattern_of(key).pattern for key in seen}
    assert unseen <= SELDOM, f"documented, but not seen in a stack where all of it happened: {sorted(unseen - SELDOM)}"
    assert nominated.removeprefix(system.keys.prefix) in seen


def test_every_command_in_the_document_is_one_that_redis_understands(system):
    """A wrong type or a misspelt command would be an error answer."""
    system.apply(a_node_pool(), a_pod("web-0", cpu="1500m"))
    system.wait_running(1)
    for spec in KEY_SPECS:
        words = spec.command.format(system.keys.prefix).split()
        system.redis(lambda redis, words=words: redis.execute_command(*words))


def test_the_most_literal_pattern_describes_a_key():
    assert pattern_of("plan:abc:input").pattern == "plan:<id>:input"
    assert pattern_of("plan:abc").pattern == "plan:<id>"
    assert pattern_of("lock:window:3").pattern == "lock:<name>"
    assert pattern_of("view:pods").pattern == "view:<kind>"
    assert pattern_of("view:pending").pattern == "view:pending"
    assert pattern_of("celery:launch").pattern == "celery:<queue>"
    assert pattern_of("unheard-of") is None
