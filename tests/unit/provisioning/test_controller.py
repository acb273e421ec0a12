"""The Controller over a store in memory, a cloud in memory and an API server that remembers patches."""

import msgspec
import pytest

from tests.conftest import fake_store
from tests.unit.kube.support import HandClock, a_pod
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodepools import (
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSelectorRequirement,
    TemplateSpec,
)
from wainwright.batching.pools import pools_in_use, use_pool
from wainwright.cloud.errors import CloudUnavailable, NodeClassNotReady
from wainwright.cloud.simulated.memory import MemoryProvider
from wainwright.cloud.simulated.types import generated_catalog
from wainwright.errors import Conflict, NotFound, StoreUnavailable
from wainwright.kube.client import Undecodable
from wainwright.kube.resources import NODE_POOLS
from wainwright.provisioning.chores import Chores
from wainwright.provisioning.controller import Controller
from wainwright.provisioning.provisioner import Provisioner

OURS = NodeClassReference(group="simulated.wainwright.dev", kind="SimulatedNodeClass", name="default")
EC2 = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
CATALOG = generated_catalog()


class PatchingServer:
    """Remembers status patches, and answers GET with what is in `objects`."""

    def __init__(self):
        self.patches = []
        self.objects = {}
        self.error = None

    def merge_patch(self, _resource, name, body, _namespace="", subresource=""):
        if self.error is not None:
            raise self.error
        assert subresource == "status"
        self.patches.append((name, body))

    def request(self, _method, path):
        name = path.rsplit("/", 1)[1]
        if name not in self.objects:
            raise NotFound(name, status=404)
        return msgspec.json.encode(self.objects[name])

    def conditions(self, name):
        """What was last written of a NodePool: type → (status, reason, message)."""
        bodies = [body for patched, body in self.patches if patched == name]
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in bodies[-1]["status"]["conditions"]}


class Events:
    def __init__(self):
        self.recorded = []

    def event(self, about, reason, type_, message):
        self.recorded.append((about.name, str(reason), type_, message))


class MoodyCloud(MemoryProvider):
    """`error`: what reading the catalog raises."""

    error = None

    def instance_types(self, node_pool):
        if self.error is not None:
            raise self.error
        return super().instance_types(node_pool)


class World:
    def __init__(self):
        self.clock = HandClock()
        self.store = fake_store()
        self.server = PatchingServer()
        self.cloud = MoodyCloud(CATALOG, self.clock)
        self.events = Events()
        self.chores = Chores(clock=self.clock)
        self.changes = []
        self.provisioner = Provisioner(self.store, shards=4, hint=lambda _shard: None, clock=self.clock)
        self.controller = Controller(
            self.store,
            self.server,
            self.cloud,
            self.provisioner,
            self.events,
            self.chores,
            on_change=self.changes.append,
            clock=self.clock,
        )

    @property
    def in_use(self):
        return pools_in_use(self.store)


@pytest.fixture
def world():
    return World()


def a_pool(name="general", *, uid=None, reference=OURS, values=("on-demand",), status=None, weight=None, **spec):
    requirement = NodeSelectorRequirement(key="karpenter.sh/capacity-type", operator="In", values=values)
    template = TemplateSpec(requirements=(requirement, *spec.pop("requirements", ())), node_class_ref=reference)
    return NodePool(
        metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version="5", generation=1),
        spec=NodePoolSpec(template=NodeClaimTemplate(spec=template), weight=weight, **spec),
        status=status or NodePoolStatus(),
    )


def as_written(world, node_pool):
    """The NodePool with the conditions that were written last."""
    (body,) = [body for name, body in world.server.patches if name == node_pool.name][-1:]
    conditions = msgspec.convert(body["status"]["conditions"], tuple[Condition, ...])
    return msgspec.structs.replace(node_pool, status=NodePoolStatus(conditions=conditions))


def invalid(name="bad"):
    host = NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=("x",))
    return a_pool(name, requirements=(host,))


