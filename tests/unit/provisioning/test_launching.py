"""Carrying out claims, from pending pods to bound ones, with everything real but the outside."""

from datetime import timedelta

import msgspec
import pytest

from tests.unit.provisioning.crashing import Actor, Killed, Paused
from tests.unit.provisioning.world import World
from wainwright.api import names
from wainwright.cloud.errors import CloudUnavailable, NodeClassNotReady, RequestRefused, Throttled
from wainwright.kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.steps import Outcome
from wainwright.scheduling.instance_types import OfferingKey

EVERYTHING = OfferingKey("*", "*", "*")


def pod_nodes(world):
    return {name: pod["spec"].get("nodeName", "") for name, pod in world.kube.of(PODS).items()}


def the_claim(world):
    [claim] = world.kube.of(NODE_CLAIMS).values()
    return claim


def condition(claim, kind):
    return next((c for c in claim["status"].get("conditions", ()) if c["type"] == kind), None)


def test_pending_pods_get_one_node_and_run_on_it(world):
    world.pods("a", "b", "c")
    world.settle()
    [launch] = world.launches()
    assert set(pod_nodes(world).values()) == {launch.node_claim}
    assert list(world.kube.of(NODE_CLAIMS)) == list(world.kube.of(NODES)) == [launch.node_claim]
    assert len(world.events.of("Launched")) == 1


def test_a_node_claim_carries_all_that_going_on_needs(world):
    world.pods("a")
    world.settle()
    claim = the_claim(world)
    annotations = claim["metadata"]["annotations"]
    assert names.TERMINATION_FINALIZER in claim["metadata"]["finalizers"]
    [(uid, key, role)] = msgspec.json.decode(annotations[names.PODS_ANNOTATION])
    assert (uid, key, role) == (world.kube.of(PODS)["a"]["metadata"]["uid"], "default/a", "bind")
    assert msgspec.json.decode(annotations[names.OPTIONS_ANNOTATION])["options"]
    assert msgspec.json.decode(annotations[names.ATTEMPTS_ANNOTATION]) == [{"number": 1, "outcome": "Launched"}]
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("NodePool", world.kube.of(NODE_POOLS)["general"]["metadata"]["uid"])
    assert claim["status"]["providerID"] == the_node(world)["spec"]["providerID"]
    assert claim["metadata"]["labels"][names.INSTANCE_TYPE_LABEL] == world.launches()[0].instance_type


def the_node(world):
    [node] = world.kube.of(NODES).values()
    return node


