"""The simulated cloud's instances, followed over its HTTP service; and whether the machine behind a node runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

import aiohttp
import msgspec

from wainwright.api.pods import Quantity
from wainwright.api.quantities import format_resources
from wainwright.sim.controllers.objects import Node

PROVIDER_PREFIX = "simulated://"
FROZEN_ANNOTATION = "sim.wainwright.dev/frozen"
"""On a Node, value `true`: its kubelet stops at once, as if the machine had died."""

_log = logging.getLogger(__name__)
_WAIT_SECONDS = 20
_RETRY_SECONDS = 0.5


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the simulated cloud. Amounts: cpu in milli-CPU, the rest in whole units."""

    id: str = ""
    provider_id: str = ""
    state: str = "pending"
    boots_at: datetime | None = None
    """When its kubelet first reports; None: never."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}

    def amounts(self) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
        """`capacity` and `allocatable` as a Node's status has them."""
        capacity = self.capacity or self.allocatable
        return {**format_resources(capacity)}, {**format_resources(self.allocatable or capacity)}


class _Answer(msgspec.Struct, frozen=True):
    instances: list[Instance]
    version: str = ""
    full: bool = True


def alive_from(
    node: Node, instances: Mapping[str, Instance] | None, *, now: datetime, boot_delay_seconds: float
) -> float | None:
    """Seconds from `now` until the node's kubelet runs (0 or less: it runs); None if it does not, as things are.

    instances: by provider id, None where no cloud is followed. A node of the simulated cloud runs while its instance
    does, from `boots_at` on; any other node from `boot_delay_seconds` after its creation.
    """
    if node.metadata.annotations.get(FROZEN_ANNOTATION) == "true":
        return None
    if instances is not None and node.spec.provider_id.startswith(PROVIDER_PREFIX):
        instance = instances.get(node.spec.provider_id)
        if instance is None or instance.boots_at is None or instance.state not in ("pending", "running"):
            return None
        return (instance.boots_at - now).total_seconds()
    created = node.metadata.creation_timestamp
    return boot_delay_seconds - (now - created).total_seconds() if created and boot_delay_seconds else 0.0


class Machines:
    """Every instance by provider id, as last heard from the cloud; unreachable means unchanged, not gone."""

    def __init__(self, url: str, on_change: Callable[[list[str]], None]) -> None:
        self.instances: dict[str, Instance] = {}
        self.heard = asyncio.Event()
        """Set once the cloud has answered."""
        self._url = url.rstrip("/") + "/v1/instances"
        self._on_change = on_change

    async def run(self) -> None:
        version = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_WAIT_SECONDS + 10)) as session:
            while True:
                try:
                    version = await self._follow(session, version)
                except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
                    _log.warning("the cloud does not answer: %r", error)
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, session: aiohttp.ClientSession, version: str) -> str:
        """Wait for what changed after `version`; the version that is now known."""
        query = {"since": version, "wait": str(_WAIT_SECONDS)} if version else {}
        async with session.get(self._url, params=query) as response:
            if response.status == 304:
                return version
            content = await response.read()
            if response.status != 200:
                await asyncio.sleep(_RETRY_SECONDS)
                return version
        answer = msgspec.json.decode(content, type=_Answer)
        heard = {instance.provider_id: instance for instance in answer.instances}
        gone = set(self.instances) - set(heard) if answer.full else set()
        changed = [key for key, instance in heard.items() if self.instances.get(key) != instance]
        self.instances.update(heard)
        for provider_id in gone:
            del self.instances[provider_id]
        self.heard.set()
        self._on_change([*changed, *gone])
        if not answer.version:  # a cloud without versions is polled
            with contextlib.suppress(TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
        return answer.version
