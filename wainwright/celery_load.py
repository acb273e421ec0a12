"""For a user's Celery application on Redis: publishes the tasks that a worker has in hand, so that they count as load.

    from wainwright import celery_load
    celery_load.install(app)

A task that is acknowledged early (Celery's default) leaves the broker when it starts, so nothing there tells that it
runs. This worker step writes, once a second, per queue: `at_ms running busy` under the worker's name into the hash
`wainwright:celery-load:<queue>` of the broker. running: tasks that run and are in the broker no more; busy: all that
the worker has in hand, by which idle pods are told from busy ones.

It needs nothing of Wainwright but this file, and disturbs nothing: without a Redis broker, or while it is away, it does
nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from celery import Celery, bootsteps

logger = logging.getLogger(__name__)

PUBLISH_SECONDS: Final = 1.0
KEEP_MS: Final = 60_000
"""A hash that nobody writes to is gone after this; so is the field of a worker that has ended."""
CLEAN_EVERY: Final = 30


class LoadStep(bootsteps.StartStopStep):
    """Publishes until the process ends: also during a warm shutdown, while the last tasks are finished."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._ending = threading.Event()

    def start(self, parent: Any) -> None:
        if parent.app.connection_for_write().transport.driver_type != "redis":
            logger.warning("action=celery_load_off why=%r", "the broker is not Redis")
            return
        threading.Thread(target=self._run, args=(parent,), name="celery-load", daemon=True).start()

    def terminate(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
        """A cold shutdown: tasks are not finished, so nothing is in hand any more."""
        self._ending.set()

    def _run(self, parent: Any) -> None:
        turn, told = 0, False
        while not self._ending.wait(PUBLISH_SECONDS):
            try:
                with parent.app.connection_for_write() as connection:
                    while not self._ending.is_set():
                        self._publish(parent, connection.default_channel.client, clean=turn % CLEAN_EVERY == 0)
                        turn, told = turn + 1, False
                        self._ending.wait(PUBLISH_SECONDS)
            except Exception as error:
                if not told:
                    logger.warning("action=celery_load_put_off why=%r", error)
                told = True

    def _publish(self, parent: Any, client: Any, *, clean: bool) -> None:
        from celery.worker import state

        queues = {str(name) for name in parent.app.amqp.queues.consume_from}
        routes = routes_of(parent.app.amqp.queues.consume_from)
        running, busy = in_hand(state.reserved_requests, state.active_requests, routes)
        seconds, micros = client.time()
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        for queue in queues:
            key = f"wainwright:celery-load:{queue}"
            client.hset(key, parent.hostname, f"{now_ms} {running[queue]} {busy[queue]}")
            client.pexpire(key, KEEP_MS)
            if clean:
                full = getattr(client, "global_keyprefix", "") + key
                old = stale_workers(client.execute_command("HGETALL", full), now_ms)
                if old:
                    client.hdel(key, *old)


def routes_of(queues: Mapping[Any, Any]) -> dict[tuple[str, str], str]:
    """(exchange, routing key) → queue, as the worker's queues are bound."""
    return {
        (str(getattr(queue.exchange, "name", "") or ""), str(queue.routing_key or "")): str(name)
        for name, queue in queues.items()
    }


def in_hand(
    reserved: Iterable[Any], active: Iterable[Any], routes: Mapping[tuple[str, str], str]
) -> tuple[Counter[str], Counter[str]]:
    """By queue: tasks that run and are acknowledged already, and all tasks that the worker has in hand."""
    running: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for request in list(reserved):
        busy[_queue(request, routes)] += 1
    for request in list(active):
        if request.acknowledged:
            running[_queue(request, routes)] += 1
    return running, busy


def _queue(request: Any, routes: Mapping[tuple[str, str], str]) -> str:
    info = request.delivery_info or {}
    exchange, key = str(info.get("exchange") or ""), str(info.get("routing_key") or "")
    return routes.get((exchange, key), key)


def stale_workers(held: Any, now_ms: int) -> list[Any]:
    """Workers that published nothing for KEEP_MS. held: the hash, as a mapping or as Redis' flat list."""
    pairs = held.items() if isinstance(held, Mapping) else zip(held[::2], held[1::2], strict=True)
    stale = []
    for worker, text in pairs:
        at = (text.decode() if isinstance(text, bytes) else str(text)).partition(" ")[0]
        if not at.isdigit() or now_ms - int(at) > KEEP_MS:
            stale.append(worker)
    return stale


def install(app: Celery) -> None:
    """Adds the step to every worker of this application; doing so twice changes nothing."""
    app.steps["worker"].add(LoadStep)
