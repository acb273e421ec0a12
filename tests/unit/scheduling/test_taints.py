"""Tolerations against taints."""

import pytest

from wainwright.api.nodes import Taint
from wainwright.api.pods import Toleration
from wainwright.scheduling.taints import tolerates, untolerated

GPU = Taint(key="gpu", value="true", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="gpu", value="true", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", value="false", effect="NoSchedule"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(value="true"), False),
    ],
)
def test_a_toleration_matches_by_key_value_and_effect(toleration, tolerated):
    assert tolerates([toleration], [GPU]) is tolerated


def test_prefer_no_schedule_never_forbids_but_can_be_asked_for():
    soft = Taint(key="soft", effect="PreferNoSchedule")
    assert tolerates([], [soft])
    assert untolerated([], [soft], soft=True) == (soft,)
