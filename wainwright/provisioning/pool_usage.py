"""How much each NodePool has: status.resources and status.nodes, counted from the view, written where they changed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from wainwright.api.names import NODEPOOL_LABEL
from wainwright.api.nodepools import NodePool
from wainwright.api.nodes import Node
from wainwright.api.quantities import QuantityError, Resources, add, format_resources, parse_resources
from wainwright.batching.store import Store
from wainwright.errors import Conflict, KubeError, NotFound
from wainwright.kube.client import KubeClient
from wainwright.kube.resources import NODE_POOLS
from wainwright.kube.view import read_view

logger = logging.getLogger(__name__)


class PoolUsage(msgspec.Struct, frozen=True, kw_only=True):
    """nodes: how many; resources: capacity of all of them, milli-CPU for cpu, whole units otherwise."""

    nodes: int = 0
    resources: dict[str, int] = {}


def count_usage(nodes: Iterable[Node]) -> dict[str, PoolUsage]:
    """By NodePool name. Nodes whose capacity is not reported yet, or cannot be parsed, count as nodes only."""
    counts: dict[str, int] = defaultdict(int)
    totals: dict[str, Resources] = defaultdict(dict)
    for node in nodes:
        pool = node.metadata.labels.get(NODEPOOL_LABEL)
        if pool is None:
            continue
        counts[pool] += 1
        try:
            totals[pool] = add(totals[pool], parse_resources(node.status.capacity, round_up=False))
        except QuantityError:
            continue
    return {pool: PoolUsage(nodes=count, resources=dict(totals[pool])) for pool, count in counts.items()}


def usage_patch(node_pool: NodePool, usage: PoolUsage) -> dict[str, Any] | None:
    """The merge patch that makes its status say so; None when it does."""
    resources: dict[str, str | None] = dict(format_resources({**usage.resources, "nodes": usage.nodes}))
    status = node_pool.status
    if status.nodes == usage.nodes and {k: str(v) for k, v in status.resources.items()} == resources:
        return None
    for name in status.resources:
        resources.setdefault(name, None)
    return {"metadata": {"uid": node_pool.metadata.uid}, "status": {"nodes": usage.nodes, "resources": resources}}


def write_usage(client: KubeClient, store: Store) -> int:
    """Counts and writes; how many NodePools were written. Raises ViewNotReady, StoreUnavailable, KubeUnavailable."""
    view = read_view(store, ("nodes", "nodepools"))
    usage = count_usage(view.nodes)
    written = 0
    for node_pool in view.node_pools:
        patch = usage_patch(node_pool, usage.get(node_pool.name, PoolUsage()))
        if patch is None:
            continue
        try:
            client.merge_patch(NODE_POOLS, node_pool.name, patch, subresource="status")
            written += 1
        except (Conflict, NotFound):
            continue  # deleted, perhaps made anew: the next count sees it
        except KubeError as error:
            logger.warning("action=usage_refused nodepool=%s error=%s", node_pool.name, error)
    return written
