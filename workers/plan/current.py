"""`--cluster current`: the running Wainwright's view of its cluster, and what its cloud offers."""

from __future__ import annotations

from config.settings import Settings
from tasks.adapters import make_cloud, make_kube
from wainwright.api.nodepools import NodePool
from wainwright.batching.store import Store
from wainwright.cloud.errors import CloudError
from wainwright.kube.config import ConfigError
from wainwright.provisioning.reading import ClusterReader
from wainwright.scheduling.instance_types import Catalog
from workers.plan.inputs import CatalogOf, CurrentCluster, Policies


def read_current(store: Store, settings: Settings) -> CurrentCluster:
    """Raises StoreUnavailable; ViewNotReady while the view is missing, incomplete or stale."""
    reader = ClusterReader(store)
    state = reader.decode(reader.fetch())
    policies = Policies(preferences=settings.solve.preferences, min_values=settings.solve.min_values)
    return CurrentCluster(state, _catalogs(settings), policies)


def _catalogs(settings: Settings) -> CatalogOf:
    """The cloud is asked when the first NodePool needs its catalog."""
    try:
        cloud = make_cloud(settings, make_kube(settings))
    except ConfigError as error:
        problem = str(error)

        def refused(_pool: NodePool) -> Catalog:
            raise CloudError(f"Kubernetes cannot be asked for its NodeClass: {problem}")

        return refused
    return cloud.instance_types
