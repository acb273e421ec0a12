"""kube-scheduler agrees with our plans: told to, it binds every pod that we placed onto the node that we planned."""

import itertools
import os
import tempfile

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.generated import clusters, workloads
from tests.cluster.staging import Refused, Staging
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


@pytest.fixture(scope="package")
def staging(real_cluster):
    return Staging(Api(real_cluster.kubeconfig))


class Case:
    """A cluster, a workload, and which of its options each planned node becomes. Told by the file it is kept in."""

    def __init__(self, snapshot, batch, choices):
        self.snapshot, self.batch, self._choices = snapshot, batch, choices
        self.plan = solve(snapshot, batch, NOW, SolveBudget())

    def choose(self):
        numbers = itertools.cycle(self._choices)
        return lambda count: next(numbers) % count

    def kept(self):
        """Path of a file with all of it, for a closer look."""
        parts = {"snapshot": self.snapshot, "pods": self.batch, "choices": self._choices, "plan": self.plan}
        with tempfile.NamedTemporaryFile(prefix="wainwright-agreement-", suffix=".json", delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(parts)))
        return file.name

    def __repr__(self):
        counts = f"{len(self.batch)} pods, {len(self.plan.claims)} claims, {len(self.plan.unplaced)} unplaced"
        return f"Case({counts}, choices={self._choices})"


CHOICES = st.lists(st.integers(0, 2**16), min_size=1, max_size=8)
CASES = st.tuples(clusters(), workloads(), CHOICES).map(lambda parts: Case(*parts))


@SOME
@given(case=CASES.filter(lambda case: case.plan.claims or case.plan.placements))
def test_every_planned_pod_binds_where_it_was_planned(staging, case):
    try:
        stage = staging.build(case.snapshot, case.plan, case.choose())
        staging.ask(stage, case.batch)
    except Refused as refused:
        raise Refused(f"{refused}\nthe case is kept in {case.kept()}") from refused
    finally:
        staging.clear()
