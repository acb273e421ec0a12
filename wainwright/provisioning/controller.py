"""Keeps the NodePools: validates them, tells their state in conditions, takes them into use and out of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from wainwright.api.meta import Condition, ObjectMeta
from wainwright.api.nodepool_hash import effective_spec_hash
from wainwright.api.nodepools import NodeClassReference, NodePool, NodePoolStatus
from wainwright.api.reasons import ConditionReason, ConditionType, EventReason
from wainwright.api.validation import FieldError, parse_node_pool, validate_node_pool
from wainwright.batching.pools import delete_pool, pools_in_use, use_pool
from wainwright.batching.store import Store
from wainwright.clock import Clock, SystemClock
from wainwright.cloud.errors import CloudError, NodeClassNotReady
from wainwright.cloud.port import CloudProvider, NodeClassKind
from wainwright.errors import Conflict, KubeError, NotFound
from wainwright.kube.client import KubeClient, Undecodable
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import NODE_POOLS
from wainwright.kube.status import write_conditions
from wainwright.provisioning.chores import Chores
from wainwright.provisioning.provisioner import Provisioner
from wainwright.scheduling.instance_types import Catalog

logger = logging.getLogger(__name__)

MOST_FAULTS_TOLD: Final = 10
"""Faults of one NodePool that its condition lists; a count stands for the rest."""


class Subscribable(Protocol):
    """The watcher, as far as the Controller needs it."""

    def subscribe(self, kind: str, listener: Callable[[str, Any], None]) -> None: ...


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What `apply` found. changed: False when nothing that matters was new. usable: may it get new claims now?"""

    changed: bool
    usable: bool
    faults: tuple[FieldError, ...] = ()


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool as last applied."""

    node_pool: NodePool
    hash: str
    catalog: Catalog
    usable: bool
    faults: tuple[FieldError, ...]


class _Broken(msgspec.Struct, rename="camel"):
    """What is read of a NodePool that our structs cannot hold."""

    metadata: ObjectMeta
    status: NodePoolStatus = NodePoolStatus()


class Controller:
    """Applies NodePools. Thread-safe. on_change: called with why, when pods may now go elsewhere than before.

    What it holds is rebuilt from the NodePools at the start of every session, so it may be lost.
    """

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        cloud: CloudProvider,
        provisioner: Provisioner,
        recorder: EventRecorder,
        chores: Chores,
        *,
        on_change: Callable[[str], None] = lambda _why: None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._cloud = cloud
        self._provisioner = provisioner
        self._recorder = recorder
        self._chores = chores
        self._on_change = on_change
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._known: dict[str, _Known] = {}

    def apply(self, node_pool: NodePool) -> Applied:
        """Validates it, writes its conditions, takes it into use or out of it. A no-op while its UID and effective spec
        are as applied before and its conditions say so.

        An invalid NodePool gets no new claims, and stops no other. Raises StoreUnavailable, KubeUnavailable.
        """
        with self._lock:
            name = node_pool.name
            old = self._known.get(name)
            if node_pool.metadata.deletion_timestamp is not None:
                self._take_out(name, old, f"NodePool {name} is being deleted")
                return Applied(changed=old is not None, usable=False)
            catalog, node_class = self._node_class(node_pool, old)
            new_hash = effective_spec_hash(node_pool, catalog.version)
            same = old is not None and old.node_pool.metadata.uid == node_pool.metadata.uid and old.hash == new_hash
            faults = old.faults if old is not None and same else tuple(validate_node_pool(node_pool))
            wanted = _conditions(faults, node_class, node_pool.metadata.generation)
            usable = not faults and node_class.status != "False" and node_pool.spec.replicas is None
            changed = not same or old is None or old.usable != usable
            if changed:
                # First, and only then remembered: when Redis is away this is done again.
                self._put_in_or_out(node_pool, usable=usable)
            self._known[name] = _Known(
                node_pool=node_pool, hash=new_hash, catalog=catalog, usable=usable, faults=faults
            )
            if changed:
                self._provision(f"NodePool {name} {'changed' if old is not None else 'applied'}")
                logger.info("action=nodepool_applied nodepool=%s usable=%s faults=%d", name, usable, len(faults))
            self._tell(node_pool.metadata, node_pool.status.conditions, wanted)
            return Applied(changed=changed, usable=usable, faults=faults)

    def delete(self, name: str) -> None:
        """It is gone: its waiters are released, its queued pods go to the other NodePools. Raises StoreUnavailable."""
        with self._lock:
            self._take_out(name, self._known.get(name), f"NodePool {name} deleted")

    def list(self) -> tuple[NodePool, ...]:
        """The NodePools that may get new claims, in priority order: weight descending, then name."""
        with self._lock:
            pools = (known.node_pool for known in self._known.values() if known.usable)
            return tuple(sorted(pools, key=lambda pool: pool.priority))

    def reconcile(self, name: str) -> None:
        """Looks at the NodePool in Kubernetes and applies it, or deletes it when it is not there.

        Raises KubeUnavailable, StoreUnavailable.
        """
        try:
            raw = self._client.request("GET", NODE_POOLS.path(name=name))
        except NotFound:
            self.delete(name)
            return
        node_pool, faults = parse_node_pool(raw)
        if node_pool is None:
            self._refuse(raw, tuple(faults))
        else:
            self.apply(node_pool)

    def register(self, watcher: Subscribable) -> None:
        """Events that make it reconcile: a NodePool appeared, changed, cannot be decoded, is gone; all were listed."""
        watcher.subscribe(NODE_POOLS.plural, self._on_event)

    def refresh(self) -> None:
        """Looks at every NodePool again: catalogs and NodeClasses change without an event, and Redis may have lost
        which are in use. Cheap when nothing did. Raises StoreUnavailable, KubeUnavailable.
        """
        with self._lock:
            for known in list(self._known.values()):
                self.apply(known.node_pool)
            in_use = pools_in_use(self._store)
            for known in self._known.values():
                if known.usable and in_use.get(known.node_pool.name) != known.node_pool.metadata.uid:
                    self._put_in_or_out(known.node_pool, usable=True)
            for name, uid in in_use.items():
                here = self._known.get(name)
                if here is None or not here.usable:
                    delete_pool(self._store, name, uid, self._order())
            if not self._provisioner.knows_pools:
                self._provision("NodePools listed")

    # Events -----------------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, thing: Any) -> None:
        """From the watcher's writer thread: only notes what is to be done."""
        if event == "listed":
            # Deleted while we stood by, or while the watch was broken: nobody told.
            for name in set(self._known) - thing:
                self._chores.soon(f"nodepool {name}", partial(self.delete, name))
            self._chores.soon("nodepools", self.refresh)
        elif isinstance(thing, NodePool) and event == "put":
            self._chores.soon(f"nodepool {thing.name}", lambda: self._put(thing))
        elif isinstance(thing, NodePool):
            self._chores.soon(f"nodepool {thing.name}", lambda: self._gone(thing.name, thing.metadata.uid))
        elif isinstance(thing, Undecodable) and event == "gone":
            self._chores.soon(f"nodepool {thing.key}", lambda: self.delete(thing.key))
        elif isinstance(thing, Undecodable):
            self._chores.soon(f"nodepool {thing.key}", lambda: self._refuse(thing.raw))

    def _put(self, node_pool: NodePool) -> None:
        self.apply(node_pool)

    def _gone(self, name: str, uid: str) -> None:
        known = self._known.get(name)
        if known is None or known.node_pool.metadata.uid == uid:
            self.delete(name)

    def _refuse(self, raw: bytes, faults: tuple[FieldError, ...] | None = None) -> None:
        """A NodePool that cannot be decoded: out of use, and its conditions say which fields."""
        if faults is None:
            faults = tuple(parse_node_pool(raw)[1])
        try:
            broken = msgspec.json.decode(raw, type=_Broken)
        except msgspec.ValidationError:
            logger.warning("action=nodepool_unreadable faults=%s", "; ".join(str(fault) for fault in faults))
            return
        with self._lock:
            name = broken.metadata.name
            self._take_out(name, self._known.get(name), f"NodePool {name} cannot be decoded")
            unknown = Condition(type=ConditionType.NODE_CLASS_READY, reason=ConditionReason.UNKNOWN)
            wanted = _conditions(faults, unknown, broken.metadata.generation)
            self._tell(broken.metadata, broken.status.conditions, wanted)

    # Parts ------------------------------------------------------------------------------------------------------------

    def _node_class(self, node_pool: NodePool, old: _Known | None) -> tuple[Catalog, Condition]:
        """The NodePool's catalog (the last one known while the cloud is away) and its condition NodeClassReady."""
        known = old.catalog if old is not None else Catalog(version="")
        reference = node_pool.spec.template.spec.node_class_ref
        try:
            catalog = self._cloud.instance_types(node_pool)
        except NodeClassNotReady as error:
            return known, _node_class_condition("False", ConditionReason.NODE_CLASS_NOT_READY, str(error))
        except CloudError as error:
            return known, _node_class_condition("Unknown", ConditionReason.CLOUD_UNREACHABLE, str(error))
        if _is_served_as_simulated(reference, self._cloud):
            message = f"{reference.kind} {reference.name} is another provider's; provider {self._cloud.name} serves it"
            return catalog, _node_class_condition("True", ConditionReason.NODE_CLASS_SIMULATED, f"simulated: {message}")
        return catalog, _node_class_condition("True", ConditionReason.NODE_CLASS_READY, "")

    def _put_in_or_out(self, node_pool: NodePool, *, usable: bool) -> None:
        name, uid = node_pool.name, node_pool.metadata.uid
        if usable:
            use_pool(self._store, name, uid, self._order())
        else:
            delete_pool(self._store, name, pools_in_use(self._store).get(name, uid), self._order())

    def _take_out(self, name: str, old: _Known | None, why: str) -> None:
        uid = pools_in_use(self._store).get(name)
        self._known.pop(name, None)
        if uid is not None:
            delete_pool(self._store, name, uid, self._order())
        if old is not None or uid is not None:
            self._provision(why)
            logger.info("action=nodepool_out nodepool=%s why=%s", name, why)

    def _order(self) -> tuple[str, ...]:
        return tuple(pool.name for pool in self.list())

    def _provision(self, why: str) -> None:
        pools = self.list()
        self._provisioner.use(pools, {pool.name: self._known[pool.name].catalog for pool in pools})
        self._on_change(why)

    def _tell(self, meta: ObjectMeta, current: tuple[Condition, ...], wanted: tuple[Condition, ...]) -> None:
        """Conditions where they say something new, and then an event."""
        now = self._clock.now()
        try:
            written = write_conditions(self._client, NODE_POOLS, meta, current, wanted, now)
        except (Conflict, NotFound):
            return  # another version by now: its event comes
        except KubeError as error:
            logger.warning("action=conditions_refused nodepool=%s error=%s", meta.name, error)
            return
        if not written:
            return
        about = ObjectReference.of(NODE_POOLS, meta)
        by_type: Mapping[str, Condition] = {condition.type: condition for condition in wanted}
        for type_, reason in (
            (ConditionType.VALIDATION_SUCCEEDED, EventReason.NODE_POOL_INVALID),
            (ConditionType.NODE_CLASS_READY, EventReason.NODE_CLASS_NOT_READY),
        ):
            if by_type[type_].status == "False":
                self._recorder.event(about, reason, "Warning", by_type[type_].message)


