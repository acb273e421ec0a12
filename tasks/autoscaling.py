"""Pod autoscaling on beat: `collect` and `decide` for each shard, `pushes`, `autoscaler_config`; beside the ticks
`poke` and `reconcile`, for what cannot wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from celery import shared_task

from tasks.context import Context, context
from tasks.periodic import periodic, sharded
from wainwright.errors import StoreUnavailable, ViewNotReady

logger = logging.getLogger(__name__)


@sharded("collect")
def collect(shared: Context, shard: int) -> str:
    """Reads the load of a shard's autoscalers from their sources."""
    return shared.scaling.collect(shard, shared.hints.poke)


@sharded("decide")
def decide(shared: Context, shard: int) -> str:
    """Decides for a shard's autoscalers, and scales."""
    return shared.scaling.decide(shard)


@periodic("pushes")
def pushes(shared: Context) -> str:
    """Takes over what applications pushed."""
    return shared.scaling.pushes(shared.hints.poke)


@periodic("autoscaler_config")
def autoscaler_config(shared: Context) -> str:
    """Looks at the ConfigMap config-autoscaler."""
    return shared.scaling.follow_config()


@shared_task(name="wainwright.poke", ignore_result=True)
def poke(keys: Sequence[str]) -> None:
    """Decides at once: there is load on something at zero."""
    try:
        outcome = context().scaling.poke(keys)
    except (StoreUnavailable, ViewNotReady) as error:
        logger.warning("action=poke_put_off why=%r", str(error))
        return
    logger.info("action=poked pas=%s did=%r", ",".join(keys[:5]), outcome)


@shared_task(name="wainwright.reconcile", ignore_result=True)
def reconcile(keys: Sequence[str]) -> None:
    """Brings targets and statuses up to date between two ticks."""
    try:
        context().scaling.reconcile(keys)
    except (StoreUnavailable, ViewNotReady) as error:
        logger.warning("action=reconcile_put_off why=%r", str(error))