def test_valid_node_pool_is_taken_into_use_and_told_ready(world):
    applied = world.controller.apply(a_pool())
    assert applied.usable
    assert world.in_use == {"general": "uid-general"}
    assert world.server.conditions("general") == {
        "ValidationSucceeded": ("True", "ValidationSucceeded", ""),
        "NodeClassReady": ("True", "NodeClassReady", ""),
        "Ready": ("True", "Ready", ""),
    }
    assert world.changes == ["NodePool general applied"]
    assert world.events.recorded == []


def test_applying_the_same_again_does_nothing(world):
    world.controller.apply(a_pool())
    again = as_written(world, a_pool())
    assert not world.controller.apply(again).changed
    shuffled = a_pool(values=("on-demand", "on-demand"), status=again.status)
    assert not world.controller.apply(shuffled).changed, "requirements are sets"
    assert len(world.server.patches) == 1
    assert len(world.changes) == 1


def test_changed_spec_is_told(world):
    world.controller.apply(a_pool())
    assert world.controller.apply(a_pool(values=("spot",))).changed
    assert world.changes[-1] == "NodePool general changed"


def test_invalid_node_pool_gets_no_claims_and_stops_no_other(world):
    world.controller.apply(a_pool())
    applied = world.controller.apply(invalid())
    assert not applied.usable
    assert world.in_use == {"general": "uid-general"}
    status, reason, message = world.server.conditions("bad")["ValidationSucceeded"]
    assert (status, reason) == ("False", "NodePoolInvalid")
    assert "kubernetes.io/hostname" in message
    assert world.server.conditions("bad")["Ready"] == ("False", "NotReady", "ValidationSucceeded is False")
    assert [event[:3] for event in world.events.recorded] == [("bad", "NodePoolInvalid", "Warning")]
    assert [pool.name for pool in world.controller.list()] == ["general"]


def test_node_pool_that_becomes_invalid_goes_out_of_use_and_back(world):
    world.controller.apply(a_pool("bad"))
    world.controller.apply(invalid())
    assert world.in_use == {}
    world.controller.apply(a_pool("bad"))
    assert world.in_use == {"bad": "uid-bad"}


def test_missing_node_class_of_our_own_kind_is_told(world):
    world.cloud.error = NodeClassNotReady("SimulatedNodeClass default does not exist")
    assert not world.controller.apply(a_pool()).usable
    expected = ("False", "NodeClassNotReady", "SimulatedNodeClass default does not exist")
    assert world.server.conditions("general")["NodeClassReady"] == expected
    assert world.events.recorded[0][:3] == ("general", "NodeClassNotReady", "Warning")
    assert world.in_use == {}
    world.cloud.error = None
    world.controller.refresh()
    assert world.in_use == {"general": "uid-general"}


def test_node_class_of_another_provider_is_served_and_told_as_simulated(world):
    assert world.controller.apply(a_pool(reference=EC2)).usable
    status, reason, message = world.server.conditions("general")["NodeClassReady"]
    assert (status, reason) == ("True", "NodeClassSimulated")
    assert "simulated" in message


def test_cloud_that_is_away_stops_nothing(world):
    world.controller.apply(a_pool())
    world.cloud.error = CloudUnavailable("no answer")
    assert world.controller.apply(as_written(world, a_pool())).usable
    assert world.server.conditions("general")["Ready"][0] == "Unknown"
    assert world.in_use == {"general": "uid-general"}


def test_node_pool_made_anew_is_another_one(world):
    world.controller.apply(a_pool(uid="first"))
    assert world.controller.apply(a_pool(uid="second")).changed
    assert world.in_use == {"general": "second"}


def test_late_deletion_of_the_old_one_leaves_the_new_one(world):
    world.controller.apply(a_pool(uid="second"))
    world.controller._on_event("gone", a_pool(uid="first"))
    world.chores.run_due()
    assert world.in_use == {"general": "second"}


