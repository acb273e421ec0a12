"""`window`: serves a shard of NodePools for a while, closing what falls due."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from celery import shared_task

from tasks.context import context, stopping
from wainwright.batching.shards import Closed, serve_shard
from wainwright.errors import StoreUnavailable

logger = logging.getLogger(__name__)


@shared_task(name="wainwright.window", ignore_result=True)
def window(shard: int) -> None:
    """Serves the shard until it is idle or time is up. A no-op while another worker holds it."""
    shared = context()

    def on_closed(closed: Sequence[Closed]) -> None:
        shared.hints.solve()
        for batch in closed:
            logger.info("action=window_closed batch=%s pods=%d", batch.batch, batch.size)

    try:
        served = serve_shard(
            shared.store, shard, shared.settings.batching.shards, stop=stopping, on_closed=on_closed, clock=shared.clock
        )
    except StoreUnavailable as error:
        logger.warning("action=window_put_off shard=%d why=%r", shard, str(error))
        return
    if served.again:
        shared.hints.window(shard)
