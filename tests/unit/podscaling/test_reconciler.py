"""Reconciler.reconcile and KPAScaler.scale by themselves, as the seed has them."""

import msgspec
import pytest

from tests.unit.podscaling.world import QUEUE
from wainwright.api.podautoscalers import PodAutoscaler
from wainwright.kube.resources import DEPLOYMENTS, POD_AUTOSCALERS
from wainwright.podscaling.kpa import MetricNotFound, ScaleUnknown


@pytest.fixture
def web(world):
    world.deployment()
    world.autoscaler()
    world.view()
    world.scaling.follow_config()
    return world


def pa(world, name="web"):
    return msgspec.convert(world.kube.of(POD_AUTOSCALERS)[name], PodAutoscaler)


def test_a_key_is_reconciled_on_its_own(web):
    web.scaling.reconcile(["default/web"])
    assert web.scaling.metrics.get("default", "web").desired_scale == ScaleUnknown
    assert web.condition("Active") == ("True", "Active")


def test_a_malformed_key_is_dropped(web, caplog):
    for key in ("web", "a/b/c", "/web", "default/"):
        web.scaling.reconcile([key])
    assert [record.message for record in caplog.records] == [
        f"action=malformed_key key={key!r}" for key in ("web", "a/b/c", "/web", "default/")
    ]


def test_what_does_not_exist_is_forgotten(web):
    web.scaling.reconcile(["default/web"])
    web.kube.remove(POD_AUTOSCALERS, "web", "default")
    web.view()
    web.scaling.reconcile(["default/web"])
    with pytest.raises(MetricNotFound):
        web.scaling.metrics.get("default", "web")


def test_reconciling_twice_writes_once(web):
    web.scaling.reconcile(["default/web"])
    web.view()
    calls = len(web.kube.calls)
    web.scaling.reconcile(["default/web"])
    assert len(web.kube.calls) == calls


@pytest.mark.parametrize(
    ("annotations", "desired", "scale"),
    [
        ({}, 7, 7),
        ({"max_scale": "4"}, 7, 4),
        ({"min_scale": "9"}, 7, 9),
        ({"min_scale": "9"}, -1, 9),
        ({}, -1, -1),
    ],
)
def test_scale_applies_bounds_and_returns_what_it_wants(world, annotations, desired, scale):
    """A target that is just being activated: an unknown wish still rises to a min scale."""
    world.deployment()
    world.autoscaler(**annotations)
    world.view()
    world.scaling.follow_config()
    assert world.scaling.scaler.scale(pa(world), desired) == scale
    assert world.replicas() == (scale if scale > 0 else 1)


def test_scale_to_where_it_is_writes_nothing(web):
    assert web.scaling.scaler.scale(pa(web), 1) == 1
    assert web.scaled() == []


def test_scale_leaves_another_class_alone(world):
    world.deployment()
    world.autoscaler(**{"class": "hpa.autoscaling.knative.dev"})
    world.view()
    world.scaling.follow_config()
    assert world.scaling.scaler.scale(pa(world), 5) == ScaleUnknown
    assert world.replicas() == 1


def test_every_scaling_act_is_on_record(web):
    web.scaling.scaler.scale(pa(web), 5)
    ((_, fields),) = web.store.redis.xrange(web.keys.kpa_log("default/web"))
    assert {name: fields[name] for name in ("from", "to", "reason", "target")} == {
        "from": "1",
        "to": "5",
        "reason": "Wish",
        "target": "Deployment web",
    }
    ((_, decision),) = web.store.redis.xrange(web.keys.decisions)
    assert (decision["what"], decision["about"]) == ("scaled", "podautoscaler/default/web")


def test_a_target_that_is_gone_raises_for_who_calls_scale(world):
    from wainwright.errors import NotFound

    world.autoscaler(metrics=(QUEUE,))
    world.view()
    world.scaling.follow_config()
    with pytest.raises(NotFound):
        world.scaling.scaler.scale(pa(world), 3)
    assert DEPLOYMENTS.plural
