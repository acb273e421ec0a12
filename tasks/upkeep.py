"""The periodic tasks of provisioning."""

from __future__ import annotations

from tasks.context import Context
from tasks.periodic import periodic
from wainwright.batching.retries import take_due
from wainwright.provisioning.pool_usage import write_usage


@periodic("sweep")
def sweep(shared: Context) -> str:
    """Hints whatever is due and nobody has held for a second."""
    return shared.provisioning.upkeep.sweep(shared.settings.batching.shards)


@periodic("retries")
def retries(shared: Context) -> str:
    """Brings back pods that could not be placed and are due."""
    taken = take_due(shared.store)
    if taken.batches:
        shared.hints.solve()
    return f"{taken.pods} pods due" if taken.pods else ""


@periodic("lifecycle")
def lifecycle(shared: Context) -> str:
    """Moves claims along that nobody holds: registered, ready, being deleted, gone."""
    return shared.provisioning.upkeep.lifecycle()


@periodic("pools")
def pools(shared: Context) -> str:
    """Counts what each NodePool uses."""
    written = write_usage(shared.kube, shared.store)
    return f"{written} NodePools counted anew" if written else ""


@periodic("garbage")
def garbage(shared: Context) -> str:
    """Compares the cloud's instances with the claims."""
    return shared.provisioning.garbage.collect()
