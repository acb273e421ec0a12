"""The simulated cloud without its service: the same rules in this process, for tests of what uses a cloud."""

from __future__ import annotations

from datetime import timedelta

from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.nodepools import NodePool
from wainwright.clock import Clock
from wainwright.cloud.errors import CloudError
from wainwright.cloud.port import Instance, InstanceState, LaunchRequest, NodeClassKind, RepairPolicy
from wainwright.cloud.simulated.node_class import NODE_CLASS_KIND
from wainwright.cloud.simulated.state import CloudState, LaunchRecord
from wainwright.scheduling.instance_types import Catalog, OfferingKey


class MemoryProvider:
    """A CloudProvider that keeps everything in memory and never waits. NodeClasses are not looked at.

    sold_out: patterns of offerings without room, to be set at will. next_errors: raised by the next `create` calls, one
    each. requests: every launch request that arrived.
    """

    name = "simulated"
    names_nodes = True
    node_class_kinds: frozenset[NodeClassKind] = frozenset({NODE_CLASS_KIND})

    def __init__(self, catalog: Catalog, clock: Clock, *, boot_seconds: float = 2.0) -> None:
        self._state = CloudState(catalog)
        self._clock = clock
        self._boot = timedelta(seconds=boot_seconds)
        self.sold_out: tuple[OfferingKey, ...] = ()
        self.next_errors: list[CloudError] = []
        self.requests: list[LaunchRequest] = []

    def instance_types(self, node_pool: NodePool) -> Catalog:  # noqa: ARG002 - the port's signature
        """See CloudProvider."""
        return self._state.catalog

    def create(self, request: LaunchRequest) -> Instance:
        """See CloudProvider."""
        self.requests.append(request)
        if self.next_errors:
            raise self.next_errors.pop(0)
        now = self._clock.now()
        self._state.advance(now)
        outcome = self._state.launch(request, now=now, boots_at=now + self._boot, sold_out=self.sold_out)
        if isinstance(outcome, Instance):
            return outcome
        self._state.apply(outcome)
        return outcome.instance

    def find(self, token: str) -> Instance | None:
        """See CloudProvider."""
        self._state.advance(self._clock.now())
        return self._state.find(token)

    def get(self, provider_id: str) -> Instance:
        """See CloudProvider."""
        self._state.advance(self._clock.now())
        return self._state.get(provider_id.rpartition("/")[2])

    def list(self, cluster: str) -> list[Instance]:
        """See CloudProvider."""
        self._state.advance(self._clock.now())
        listed = (i for i in self._state.instances() if i.cluster == cluster)
        return sorted((i for i in listed if i.state is not InstanceState.TERMINATED), key=lambda i: i.id)

    def delete(self, provider_id: str) -> None:
        """See CloudProvider. Gone as soon as the clock is read again."""
        self._end(provider_id, "deleted")

    def interrupt(self, provider_id: str) -> None:
        """Terminate it behind its owner's back."""
        self._end(provider_id, "interrupted")

    def _end(self, provider_id: str, cause: str) -> None:
        now = self._clock.now()
        self._state.advance(now)
        event = self._state.terminate(provider_id.rpartition("/")[2], now=now, delay=timedelta(0), cause=cause)
        if event is not None:
            self._state.apply(event)

    def is_drifted(self, node_claim: NodeClaim, node_pool: NodePool) -> str | None:  # noqa: ARG002 - the port's signature
        """Never."""
        return None

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        """See CloudProvider."""
        return ()

    def record(self) -> LaunchRecord:
        """Every launch ever made."""
        return self._state.record()
