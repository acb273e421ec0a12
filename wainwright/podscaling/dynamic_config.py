"""The ConfigMap `config-autoscaler`, followed live: `kpa:config` in Redis holds what is in force, for all processes."""

from __future__ import annotations

from typing import Final

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.api.reasons import EventReason
from wainwright.autoscaling.config import AutoscalerConfig, DynamicConfig, parse_config, unread_keys
from wainwright.autoscaling.faults import Fault, InvalidSettings
from wainwright.batching.store import Store
from wainwright.errors import NotFound, ViewNotReady
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder, ObjectReference
from wainwright.kube.resources import CONFIG_MAPS

__all__ = ["CONFIG_MAP", "ConfigFollower", "DynamicConfig", "StoredConfig", "decode_config"]

CONFIG_MAP: Final = "config-autoscaler"


class ConfigMap(Resource):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class StoredConfig(msgspec.Struct, frozen=True, kw_only=True):
    """seen: resourceVersion last looked at, empty when there was no ConfigMap. data: the last valid one; None: there
    never was one. faults: why the one seen last is not in force.
    """

    seen: str = ""
    data: dict[str, str] | None = None
    faults: tuple[Fault, ...] = ()


_parsed: dict[bytes, AutoscalerConfig] = {}


def decode_config(text: bytes | None) -> AutoscalerConfig:
    """The configuration in force. Raises ViewNotReady while none is known: nothing is scaled by guessed settings."""
    if text is None:
        raise ViewNotReady(f"the ConfigMap {CONFIG_MAP} was not looked at yet")
    known = _parsed.get(text)
    if known is None:
        stored = msgspec.json.decode(text, type=StoredConfig)
        if stored.data is None:
            faults = "; ".join(str(fault) for fault in stored.faults)
            raise ViewNotReady(f"the ConfigMap {CONFIG_MAP} is invalid and no earlier one is known: {faults}")
        known = parse_config(stored.data)
        _parsed.clear()
        _parsed[text] = known
    return known


class ConfigFollower:
    """Looks at the ConfigMap and takes it over: whole, or, with a fault in it, not at all."""

    def __init__(self, store: Store, kube: KubeClient, recorder: EventRecorder, namespace: str) -> None:
        self._store = store
        self._kube = kube
        self._recorder = recorder
        self._namespace = namespace

    def follow(self) -> str:
        """Looks once; what changed, empty for nothing. Raises KubeUnavailable, KubeError, StoreUnavailable."""
        try:
            found = self._kube.get(CONFIG_MAPS, CONFIG_MAP, self._namespace, as_type=ConfigMap)
        except NotFound:
            found = ConfigMap(metadata=ObjectMeta(name=CONFIG_MAP, namespace=self._namespace))
        key = self._store.keys.kpa_config
        text = self._store.read(lambda redis: redis.get(key))
        stored = None if text is None else msgspec.json.decode(text, type=StoredConfig)
        seen = found.metadata.resource_version
        if stored is not None and stored.seen == seen:
            return ""
        try:
            parse_config(found.data)
        except InvalidSettings as error:
            new = StoredConfig(seen=seen, data=None if stored is None else stored.data, faults=error.faults)
            self._refuse(found, error)
            outcome = f"{CONFIG_MAP} refused: {error}"
        else:
            new = StoredConfig(seen=seen, data=found.data)
            outcome = f"{CONFIG_MAP} in force as of version {seen or '(none)'}"
            self._warn(found)
        encoded = msgspec.json.encode(new)
        self._store.read(lambda redis: redis.set(key, encoded))
        return outcome

    def _refuse(self, found: ConfigMap, error: InvalidSettings) -> None:
        about = ObjectReference.of(CONFIG_MAPS, found.metadata)
        message = f"Refused as a whole, the last valid settings stay in force: {error}"
        self._recorder.event(about, EventReason.CONFIG_REFUSED, "Warning", message)

    def _warn(self, found: ConfigMap) -> None:
        unread = unread_keys(found.data)
        if not unread:
            return
        told = ", ".join(key + (f" (did you mean {near}?)" if near else "") for key, near in unread.items())
        about = ObjectReference.of(CONFIG_MAPS, found.metadata)
        self._recorder.event(about, EventReason.CONFIG_UNREAD, "Warning", f"Nothing reads these keys: {told}")