def test_deleted_node_pool_hands_its_pods_to_the_next(world):
    world.controller.apply(a_pool("first", weight=10))
    world.controller.apply(a_pool("second"))
    world.provisioner.add(a_pod())
    assert world.store.redis.hget(world.store.keys.seen, "uid-web-0").startswith("first/")
    world.controller.delete("first")
    assert world.store.redis.hget(world.store.keys.seen, "uid-web-0").startswith("second/")
    assert [pool.name for pool in world.controller.list()] == ["second"]


def test_node_pool_being_deleted_is_out_of_use(world):
    world.controller.apply(a_pool())
    leaving = a_pool()
    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp=world.clock.now())
    assert not world.controller.apply(msgspec.structs.replace(leaving, metadata=meta)).usable
    assert world.in_use == {}


def test_static_node_pool_takes_no_pods(world):
    assert not world.controller.apply(a_pool(replicas=3)).usable
    assert world.in_use == {}


def test_list_is_in_priority_order(world):
    for pool in (a_pool("b"), a_pool("a"), a_pool("heavy", weight=50)):
        world.controller.apply(pool)
    assert [pool.name for pool in world.controller.list()] == ["heavy", "a", "b"]


def test_reconcile_looks_at_kubernetes(world):
    world.server.objects["general"] = msgspec.to_builtins(a_pool())
    world.controller.reconcile("general")
    assert world.in_use == {"general": "uid-general"}
    world.server.objects.clear()
    world.controller.reconcile("general")
    assert world.in_use == {}


def test_node_pool_that_cannot_be_decoded_is_told_by_field(world):
    world.controller.apply(a_pool())
    raw = msgspec.to_builtins(a_pool())
    raw["spec"]["weight"] = "heavy"
    bad = Undecodable(NODE_POOLS, "general", "uid-general", "6", "why", msgspec.json.encode(raw))
    world.controller._on_event("undecodable", bad)
    world.chores.run_due()
    assert world.in_use == {}
    status, _, message = world.server.conditions("general")["ValidationSucceeded"]
    assert status == "False"
    assert "spec.weight" in message


def test_emptied_redis_learns_again_which_are_in_use(world):
    world.controller.apply(a_pool())
    world.store.redis.flushall()
    world.controller._on_event("listed", frozenset({"general"}))
    world.chores.run_due()
    assert world.in_use == {"general": "uid-general"}


def test_node_pool_deleted_while_nobody_watched_goes_out_of_use(world):
    use_pool(world.store, "long-gone", "uid-x")
    world.controller.apply(a_pool())
    world.controller.refresh()
    assert world.in_use == {"general": "uid-general"}


def test_conditions_are_not_written_over_a_newer_version(world):
    """Somebody wrote meanwhile: the event of that version brings us back here."""
    world.server.error = Conflict("newer", status=409)
    assert world.controller.apply(a_pool()).usable
    world.server.error = None
    world.controller.apply(a_pool())
    assert len(world.server.patches) == 1


def test_node_pool_deleted_while_we_stood_by_is_not_taken_into_use_again(world):
    world.controller.apply(a_pool("kept"))
    world.controller.apply(a_pool("went"))
    world.store.redis.hdel(world.store.keys.nodepools, "went")
    world.controller._on_event("put", a_pool("kept"))
    world.controller._on_event("listed", frozenset({"kept"}))
    world.controller._on_event("put", a_pool("later"))
    world.chores.run_due()
    assert set(world.in_use) == {"kept", "later"}
    assert [pool.name for pool in world.controller.list()] == ["kept", "later"]


def test_apply_that_found_redis_away_is_done_in_full_the_next_time(world):
    run, world.store.run = world.store.run, lambda *_: (_ for _ in ()).throw(StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        world.controller.apply(a_pool())
    world.store.run = run
    assert world.controller.apply(a_pool()).changed
    assert world.in_use == {"general": "uid-general"}