def test_the_node_keeps_our_taint_until_it_is_ready_and_the_binds_are_over(world):
    world.node_pool("tainted", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    world.kube.remove(NODE_POOLS, "general")
    world.pods("a", tolerations=[{"key": "team", "operator": "Exists"}])
    [claim] = world.planned()
    world.launch_hinted()
    assert pod_nodes(world) == {"a": claim}
    node = the_node(world)
    assert {t["key"] for t in node["spec"]["taints"]} == {"team", names.NOT_READY_TAINT.key}
    world.settle()
    node = the_node(world)
    assert [t["key"] for t in node["spec"]["taints"]] == ["team"]
    assert node["metadata"]["labels"][names.INITIALIZED_LABEL] == "true"
    assert {c["type"]: c["status"] for c in the_claim(world)["status"]["conditions"]} == {
        "Launched": "True",
        "Registered": "True",
        "Initialized": "True",
        "Ready": "True",
    }


def test_a_startup_taint_holds_initialization_up_but_not_the_opening(world):
    world.kube.remove(NODE_POOLS, "general")
    world.node_pool("starting", startupTaints=[{"key": "cni", "effect": "NoSchedule"}])
    world.pods("a")
    for _ in range(10):
        world.tick()
    assert [t["key"] for t in the_node(world)["spec"]["taints"]] == ["cni"]
    assert condition(the_claim(world), "Initialized")["message"] == "startup taint cni is still there"
    world.kube.change(NODES, the_node(world)["metadata"]["name"], spec={"taints": []})
    world.settle()


def test_a_pod_that_does_not_tolerate_a_startup_taint_is_left_to_the_scheduler(world):
    """Bound at once it ran before its node's agent did, or was evicted and planned anew on a second node."""
    world.kube.remove(NODE_POOLS, "general")
    world.node_pool("starting", startupTaints=[{"key": "cni", "effect": "NoExecute"}])
    world.pods("careful")
    world.pods("bold", tolerations=[{"key": "cni", "operator": "Exists"}])
    world.planned()
    world.launch_hinted()
    assert pod_nodes(world) == {"bold": the_node(world)["metadata"]["name"], "careful": ""}


def test_a_hint_that_arrives_late_or_twice_does_nothing(world):
    world.pods("a")
    [claim] = world.planned()
    assert world.parts.launcher.launch(claim) is Outcome.DONE
    calls = len(world.kube.calls)
    assert world.parts.launcher.launch(claim) is Outcome.SKIPPED
    assert world.parts.launcher.launch("never-heard-of") is Outcome.SKIPPED
    assert len(world.kube.calls) == calls


def test_the_same_launch_on_three_workers_at_once_with_a_slow_cloud_buys_once(a_world_of_solo):
    """f53-visibility-timeout: the broker hands the message of a 20 s launch to every worker in turn. One instance, one
    NodeClaim, one event, as long as the first holder renews its lease.
    """
    world, claims = a_world_of_solo
    for claim in claims:
        slow = Actor(world, "slow")
        first = Paused(slow, lambda slow=slow, claim=claim: slow.launch(claim))
        while slow.calls[-1:] != ["cloud create"]:
            first.step()
        for _ in range(4):
            world.clock.advance(3)
            world.sync()
            assert (
                world.store.run("claim_renew", 4000, claim, world.redis.hget(f"wainwright:claim:{claim}", "holder"))
                == []
            )
            for worker in ("second", "third"):
                assert Actor(world, worker).launch(claim) is Outcome.SKIPPED
        assert first.finish() is Outcome.DONE
    world.hints.claims.clear()
    world.settle()
    assert len(world.launches()) == len(world.kube.of(NODE_CLAIMS)) == len(claims)
    assert len(world.events.of("Launched")) == len(claims)
    assert len(world.cloud.requests) == len(claims)


@pytest.fixture
def a_world_of_solo(world):
    world.pods("solo-1", "solo-2", "solo-3", cpu="1500m", memory="128Mi")
    return world, world.planned()


# What the cloud says -------------------------------------------------------------------------------------------------


def test_a_sold_out_offering_is_remembered_and_the_next_option_taken(world):
    world.pods("a")
    [claim] = world.planned()
    options = msgspec.json.decode(world.redis.hget(f"wainwright:claim:{claim}", "options"))
    cheapest = OfferingKey(options[0]["capacity_type"], options[0]["instance_type"], options[0]["zone"])
    world.cloud.sold_out = (cheapest,)
    world.settle()
    [launch] = world.launches()
    assert (launch.instance_type, launch.zone) != (cheapest.instance_type, cheapest.zone)
    assert cheapest in world.parts.records.unavailable()
    world.clock.advance(180)
    assert cheapest not in world.parts.records.unavailable()


def test_an_answer_of_no_capacity_starts_a_new_attempt_with_what_is_left(world):
    from wainwright.cloud.errors import InsufficientCapacity

    world.pods("a")
    [claim] = world.planned()
    options = msgspec.json.decode(world.redis.hget(f"wainwright:claim:{claim}", "options"))
    taken = OfferingKey("*", options[0]["instance_type"], "*")
    world.cloud.next_errors = [InsufficientCapacity((taken,))]
    world.settle()
    first, second = world.cloud.requests
    assert (first.token[-2:], second.token[-2:]) == ("-1", "-2")
    assert len(second.options) < len(first.options)
    assert taken.instance_type not in {option.instance_type for option in second.options}
    attempts = msgspec.json.decode(the_claim(world)["metadata"]["annotations"][names.ATTEMPTS_ANNOTATION])
    assert [(a["number"], a["outcome"]) for a in attempts] == [(1, "InsufficientCapacity"), (2, "Launched")]


def test_a_claim_without_any_capacity_fails_and_its_pods_are_queued_anew(world):
    world.pods("a")
    [claim] = world.planned()
    world.cloud.sold_out = (EVERYTHING,)
    batch = world.redis.zrange("wainwright:batches:planned", 0, -1)[0]
    assert world.parts.launcher.launch(claim) is Outcome.FAILED
    assert world.kube.of(NODE_CLAIMS) == {}
    assert world.redis.hget(f"wainwright:claim:{claim}", "reason") == "InsufficientCapacity"
    assert world.redis.hget(f"wainwright:batch:{batch}", "state") == "done", "the gate opens on failure too"
    assert world.redis.hlen("wainwright:seen") == 1, "queued anew"
    assert world.redis.hlen("wainwright:planned") == 0
    world.cloud.sold_out = ()
    world.clock.advance(180)
    world.settle()
    assert len(world.launches()) == 1


def test_a_request_refused_for_good_fails_with_its_reason_on_the_object(world):
    world.pods("a")
    [claim] = world.planned()
    world.cloud.next_errors = [RequestRefused("UnauthorizedOperation", "you may not")]
    seen = []
    real = world.kube.delete

    def delete(resource, name, *args, **kwargs):
        if resource is NODE_CLAIMS:
            seen.append(condition(world.kube.of(NODE_CLAIMS)[name], "Launched"))
        return real(resource, name, *args, **kwargs)

    world.kube.delete = delete
    assert world.parts.launcher.launch(claim) is Outcome.FAILED
    assert [(c["status"], c["reason"], c["message"]) for c in seen] == [
        ("False", "UnauthorizedOperation", "you may not")
    ]
    assert world.events.of("NodeClaimFailed") == [("NodeClaimFailed", claim, "UnauthorizedOperation: you may not")]
    assert len(world.redis.hgetall("wainwright:refused")) == 1, "its NodePool gets no claims for a while"
    world.settle()


def test_however_long_the_cloud_asks_to_wait_the_claim_is_looked_at_again(world):
    """A quarter of an hour without a look would leave a claim that nobody wants any more, and its NodeClaim, there."""
    world.pods("a")
    [claim] = world.planned()
    world.cloud.next_errors = [Throttled(900.0)]
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    next_ms = int(world.redis.hget(f"wainwright:claim:{claim}", "next_ms"))
    assert next_ms - world.store.now_ms() <= 30_000


@pytest.mark.parametrize(
    "error",
    [Throttled(1.5), NodeClassNotReady("there is none"), CloudUnavailable("hung")],
    ids=lambda e: type(e).__name__,
)
def test_what_passes_is_tried_again_with_the_same_token(world, error):
    world.pods("a")
    world.planned()
    world.cloud.next_errors = [error, error]
    world.settle()
    assert len({request.token for request in world.cloud.requests}) == 1
    assert len(world.cloud.requests) == 3
    assert len(world.launches()) == 1


def test_no_plan_stays_open_for_ever(world):
    """After five minutes without an instance the claim fails: its pods are planned anew."""
    world.pods("a")
    [claim] = world.planned()
    world.cloud.next_errors = [Throttled(20.0)] * 16
    world.settle(ticks=250)
    assert world.redis.hget(f"wainwright:claim:{claim}", "reason") == "LaunchTimeout"
    [launch] = world.launches()
    assert launch.node_claim != claim


def test_a_lost_answer_is_asked_for_again_and_gives_the_same_instance(world):
    world.pods("a")
    world.planned()
    world.cloud.lost_answers = 3
    world.settle()
    assert len(world.launches()) == 1
    assert len(world.cloud.requests) == 4


def test_a_claim_whose_answer_was_lost_fails_only_once_its_request_has_expired(world):
    """The cloud carried the request out unheard, and the pods went meanwhile: asked by token, the instance is found and
    ended, but not before every request that was allowed can have arrived.
    """
    world.pods("a")
    [claim] = world.planned()
    world.cloud.lost_answers = 1
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    world.kube.remove(PODS, "a", "default")
    world.sync()
    world.clock.advance(3)
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    assert world.redis.hget(f"wainwright:claim:{claim}", "state") == "failing"
    assert len(world.launches()) == 1
    assert world.launches()[0].ended_at is None
    world.settle()
    assert world.launches()[0].ended_at is not None
    assert world.kube.of(NODE_CLAIMS) == {}


def test_a_failing_claim_whose_instance_is_found_is_taken_after_all(world):
    world.pods("a")
    [claim] = world.planned()
    world.cloud.lost_answers = 1
    world.parts.launcher.launch(claim)
    world.cloud.next_errors = [RequestRefused("Odd", "no")]
    world.clock.advance(3)
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    assert world.redis.hget(f"wainwright:claim:{claim}", "state") == "failing"
    world.settle()
    assert world.redis.hget(f"wainwright:claim:{claim}", "state") == "done"
    assert pod_nodes(world) == {"a": claim}
    assert len(world.launches()) == 1


def test_an_instance_that_only_redis_has_forgotten_is_found_at_once(world):
    """The NodeClaim says that its attempt ended well, but has no provider id yet when Redis is emptied."""
    world.pods("a")
    [claim] = world.planned()
    world.hints.claims.clear()
    actor = Actor(world)

    def before(number):
        if actor.calls.count("kube merge_patch nodeclaims") == 2:
            raise Killed

    actor.before = before
    assert actor.launch(claim) is None
    assert "providerID" not in the_claim(world)["status"]
    world.flush_all()
    world.sync()
    assert world.parts.launcher.launch(claim) is Outcome.DONE
    assert len(world.launches()) == len(world.cloud.requests) == 1


# What happens meanwhile ----------------------------------------------------------------------------------------------


def test_pods_that_are_gone_before_the_launch_cost_nothing(world):
    world.pods("a")
    [claim] = world.planned()
    world.kube.remove(PODS, "a", "default")
    world.sync()
    assert world.parts.launcher.launch(claim) is Outcome.FAILED
    assert world.cloud.requests == []
    assert world.kube.of(NODE_CLAIMS) == {}
    world.settle()


def test_a_node_pool_made_anew_fails_the_claims_of_the_old_one_before_they_cost(world):
    world.pods("a")
    [claim] = world.planned()
    world.kube.remove(NODE_POOLS, "general")
    world.node_pool("general")
    world.sync()
    assert world.parts.launcher.launch(claim) is Outcome.FAILED
    assert world.cloud.requests == []
    assert world.redis.hget(f"wainwright:claim:{claim}", "reason") == "NodePoolReplaced"
    world.settle()
    assert len(world.launches()) == 1


def test_nobody_launches_on_an_incomplete_or_stale_view(world):
    world.pods("a")
    [claim] = world.planned()
    world.redis.hset("wainwright:view:meta", "complete", "0")
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    world.redis.hset("wainwright:view:meta", "complete", "1")
    world.clock.advance(31)
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    assert world.cloud.requests == []
    assert "no sign of life" in world.redis.hget(f"wainwright:claim:{claim}", "message")
    world.settle()


def test_a_pod_bound_elsewhere_meanwhile_is_left_alone(world):
    world.pods("a", "b")
    [claim] = world.planned()
    world.kube.bind("default", "a", world.kube.of(PODS)["a"]["metadata"]["uid"], "elsewhere")
    assert world.parts.launcher.launch(claim) is Outcome.DONE
    assert pod_nodes(world) == {"a": "elsewhere", "b": claim}


def test_pods_whose_bind_fails_are_queued_anew_and_the_claim_stands(world):
    """Binding never makes a launched claim fail: the pod lands on its node all the same, by nomination."""
    world.pods("a", "b")
    [claim] = world.planned()
    actor = Actor(world)
    actor.after = lambda number: None

    def before(number):
        if actor.calls[number] == "kube bind" and world.kube.of(PODS)["a"]["spec"].get("nodeName"):
            from wainwright.errors import KubeError

            raise KubeError("webhook says no", status=403)

    actor.before = before
    assert actor.launch(claim) is Outcome.DONE
    assert sorted(pod_nodes(world).values()) == ["", claim]
    world.settle()
    assert set(pod_nodes(world).values()) == {claim}
    assert len(world.launches()) == 1


def test_a_pod_with_an_unbound_volume_is_left_to_kube_scheduler(world):
    world.pods("plain")
    world.pods("claiming", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    from wainwright.kube.resources import PVCS

    world.kube.create(PVCS, {"metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "std"}})
    from wainwright.kube.resources import STORAGE_CLASSES

    world.kube.create(
        STORAGE_CLASSES,
        {"metadata": {"name": "std"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
    )
    [claim] = world.planned()
    world.launch_hinted()
    assert pod_nodes(world) == {"plain": claim, "claiming": ""}
    assert [name for _, name, _ in world.events.of("Nominated")] == ["claiming"]
    world.settle()
    assert set(pod_nodes(world).values()) == {claim}


def test_in_scheduler_mode_all_pods_are_nominated(monkeypatch):
    world = World(monkeypatch, policy=LaunchPolicy(binding="scheduler"))
    world.node_pool()
    world.pods("a", "b")
    [claim] = world.planned()
    world.launch_hinted()
    assert ("bind", "pods", "a") not in world.kube.calls
    assert sorted(name for _, name, _ in world.events.of("Nominated")) == ["a", "b"]
    world.settle()
    assert set(pod_nodes(world).values()) == {claim}


def test_a_nomination_that_nobody_fulfils_ends_twenty_seconds_after_the_node_is_ready(monkeypatch):
    world = World(monkeypatch, policy=LaunchPolicy(binding="scheduler"))
    world.kube_scheduler = lambda: None
    world.node_pool()
    world.pods("a")
    world.planned()
    world.launch_hinted()
    uid = world.kube.of(PODS)["a"]["metadata"]["uid"]
    while the_node(world)["spec"]["taints"]:
        world.tick()
    opened_at = world.clock.now()
    planned = world.redis.hget("wainwright:planned", uid)
    while world.redis.hget("wainwright:planned", uid) == planned:
        world.tick()
        assert world.clock.now() - opened_at < timedelta(seconds=40)
    assert world.clock.now() - opened_at == timedelta(seconds=20)


def test_pods_for_an_existing_node_are_nominated_without_a_claim(world):
    world.pods("a")
    world.settle()
    world.pods("b", cpu="100m", memory="64Mi")
    world.settle()
    assert len(world.launches()) == 1
    assert [name for _, name, _ in world.events.of("Nominated")] == ["b"]


def test_a_pod_that_rests_on_a_claim_in_flight_is_queued_anew_when_that_fails(world):
    world.pods("a")
    [claim] = world.planned()
    world.hints.claims.clear()
    world.pods("b", cpu="10m", memory="8Mi")
    assert world.planned() == []
    uid = world.kube.of(PODS)["b"]["metadata"]["uid"]
    assert world.redis.hget(f"wainwright:claim:{claim}:pods", uid).startswith("rest|default/b")
    world.cloud.sold_out = (EVERYTHING,)
    assert world.parts.launcher.launch(claim) is Outcome.FAILED
    assert world.redis.hexists("wainwright:seen", uid)
    world.cloud.sold_out = ()
    world.clock.advance(180)
    world.settle()


def test_pods_that_cannot_be_placed_are_told_why(world):
    world.pods("huge", cpu="9000")
    world.planned()
    world.launch_hinted()
    [(_, name, message)] = world.events.of("FailedScheduling")
    assert name == "huge"
    assert "nodepool/general" in message


def test_where_the_cloud_does_not_name_nodes_the_kubelets_is_awaited_and_completed(world):
    """As on EC2: the node comes by itself, with the taint of nodes that nobody has registered yet."""
    world.cloud.names_nodes = False
    real = world.kubelets

    def kubelets():
        for instance in world.cloud.list("test"):
            name = instance.node_name
            if instance.boots_at <= world.clock.now() and name not in world.kube.of(NODES):
                taint = {"key": names.UNREGISTERED_TAINT.key, "effect": "NoExecute"}
                spec = {"providerID": instance.provider_id, "taints": [taint]}
                world.kube.create(NODES, {"metadata": {"name": name}, "spec": spec})
        real()

    world.kubelets = kubelets
    world.pods("a")
    [claim] = world.planned()
    assert world.parts.launcher.launch(claim) is Outcome.WAITING
    assert world.kube.of(NODES) == {}
    world.settle()
    node = the_node(world)
    assert node["metadata"]["name"] == world.launches()[0].instance_id
    assert not node["spec"]["taints"]
    assert node["metadata"]["labels"][names.NODEPOOL_LABEL] == "general"
    assert names.TERMINATION_FINALIZER in node["metadata"]["finalizers"]
    assert pod_nodes(world) == {"a": node["metadata"]["name"]}
    assert the_claim(world)["status"]["nodeName"] == node["metadata"]["name"]
    world.kube.delete(NODE_CLAIMS, claim)
    world.tick()
    world.kubelets = real
    world.settle()
    assert world.kube.of(NODES) == {}
