"""Binding pods, and which ones may be bound past the scheduler."""

import pytest

from tests.unit.provisioning.fakes import FakeClock
from wainwright.api.meta import ObjectMeta
from wainwright.api.pods import (
    EphemeralVolumeSource,
    PersistentVolumeClaimSource,
    Pod,
    PodResourceClaim,
    PodSpec,
    Volume,
)
from wainwright.batching.claims import ClaimPod, Role
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.provisioning.binding import Binder, OneByOne, can_be_bound_directly


class Api:
    """Answers each bind with the next of the pod's answers."""

    def __init__(self, answers):
        self.answers = answers

    def bind(self, namespace, name, pod_uid, node):
        answer = self.answers[name].pop(0) if self.answers.get(name) else None
        if answer is not None:
            raise answer


def bound(**answers):
    clock = FakeClock()
    pods = [ClaimPod(uid=f"u-{name}", role=Role.BIND, key=f"default/{name}") for name in answers]
    return Binder(Api(answers), OneByOne(), clock).bind(pods, "n"), clock


def test_fates():
    found, _ = bound(
        fine=[],
        before=[Conflict("bound", status=409)],
        gone=[NotFound("gone", status=404)],
        refused=[KubeError("webhook", status=403)],
    )
    assert found.bound == ("u-fine",)
    assert found.settled == ("u-before", "u-gone")
    assert found.unbound == ("u-refused",)
    assert "webhook" in found.why


def test_silence_is_asked_again_and_given_up_in_the_end():
    found, clock = bound(short=[KubeUnavailable("busy")] * 2, long=[KubeUnavailable("busy")] * 9)
    assert (found.bound, found.unbound) == (("u-short",), ("u-long",))
    assert clock.monotonic_seconds() < 5


def test_an_answer_that_was_lost_is_a_bind_all_the_same():
    found, _ = bound(a=[KubeUnavailable("lost"), Conflict("bound by us", status=409)])
    assert found.settled == ("u-a",)


def a_pod(*volumes, **spec):
    return Pod(metadata=ObjectMeta(name="p", namespace="ns"), spec=PodSpec(volumes=volumes, **spec))


CLAIM = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data"))
EPHEMERAL = Volume(name="scratch", ephemeral=EphemeralVolumeSource())


@pytest.mark.parametrize(
    ("pod", "volumes", "answer"),
    [
        (a_pod(), (), True),
        (a_pod(Volume(name="config")), (), True),
        (a_pod(CLAIM), (), False),
        (a_pod(CLAIM), ("ns/data",), True),
        (a_pod(CLAIM), ("other/data",), False),
        (a_pod(EPHEMERAL), (), False),
        (a_pod(EPHEMERAL), ("ns/p-scratch",), True),
        (a_pod(resource_claims=(PodResourceClaim(name="gpu"),)), (), False),
    ],
)
def test_only_what_the_scheduler_need_not_prepare_is_bound_directly(pod, volumes, answer):
    assert can_be_bound_directly(pod, volumes) is answer
