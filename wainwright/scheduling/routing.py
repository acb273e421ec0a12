"""Which NodePool's window a pod waits in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.api.quantities import QuantityError
from wainwright.scheduling.instance_types import Catalog
from wainwright.scheduling.mentions import Mentions
from wainwright.scheduling.requests import pod_requests
from wainwright.scheduling.requirements import RequirementError
from wainwright.scheduling.shapes import scheduling_terms
from wainwright.scheduling.taints import tolerates
from wainwright.scheduling.universe import ENORMOUS, Universe


class Router:
    """Answers `route` for one set of NodePools and catalogs; remembers every shape of pod it has seen."""

    def __init__(self, node_pools: Iterable[NodePool], catalogs: Mapping[str, Catalog]) -> None:
        self._pools = sorted(node_pools, key=lambda pool: pool.priority)
        self._catalogs = dict(catalogs)
        self._mentions = Mentions()
        self._resources: set[str] = set()
        self._universe: Universe | None = None
        self._answers: dict[bytes, frozenset[str]] = {}
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def route(self, pod: Pod) -> str:
        """Name of the first NodePool in priority order that could take this pod, limits and shortages aside.

        The first one's where none could, so that its reasons are recorded too; "" without NodePools.
        """
        if not self._pools:
            return ""
        takers = self.takers(pod)
        return next((pool.name for pool in self._pools if pool.name in takers), self._pools[0].name)

    def takers(self, pod: Pod) -> frozenset[str]:
        """Names of the NodePools that could take this pod alone; none for a pod that cannot be read."""
        spec = pod.spec
        text = self._encode(
            (
                spec.node_selector,
                spec.affinity.node_affinity if spec.affinity is not None else None,
                spec.tolerations,
                [container.resources for container in spec.containers],
                [(container.resources, container.restart_policy) for container in spec.init_containers],
                spec.resources,
                spec.overhead,
            )
        )
        known = self._answers.get(text)
        if known is None:
            known = self._takers(pod)
            if len(self._answers) >= 100_000:
                self._answers.clear()
            self._answers[text] = known
        return known

    def _takers(self, pod: Pod) -> frozenset[str]:
        try:
            requests = pod_requests(pod)
            terms = scheduling_terms(pod.spec)
        except (QuantityError, RequirementError):
            return frozenset()
        universe = self._universe_for(Mentions.of(terms), requests)
        mask = universe.mask_of_terms(terms)
        mask &= universe.mask_of_pools(
            [tolerates(pod.spec.tolerations, terms.pool.spec.template.spec.taints) for terms in universe.pools]
        )
        for name, amount in requests.items():
            mask &= universe.allocatable[name] >= min(amount, ENORMOUS)
        return frozenset(universe.pools[index].pool.name for index in np.unique(universe.pool_of[mask]))

    def _universe_for(self, mentions: Mentions, requests: Mapping[str, int]) -> Universe:
        universe = self._universe
        if universe is None or not self._mentions.covers(mentions) or not self._resources.issuperset(requests):
            self._mentions.update(mentions)
            self._resources.update(requests)
            universe = Universe(
                self._pools, self._catalogs, mentions=self._mentions, resources=self._resources, sold_out_too=True
            )
            self._universe = universe
        return universe


def could_take(node_pool: NodePool, catalog: Catalog, pod: Pod) -> bool:
    """Is there an instance type of this NodePool that could hold this pod alone, limits and shortages aside?"""
    return bool(_router((node_pool,), {node_pool.name: catalog}).takers(pod))


def route(pod: Pod, node_pools: Sequence[NodePool], catalogs: Mapping[str, Catalog]) -> str:
    """`Router.route` for callers that keep no Router: the last one is reused while pools and catalogs are the same."""
    return _router(tuple(node_pools), catalogs).route(pod)


_last: list[tuple[tuple[NodePool, ...], dict[str, Catalog], Router]] = []


def _router(node_pools: tuple[NodePool, ...], catalogs: Mapping[str, Catalog]) -> Router:
    if _last:
        pools, known, router = _last[0]
        if (
            len(pools) == len(node_pools)
            and all(a is b for a, b in zip(pools, node_pools, strict=True))
            and known.keys() == catalogs.keys()
            and all(known[name] is catalogs[name] for name in known)
        ):
            return router
    router = Router(node_pools, catalogs)
    _last[:] = [(node_pools, dict(catalogs), router)]
    return router
