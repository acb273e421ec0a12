from datetime import timedelta

from tests.unit.kube.support import NOON
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.kube.resources import NODE_POOLS
from wainwright.kube.status import merged_conditions, write_conditions

EARLIER = NOON - timedelta(hours=1)
READY = Condition(type="Ready", status="True", reason="Ready", observed_generation=1)
SEEN = Condition(type="Ready", status="True", reason="Ready", observed_generation=1, last_transition_time=EARLIER)
OTHERS = Condition(type="NodeRegistrationHealthy", status="True", reason="X", last_transition_time=EARLIER)


def test_nothing_new_changes_nothing():
    assert merged_conditions((OTHERS, SEEN), (READY,), NOON) is None


def test_transition_time_moves_only_with_the_status():
    told = Condition(type="Ready", status="True", reason="Ready", message="more", observed_generation=2)
    (condition,) = merged_conditions((SEEN,), (told,), NOON)
    assert condition.message == "more"
    assert condition.last_transition_time == EARLIER
    (condition,) = merged_conditions((SEEN,), (Condition(type="Ready", status="False", reason="No"),), NOON)
    assert condition.last_transition_time == NOON


def test_conditions_of_others_stay():
    merged = merged_conditions((OTHERS,), (READY,), NOON)
    assert [condition.type for condition in merged] == ["NodeRegistrationHealthy", "Ready"]
    assert merged[0] is OTHERS


class PatchRecorder:
    def __init__(self):
        self.patches = []

    def merge_patch(self, resource, name, body, namespace="", subresource=""):
        self.patches.append((name, subresource, body))


def test_patch_is_bound_to_the_version_it_was_made_from():
    client, meta = PatchRecorder(), ObjectMeta(name="general", uid="u1", resource_version="7")
    assert write_conditions(client, NODE_POOLS, meta, (), (READY,), NOON)
    ((name, subresource, body),) = client.patches
    assert (name, subresource) == ("general", "status")
    assert body["metadata"] == {"uid": "u1", "resourceVersion": "7"}
    assert body["status"]["conditions"] == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-06-01T12:00:00Z",
        }
    ]
    assert not write_conditions(client, NODE_POOLS, meta, (SEEN,), (READY,), NOON)
    assert len(client.patches) == 1
