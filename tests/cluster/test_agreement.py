"""kube-scheduler agrees with our plans: told to, it binds every pod that we placed onto the node that we planned."""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.generated import clusters, workloads
from tests.cluster.staging import Staging
from tests.contract.kube_api.cluster import Api
from tests.unit.scheduling.scheduling_builders import NOW
from wainwright.scheduling.plan import SolveBudget
from wainwright.scheduling.solver import solve

pytestmark = pytest.mark.cluster

EXAMPLES = int(os.environ.get("WAINWRIGHT_TEST_AGREEMENT_EXAMPLES", "0"))
"""More than CI's 15, and others each time."""
SOME = settings(
    max_examples=EXAMPLES or 15,
    derandomize=not EXAMPLES,
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="session")
def staging(controlled_cluster):
    return Staging(Api(controlled_cluster.kubeconfig))


@SOME
@given(snapshot=clusters(), batch=workloads(), choices=st.lists(st.integers(0, 2**16), min_size=1, max_size=8))
def test_every_planned_pod_binds_where_it_was_planned(staging, snapshot, batch, choices):
    plan = solve(snapshot, batch, NOW, SolveBudget())
    numbers = iter(choices * 50)
    if not plan.claims and not plan.placements:
        return
    try:
        stage = staging.build(snapshot, plan, lambda count: next(numbers) % count)
        staging.ask(stage, batch)
    finally:
        staging.clear()