def _is_served_as_simulated(reference: NodeClassReference, cloud: CloudProvider) -> bool:
    return NodeClassKind(reference.group, reference.kind) not in cloud.node_class_kinds


def _node_class_condition(status: str, reason: ConditionReason, message: str) -> Condition:
    return Condition(type=ConditionType.NODE_CLASS_READY, status=status, reason=reason, message=message)


def _conditions(faults: tuple[FieldError, ...], node_class: Condition, generation: int) -> tuple[Condition, ...]:
    """ValidationSucceeded, NodeClassReady and Ready, which is True when both are."""
    if faults:
        shown = "; ".join(str(fault) for fault in faults[:MOST_FAULTS_TOLD])
        more = f"; and {len(faults) - MOST_FAULTS_TOLD} more" if len(faults) > MOST_FAULTS_TOLD else ""
        valid = Condition(
            type=ConditionType.VALIDATION_SUCCEEDED,
            status="False",
            reason=ConditionReason.NODE_POOL_INVALID,
            message=shown + more,
        )
    else:
        valid = Condition(
            type=ConditionType.VALIDATION_SUCCEEDED, status="True", reason=ConditionReason.VALIDATION_SUCCEEDED
        )
    not_true = [condition for condition in (valid, node_class) if condition.status != "True"]
    if any(condition.status == "False" for condition in not_true):
        status, reason = "False", ConditionReason.NOT_READY
    else:
        status, reason = ("Unknown", ConditionReason.UNKNOWN) if not_true else ("True", ConditionReason.READY)
    message = "; ".join(f"{condition.type} is {condition.status}" for condition in not_true)
    ready = Condition(type=ConditionType.READY, status=status, reason=reason, message=message)
    return tuple(
        msgspec.structs.replace(condition, observed_generation=generation) for condition in (valid, node_class, ready)
    )
