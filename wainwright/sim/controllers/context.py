"""What every controller shares: client, informers, events, clock; and the shape of a controller."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar, cast

from wainwright.clock import Clock
from wainwright.sim.controllers.client import ApiClient, ApiError, Unreachable
from wainwright.sim.controllers.informers import Informer
from wainwright.sim.controllers.objects import PODS, KubernetesObject, Pod, ResourceType

T = TypeVar("T", bound=KubernetesObject)

_log = logging.getLogger(__name__)
_EVENTS_PER_SECOND = 100
_EVENTS_KEPT = 10_000


def rfc3339(moment: datetime) -> str:
    """Whole seconds, as Kubernetes' Time writes them."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Events:
    """Writes core Events, best effort: 100 a second at most, the newest 10,000 wait, an exact repeat is left out.

    Events are for people: they must never slow the controllers down or fail them.
    """

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting: deque[dict[str, object]] = deque(maxlen=_EVENTS_KEPT)
        self._wake = asyncio.Event()
        self._last: dict[tuple[str, str], str] = {}

    def tell(
        self,
        resource: ResourceType[T],
        item: T,
        *,
        reason: str,
        message: str,
        component: str,
        kind: str = "Normal",
        action: str = "",
    ) -> None:
        """Queue an event about `item`. kind: `Normal` or `Warning`."""
        uid = item.metadata.uid
        if self._last.get((uid, reason)) == message:
            return
        self._last[uid, reason] = message
        if len(self._last) > 4 * _EVENTS_KEPT:
            self._last.clear()
        now = self._clock.now()
        namespace = item.metadata.namespace or "default"
        self._waiting.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{item.metadata.name}.{secrets.token_hex(8)}", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "name": item.metadata.name,
                    "namespace": item.metadata.namespace,
                    "uid": uid,
                },
                "reason": reason,
                "message": message,
                "type": kind,
                "action": action or reason,
                "count": 1,
                "firstTimestamp": rfc3339(now),
                "lastTimestamp": rfc3339(now),
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": f"{component}-sim",
            }
        )
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                event = self._waiting.popleft()
                namespace = cast("dict[str, str]", event["metadata"])["namespace"]
                try:
                    await self._client.create(f"/api/v1/namespaces/{namespace}/events", event)
                except (ApiError, Unreachable) as error:
                    _log.debug("event left out: %s", error)
                await asyncio.sleep(1 / _EVENTS_PER_SECOND)


class Cluster:
    """Client, clock, events and one shared informer a resource."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self.events = Events(client, clock)
        self._informers: dict[str, Informer[KubernetesObject]] = {}
        self._group: asyncio.TaskGroup | None = None

    def informer(self, resource: ResourceType[T]) -> Informer[T]:
        """The informer of a resource; all askers before `run` share it."""
        path = resource.collection()
        if path not in self._informers:
            self._informers[path] = cast("Informer[KubernetesObject]", Informer(self.client, resource))
        return cast("Informer[T]", self._informers[path])

    def follow(self, resource: ResourceType[T]) -> Informer[T]:
        """The informer of a resource that comes to be wanted while the cluster runs already."""
        is_new = resource.collection() not in self._informers
        informer = self.informer(resource)
        if is_new:
            assert self._group is not None
            self._group.create_task(informer.run())
        return informer

    def pods(self) -> Informer[Pod]:
        """Pods, indexed `by("node", name)` and `by("owner", uid)` (the controlling owner)."""
        informer = self.informer(PODS)
        informer.index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
        informer.index("owner", lambda pod: [owner.uid] if (owner := pod.metadata.controller) else [])
        return informer

    async def run(self, controllers: Sequence[Controller]) -> None:
        """Run informers, events and controllers until cancelled; controllers begin when everything was listed once."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for informer in self._informers.values():
                group.create_task(informer.run())
            group.create_task(self.events.run())
            for informer in list(self._informers.values()):
                await informer.synced.wait()
            for controller in controllers:
                group.create_task(_supervise(controller))


class Controller(Protocol):
    """Registers handlers on informers when made; `run` works until cancelled."""

    name: str

    async def run(self) -> None: ...


async def _supervise(controller: Controller) -> None:
    """A bug in one controller must not end the others: log it, and start that one again."""
    while True:
        try:
            await controller.run()
        except Exception:
            _log.exception("controller %s failed and starts again", controller.name)
        await asyncio.sleep(1)
