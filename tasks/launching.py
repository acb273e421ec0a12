"""`launch` and `nominate`: carry out what a plan says."""

from __future__ import annotations

import logging

from celery import shared_task

from tasks.context import context
from wainwright.errors import StoreUnavailable

logger = logging.getLogger(__name__)


@shared_task(name="wainwright.launch", ignore_result=True)
def launch(claim: str) -> None:
    """Brings a claim as far as it goes now. A no-op while another worker has it."""
    try:
        outcome = context().provisioning.launcher.launch(claim)
    except StoreUnavailable as error:
        logger.warning("action=launch_put_off claim=%s why=%r", claim, str(error))
        return
    logger.info("action=claim_visited claim=%s outcome=%s", claim, outcome)


@shared_task(name="wainwright.nominate", ignore_result=True)
def nominate(batch: str) -> None:
    """Tells of a batch's pods that need no claim of their own: where they will go, or why they were not placed."""
    try:
        context().provisioning.nominator.nominate(batch)
    except StoreUnavailable as error:
        logger.warning("action=nominate_put_off batch=%s why=%r", batch, str(error))
