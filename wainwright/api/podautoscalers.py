"""PodAutoscaler (`autoscaling.wainwright.dev/v1alpha1`): what is scaled, and where its load can be read."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import Condition, ObjectMeta

PODS: Final = "pods"
CELERY: Final = "celery"
REDIS_STREAM: Final = "redisStream"
REDIS_LIST: Final = "redisList"
PROMETHEUS: Final = "prometheus"
PUSH: Final = "push"
SOURCE_TYPES: Final = (PODS, CELERY, REDIS_STREAM, REDIS_LIST, PROMETHEUS, PUSH)


class ScaleTargetRef(Resource):
    """Anything with a Scale sub-resource, in the PodAutoscaler's own namespace."""

    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: str = ""


class PodsSource(Resource):
    """The metrics endpoint of each ready pod. metric: empty for Knative's queue-proxy names.

    kind: a counter's increase per second counts, a gauge's value.
    """

    port: int = 9090
    path: str = "/metrics"
    metric: str = ""
    kind: str = "gauge"


class CelerySource(Resource):
    """A Celery queue on Redis. url, connection: at most one; neither means Wainwright's own Redis.

    connection: name of a file with the URL in the folder that the setting `autoscaling.connections` names.
    key_prefix: the app's `global_keyprefix`.
    """

    queue: str = ""
    url: str = ""
    connection: str = ""
    key_prefix: str = ""


class RedisStreamSource(Resource):
    """Entries that a consumer group has not acknowledged: its lag and what is pending."""

    stream: str = ""
    group: str = ""
    url: str = ""
    connection: str = ""


class RedisListSource(Resource):
    """Length of a list."""

    list: str = ""
    url: str = ""
    connection: str = ""


class PrometheusSource(Resource):
    """An instant query that answers one number. url: the server's, without `/api/v1/query`."""

    url: str = ""
    query: str = ""


class PushSource(Resource):
    """Applications report their load themselves."""


class MetricSource(Resource):
    """One source of load. type: one of SOURCE_TYPES; the field of that name says where. name: unique among the
    object's sources; empty: the type.
    """

    type: str
    name: str = ""
    pods: PodsSource | None = None
    celery: CelerySource | None = None
    redis_stream: RedisStreamSource | None = None
    redis_list: RedisListSource | None = None
    prometheus: PrometheusSource | None = None
    push: PushSource | None = None

    @property
    def title(self) -> str:
        return self.name or self.type

    @property
    def sees_load_at_zero(self) -> bool:
        """Can it tell load while there are no pods? Pods can not: there are none to be asked."""
        return self.type != PODS


class PodAutoscalerSpec(Resource):
    """container_concurrency: requests in flight that a pod admits, 0 for any number. reachability: empty, `Reachable`
    or `Unreachable`.
    """

    scale_target_ref: ScaleTargetRef = ScaleTargetRef()
    container_concurrency: int = 0
    reachability: str = ""
    metrics: tuple[MetricSource, ...] = ()


class SourceStatus(Resource):
    """status: True, or False when it could not be read last. value: last load; message: what it counts, or why not."""

    name: str = ""
    type: str = ""
    status: str = "Unknown"
    message: str = ""
    since: datetime | None = None


class PodAutoscalerStatus(Resource):
    desired_scale: int | None = None
    actual_scale: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    metrics: tuple[SourceStatus, ...] = ()


class PodAutoscaler(Resource):
    metadata: ObjectMeta
    spec: PodAutoscalerSpec = PodAutoscalerSpec()
    status: PodAutoscalerStatus = PodAutoscalerStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def condition(self, type_: str) -> Condition | None:
        return next((one for one in self.status.conditions if one.type == type_), None)


class ScaleSpec(msgspec.Struct, rename="camel"):
    replicas: int = 0


class ScaleStatus(msgspec.Struct, rename="camel"):
    replicas: int = 0
    selector: str = ""


class Scale(msgspec.Struct, rename="camel"):
    """The Scale sub-resource (`autoscaling/v1`)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)
