"""Sends hints as Celery messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from celery import Celery
from kombu.exceptions import OperationalError

from wainwright.clock import Clock

logger = logging.getLogger(__name__)

QUIET_SECONDS = 30.0
"""A broker that is down is reported at most this often."""


class CeleryHints:
    """`wainwright.provisioning.ports.Hints` over Celery. One that cannot be sent is dropped: the sweep hints again."""

    def __init__(self, app: Celery, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._quiet_until = 0.0

    def window(self, shard: int) -> None:
        self._send("wainwright.window", shard)

    def solve(self) -> None:
        self._send("wainwright.solve")

    def launch(self, claim: str) -> None:
        self._send("wainwright.launch", claim)

    def nominate(self, batch: str) -> None:
        self._send("wainwright.nominate", batch)

    def poke(self, keys: Sequence[str]) -> None:
        self._send("wainwright.poke", list(keys))

    def reconcile(self, keys: Sequence[str]) -> None:
        self._send("wainwright.reconcile", list(keys))

    def _send(self, task: str, *arguments: object) -> None:
        try:
            self._app.send_task(task, args=arguments, expires=30, ignore_result=True, retry=False)
        except (OperationalError, OSError) as error:
            now = self._clock.monotonic_seconds()
            if now >= self._quiet_until:
                self._quiet_until = now + QUIET_SECONDS
                logger.warning("action=hint_dropped task=%s error=%s", task, error)
