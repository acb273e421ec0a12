"""Deployments and StatefulSets, as far as scaling them needs."""

from __future__ import annotations

from wainwright.api.base import Resource
from wainwright.api.meta import LabelSelector, ObjectMeta


class WorkloadSpec(Resource):
    """replicas: None counts as 1, as the API server fills in."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class WorkloadStatus(Resource):
    replicas: int = 0
    ready_replicas: int = 0
    observed_generation: int = 0


class Workload(Resource):
    """What runs equal pods and can be scaled."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def wanted_replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas
