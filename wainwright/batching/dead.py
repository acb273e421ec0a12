"""What is set aside in `dead`: it cannot be parsed, or kills its worker. Each with its reason, never in the way."""

from __future__ import annotations

import msgspec

from wainwright.batching.store import Store


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """reason: why, a sentence. at_ms: when, by the Redis server's clock. what: the thing itself, as text."""

    reason: str
    at_ms: int
    what: str


def set_aside(store: Store, kind: str, name: str, reason: str, what: str) -> None:
    """For kind and name: `pod` and its UID (such a pod is not queued while it is here), `entry` and nodepool/id, …"""
    store.run("bury", f"{kind}/{name}", reason, what)


def is_set_aside(store: Store, kind: str, name: str) -> bool:
    return bool(store.read(lambda redis: redis.hexists(store.keys.dead, f"{kind}/{name}")))


def put_back(store: Store, kind: str, name: str) -> bool:
    """Lets it be tried again; answers whether it was set aside."""
    return bool(store.read(lambda redis: redis.hdel(store.keys.dead, f"{kind}/{name}")))


def all_set_aside(store: Store) -> dict[str, SetAside]:
    """`<kind>/<name>` → what and why, sorted by key."""
    held: dict[str, str] = store.read(lambda redis: redis.hgetall(store.keys.dead))
    return {key: msgspec.json.decode(held[key], type=SetAside) for key in sorted(held)}
