"""Adapters made from the settings: one place says how Kubernetes and the cloud are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from config.settings import Settings
from wainwright.api.nodepools import NodeClassReference
from wainwright.cloud.errors import CloudUnavailable
from wainwright.cloud.port import CloudProvider
from wainwright.cloud.simulated.provider import SimulatedProvider
from wainwright.errors import KubeUnavailable, NotFound
from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from wainwright.kube.resources import Resource

NodeClassReader = Callable[[NodeClassReference], Mapping[str, object] | None]


def make_kube(settings: Settings) -> KubeClient:
    """Raises wainwright.kube.config.ConfigError, naming file and field."""
    return KubeClient(load_config(settings.kube.kubeconfig, settings.kube.context))


def make_cloud(settings: Settings, kube: KubeClient) -> CloudProvider:
    return SimulatedProvider(settings.cloud.url, node_class=node_class_reader(kube))


def node_class_reader(kube: KubeClient) -> NodeClassReader:
    """Reads NodeClass objects of any kind that the API server serves. Raises CloudUnavailable where it does not answer:
    a NodeClass that cannot be read just now is not a missing one.
    """
    served: dict[tuple[str, str], Resource] = {}

    def read(reference: NodeClassReference) -> Mapping[str, object] | None:
        kind = (reference.group, reference.kind)
        try:
            if kind not in served:
                found = kube.discover(*kind)
                if found is None:
                    return None
                served[kind] = found
            answer: dict[str, object] = msgspec.json.decode(kube.request("GET", served[kind].path(name=reference.name)))
        except NotFound:
            return None
        except KubeUnavailable as error:
            raise CloudUnavailable(f"{reference.kind} {reference.name} cannot be read: {error}") from error
        else:
            return answer

    return read
