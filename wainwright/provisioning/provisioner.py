"""Takes pods: finds the NodePool whose window each waits in, and queues it there."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.batching.batcher import Batcher, Item
from wainwright.batching.gates import Gate
from wainwright.batching.store import Store
from wainwright.clock import Clock, SystemClock
from wainwright.errors import PoolNotInUse
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.routing import Router

logger = logging.getLogger(__name__)


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the pods given to `add_all`. left: pods no NodePool took in, since it went out of use meanwhile,
    or since none is in use.
    """

    queued: int = 0
    left: tuple[Pod, ...] = ()


class Provisioner:
    """Routes pods to windows. Thread-safe. hint: called with the shard of a window that nobody serves."""

    def __init__(self, store: Store, *, shards: int, hint: Callable[[int], None], clock: Clock | None = None) -> None:
        self._store = store
        self._shards = shards
        self._hint = hint
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.knows_pools = False
        """Has anybody said which NodePools there are? Until then nobody can say that there is none for a pod."""
        self._router = Router((), {})
        self._uids: dict[str, str] = {}

    def use(self, node_pools: Sequence[NodePool], catalogs: Mapping[str, Catalog]) -> None:
        """From now on pods go to these NodePools. catalogs: by NodePool name."""
        with self._lock:
            self._router = Router(node_pools, catalogs)
            self._uids = {pool.name: pool.metadata.uid for pool in sorted(node_pools, key=lambda pool: pool.priority)}
            self.knows_pools = True

    def add(self, pod: Pod) -> Gate:
        """Queues a pod; its gate opens when the batch that holds it is over.

        Raises PoolNotInUse when there is no NodePool that could be used, StoreUnavailable.
        """
        name, uid = self._route(pod)
        if not name:
            raise PoolNotInUse("no NodePool is in use")
        return self._batcher(name, uid, None).add([Item(pod.uid, pod.key)])[0]

    def add_all(self, pods: Sequence[Pod], epoch: str) -> Queued:
        """Queues many; those already queued, planned, to be retried or set aside stay where they are.

        epoch: the view's, in which they were found. Raises ViewIncomplete when it is over, StoreUnavailable; both may
        come after some were queued, and repeating is safe.
        """
        by_pool: dict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in pods:
            by_pool[self._route(pod)].append(pod)
        queued = 0
        left: list[Pod] = []
        for (name, uid), members in by_pool.items():
            if not name:
                left += members
                continue
            try:
                self._batcher(name, uid, epoch).add([Item(pod.uid, pod.key) for pod in members])
            except PoolNotInUse:
                left += members
            else:
                queued += len(members)
        return Queued(queued=queued, left=tuple(left))

    def _route(self, pod: Pod) -> tuple[str, str]:
        with self._lock:
            try:
                name = self._router.route(pod)
            except Exception:
                # Which window it waits in matters little; that it waits, and that others do, matters.
                name = next(iter(self._uids), "")
                logger.exception("action=route_failed pod=%s nodepool=%s", pod.key, name)
            return name, self._uids.get(name, "")

    def _batcher(self, name: str, uid: str, epoch: str | None) -> Batcher:
        return Batcher(self._store, name, uid, shards=self._shards, epoch=epoch, hint=self._hint, clock=self._clock)
