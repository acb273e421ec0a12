"""Binding pods to a new node through the Binding sub-resource, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

from wainwright.api.pods import Pod
from wainwright.batching.claims import ClaimPod
from wainwright.clock import Clock
from wainwright.errors import Conflict, KubeError, KubeUnavailable, NotFound
from wainwright.provisioning.cluster import KubeApi

T = TypeVar("T")
R = TypeVar("R")

TRIES: Final = 4
PAUSE_SECONDS: Final = 0.25
"""After a call without an answer; doubled each time."""


class Workers(Protocol):
    """Runs calls beside each other (concurrent.futures.Executor), or one after the other (tests)."""

    def map(self, call: Callable[[T], R], /, items: Iterable[T]) -> Iterator[R]: ...


class OneByOne:
    """Workers without threads."""

    def map(self, call: Callable[[T], R], /, items: Iterable[T]) -> Iterator[R]:
        return map(call, items)


class Fate(StrEnum):
    """What became of a pod that was to be bound. settled: bound before (perhaps by us), being deleted, or gone."""

    BOUND = "bound"
    SETTLED = "settled"
    UNBOUND = "unbound"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """UIDs by fate, in the order given. why: the last refusal, empty where there was none."""

    bound: tuple[str, ...]
    settled: tuple[str, ...]
    unbound: tuple[str, ...]
    why: str = ""


def can_be_bound_directly(pod: Pod, bound_volume_claims: Iterable[str]) -> bool:
    """May we bind it ourselves? Not if kube-scheduler must prepare something for it first.

    - no resource claims (devices are allocated by the scheduler)
    - every volume that it claims is bound already (bound_volume_claims: `namespace/name`)
    """
    if pod.spec.resource_claims:
        return False
    bound = set(bound_volume_claims)
    return all(f"{pod.metadata.namespace}/{name}" in bound for name in volume_claims(pod))


def volume_claims(pod: Pod) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that it uses, ephemeral ones (`<pod>-<volume>`) included."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(found)


class Binder:
    """Binds pods. Thread-safe as far as `workers` is."""

    def __init__(self, kube: KubeApi, workers: Workers, clock: Clock) -> None:
        self._kube = kube
        self._workers = workers
        self._clock = clock

    def bind(self, pods: Sequence[ClaimPod], node: str) -> Bound:
        """Binds them all to the node. A pod that is bound already (an answer of ours was lost, somebody was faster), is
        being deleted or gone needs nothing more; only refusals and silence leave one unbound. Never raises KubeError.
        """

        def one(pod: ClaimPod) -> tuple[Fate, str]:
            return self._bind(pod, node)

        fates = list(zip(pods, self._workers.map(one, pods), strict=True))

        def of(wanted: Fate) -> tuple[str, ...]:
            return tuple(pod.uid for pod, (fate, _) in fates if fate is wanted)

        return Bound(
            bound=of(Fate.BOUND),
            settled=of(Fate.SETTLED),
            unbound=of(Fate.UNBOUND),
            why=next((why for _, (_, why) in fates if why), ""),
        )

    def _bind(self, pod: ClaimPod, node: str) -> tuple[Fate, str]:
        why = ""
        for number in range(TRIES):
            if number:
                self._clock.sleep(PAUSE_SECONDS * 2 ** (number - 1))
            try:
                self._kube.bind(pod.namespace, pod.name, pod.uid, node)
            except (Conflict, NotFound):
                return Fate.SETTLED, ""
            except KubeUnavailable as error:
                why = str(error)
            except KubeError as error:
                return Fate.UNBOUND, str(error)
            else:
                return Fate.BOUND, ""
        return Fate.UNBOUND, why
