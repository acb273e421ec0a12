"""NodePool (`karpenter.sh/v1`): the user's template and limits for nodes."""

from __future__ import annotations

from wainwright.api.base import Resource
from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodes import Taint
from wainwright.api.pods import Quantity


class NodeSelectorRequirement(Resource):
    """A requirement as NodePools and NodeClaims write it. Operators: In NotIn Exists DoesNotExist Gt Lt Gte Lte."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class NodeClassReference(Resource):
    group: str = ""
    kind: str = ""
    name: str = ""


class TemplateMeta(Resource):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class TemplateSpec(Resource):
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    node_class_ref: NodeClassReference = NodeClassReference()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodeClaimTemplate(Resource):
    metadata: TemplateMeta = TemplateMeta()
    spec: TemplateSpec = TemplateSpec()


class Budget(Resource):
    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: tuple[str, ...] = ()


class Disruption(Resource):
    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = (Budget(),)


class NodePoolSpec(Resource):
    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: dict[str, Quantity] = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Resource):
    resources: dict[str, Quantity] = {}
    nodes: int | None = None
    node_class_observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class NodePool(Resource):
    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def priority(self) -> tuple[int, str]:
        """Sort key of the order in which NodePools are tried: weight descending, then name."""
        return (-(self.spec.weight or 0), self.metadata.name)
