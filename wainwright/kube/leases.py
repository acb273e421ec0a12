"""Leader election by a Kubernetes Lease: one process of a role is active, the others stand by.

The Lease's own times are for people; who may take it over is judged as the official clients do it: a Lease that has
not changed for its duration, by our own monotonic clock, is free. Beside it the holder has a fence: a number that grows
with every change of the holder, also over a deleted Lease, so that what an old holder writes can be told and refused.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from typing import Final

import msgspec

from wainwright.api.base import Resource as Struct
from wainwright.api.meta import ObjectMeta
from wainwright.clock import Clock, SystemClock
from wainwright.errors import AlreadyExists, Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import LEASES

logger = logging.getLogger(__name__)

FENCE_ANNOTATION: Final = "wainwright.dev/fence"
SAFETY_SECONDS: Final = 1.0
"""The holder stops this long before others may take over."""

KARPENTER_LEASE: Final = ("kube-system", "karpenter-leader-election")


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None


class Lease(Struct):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class LeaderElector:
    """One candidate for a Lease. `step` is called every second or so by one thread; the rest may be asked by any.

    identity: of this process, never used twice. duration: seconds; short as ours are, the next holder is active
    `duration` plus one step after the last one died.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        name: str,
        identity: str,
        namespace: str = "kube-system",
        duration_seconds: float = 6.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._name, self._namespace, self._identity = name, namespace, identity
        self._duration = duration_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._observed: tuple[str, str] = ("", "")
        """UID and resourceVersion of the Lease when it was last seen to change."""
        self._observed_at = float("-inf")
        self._observed_duration = duration_seconds
        self._held_until = float("-inf")
        self._renewed_at = float("-inf")
        self.fence = 0
        """Ours, while we lead; 0 before the first time."""
        self.other = ""
        """Who holds it instead, as last seen."""

    @property
    def leads(self) -> bool:
        """May we act? False from SAFETY_SECONDS before anybody else may."""
        return self._clock.monotonic_seconds() < self._held_until

    def step(self) -> bool:
        """Renews the Lease where we hold it (every third of its duration), else tries to get it; whether we lead.

        Never raises for an API server that is away: we lead on until our time is over.
        """
        with self._lock:
            now = self._clock.monotonic_seconds()
            if self.leads and now - self._renewed_at < self._duration / 3:
                return True
            try:
                self._attempt(now)
            except (KubeUnavailable, Conflict, AlreadyExists, NotFound):
                pass  # unknown, or somebody was quicker: the next step looks anew
            except KubeError as error:
                logger.warning("action=lease_refused lease=%s/%s error=%s", self._namespace, self._name, error)
            return self.leads

    def raise_fence(self, above: int) -> bool:
        """Takes a fence higher than `above`: Redis remembers a higher one than the Lease does (it was deleted, and
        clocks differ). Possible only for the holder. False: we lead no more.
        """
        with self._lock:
            now = self._clock.monotonic_seconds()
            try:
                lease = self._read()
                if lease.spec.holder_identity != self._identity:
                    self._held_until = float("-inf")
                    return False
                self._write(lease, now, max(above + 1, self._next_fence(lease)), taken=False)
            except (KubeUnavailable, KubeError):
                return False
            return self.leads

    def release(self) -> None:
        """Gives the Lease up, so that a standby takes over at once. Best effort."""
        with self._lock:
            if not self.leads:
                return
            self._held_until = float("-inf")
            try:
                lease = self._read()
                if lease.spec.holder_identity == self._identity:
                    self._put(lease, msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1))
            except (KubeUnavailable, KubeError) as error:
                logger.info("action=lease_not_released lease=%s error=%s", self._name, error)

    def _attempt(self, now: float) -> None:
        try:
            lease = self._read()
        except NotFound:
            self._create(now)
            return
        version = (lease.metadata.uid, lease.metadata.resource_version)
        if version != self._observed:
            self._observed, self._observed_at = version, now
            self._observed_duration = float(lease.spec.lease_duration_seconds or self._duration)
        holder = lease.spec.holder_identity or ""
        self.other = "" if holder == self._identity else holder
        if holder == self._identity:
            # Ours by name. After a pause others may have had it and lost it: then it would carry their name.
            self._write(lease, now, self.fence or self._next_fence(lease), taken=False)
        elif not holder or now - self._observed_at >= self._observed_duration:
            self._write(lease, now, self._next_fence(lease), taken=True)
        else:
            self._held_until = float("-inf")

    def _read(self) -> Lease:
        return self._client.get(LEASES, self._name, self._namespace, as_type=Lease)

    def _next_fence(self, lease: Lease | None) -> int:
        old = lease.metadata.annotations.get(FENCE_ANNOTATION, "0") if lease is not None else "0"
        return max(int(old) + 1 if old.isdigit() else 1, self.fence + 1, int(self._clock.now().timestamp() * 1000))

    def _create(self, now: float) -> None:
        fence = self._next_fence(None)
        at = self._clock.now()
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=round(self._duration),
            lease_transitions=0,
            acquire_time=at,
            renew_time=at,
        )
        meta = ObjectMeta(name=self._name, namespace=self._namespace, annotations={FENCE_ANNOTATION: str(fence)})
        stored = self._client.create(LEASES, _body(Lease(metadata=meta, spec=spec)), self._namespace)
        self._now_held(stored, now, fence, taken=True)

    def _write(self, lease: Lease, now: float, fence: int, *, taken: bool) -> None:
        at = self._clock.now()
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self._identity,
            lease_duration_seconds=round(self._duration),
            lease_transitions=(lease.spec.lease_transitions or 0) + (1 if taken else 0),
            acquire_time=at if taken else lease.spec.acquire_time,
            renew_time=at,
        )
        self._now_held(self._put(lease, spec, fence), now, fence, taken=taken)

    def _put(self, lease: Lease, spec: LeaseSpec, fence: int | None = None) -> dict[str, object]:
        annotations = dict(lease.metadata.annotations)
        if fence is not None:
            annotations[FENCE_ANNOTATION] = str(fence)
        meta = msgspec.structs.replace(lease.metadata, annotations=annotations)
        return self._client.update(LEASES, _body(Lease(metadata=meta, spec=spec)))

    def _now_held(self, stored: dict[str, object], now: float, fence: int, *, taken: bool) -> None:
        meta = msgspec.convert(stored["metadata"], ObjectMeta)
        self._observed, self._observed_at = (meta.uid, meta.resource_version), now
        self._observed_duration = self._duration
        # Counted from before the request: others count from when they see it, which is later.
        self._renewed_at, self._held_until = now, now + self._duration - SAFETY_SECONDS
        self.fence, self.other = fence, ""
        if taken:
            logger.info("action=lease_taken lease=%s/%s fence=%d", self._namespace, self._name, fence)


def _body(lease: Lease) -> dict[str, object]:
    """As an API server wants it: times of a Lease have exactly six decimals."""
    body: dict[str, object] = msgspec.to_builtins(lease)
    spec = body.get("spec")
    assert isinstance(spec, dict)
    for field, value in (("acquireTime", lease.spec.acquire_time), ("renewTime", lease.spec.renew_time)):
        if value is not None:
            spec[field] = value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return body


def fresh_holder(client: KubeClient, namespace: str, name: str, now: datetime) -> str:
    """Who holds a Lease of somebody else's and renewed it lately; empty when nobody does.

    Judged by its own times, so clocks must agree roughly. Raises KubeUnavailable.
    """
    try:
        lease = client.get(LEASES, name, namespace, as_type=Lease)
    except NotFound:
        return ""
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return ""
    age = (now - spec.renew_time).total_seconds()
    return spec.holder_identity if age < 2 * (spec.lease_duration_seconds or 15) else ""
