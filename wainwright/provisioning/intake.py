"""What the active watcher does with the view: queues pods that wait for capacity, wakes retries, looks again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final

from wainwright.api.pods import Pod
from wainwright.api.reasons import EventReason
from wainwright.batching.retries import wake_retries
from wainwright.batching.store import Store
from wainwright.errors import FenceLost, StoreUnavailable, ViewIncomplete
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import PODS
from wainwright.kube.view import read_view
from wainwright.kube.watcher import Epoch
from wainwright.provisioning.chores import Chores
from wainwright.provisioning.provisioner import Provisioner

logger = logging.getLogger(__name__)

PODS_PER_LOOK: Final = 500
"""Pods read, routed and queued together on a resync: what is in memory at once."""
AGAIN_SECONDS: Final = 0.5
"""How soon a resync follows when pods could not be queued on their event."""
WAKE_SECONDS: Final = 0.2
"""Changes that help retries are gathered for so long: nodes come in groups."""


class Intake:
    """The consumer of the watcher's sessions. Its slow parts run as chores."""

    def __init__(
        self, store: Store, provisioner: Provisioner, chores: Chores, recorder: EventRecorder, *, resync_seconds: float
    ) -> None:
        self._store = store
        self._provisioner = provisioner
        self._chores = chores
        self._recorder = recorder
        self._epoch: Epoch | None = None
        chores.every(resync_seconds, "resync", self.resync)

    @property
    def is_active(self) -> bool:
        """Is this the active watcher, with a complete view?"""
        return self._epoch is not None and self._epoch.is_live

    def begun(self, epoch: Epoch) -> None:
        """See Consumer. What happened while no watcher was active may have helped anything."""
        self._epoch = epoch
        self.look_again()
        self.material(epoch, "the view is complete anew")

    def waiting(self, epoch: Epoch, pods: Sequence[Pod]) -> None:
        """See Consumer."""
        if not epoch.is_live:
            return
        try:
            left = self._provisioner.add_all(pods, epoch.name).left
        except (StoreUnavailable, ViewIncomplete):
            left = tuple(pods)
        if left:
            self._chores.soon("resync", self.resync, after_seconds=AGAIN_SECONDS)

    def material(self, epoch: Epoch, why: str) -> None:
        """See Consumer."""
        if epoch.is_live:
            self._chores.soon("wake", lambda: wake_retries(self._store, why), after_seconds=WAKE_SECONDS)

    def look_again(self) -> None:
        """A resync soon: pods may have been missed."""
        self._chores.soon("resync", self.resync)

    def pools_changed(self, why: str) -> None:
        """Pods may go elsewhere than before: what is in no queue is looked at, what could not be placed is retried."""
        self.look_again()
        if self._epoch is not None:
            self.material(self._epoch, why)

    def resync(self) -> None:
        """Queues every pod that waits for capacity and is in no queue, plan, retry set or `dead`.

        Raises StoreUnavailable.
        """
        epoch = self._epoch
        if epoch is None or not epoch.is_live:
            return
        try:
            missing = iter(epoch.missing())
            queued = 0
            while chunk := dict(islice(missing, PODS_PER_LOOK)):
                found = read_view(self._store, {"pods": list(chunk.values())}, require_ready=False).pods
                pods = [pod for pod in found if pod.uid in chunk and pod.is_provisionable]
                result = self._provisioner.add_all(pods, epoch.name)
                queued += result.queued
                if self._provisioner.knows_pools:
                    self._tell_left(result.left)
        except (ViewIncomplete, FenceLost):
            return  # the next epoch begins with a resync
        if queued:
            logger.info("action=resync queued=%d epoch=%s", queued, epoch.name)

    def _tell_left(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._recorder.event(
                ObjectReference.of(PODS, pod.metadata),
                EventReason.FAILED_SCHEDULING,
                "Warning",
                "No NodePool can be used: none exists, or none is valid and ready",
            )
