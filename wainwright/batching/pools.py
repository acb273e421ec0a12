"""NodePools in use, known by UID: taking one into use, and deleting it without losing what it had queued."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wainwright.batching.store import Store


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """queued: pods (UID, namespace/name) that waited in its window. routed_to: the NodePool that has them now, empty
    where none is in use: then they wait in the view until a resync finds them.
    """

    routed_to: str
    queued: tuple[tuple[str, str], ...]


def use_pool(store: Store, name: str, uid: str, order: Sequence[str] = ()) -> bool:
    """Takes a NodePool into use; True when it is new. Under another UID the old one is deleted first, in one step.

    order: NodePools by priority; the first of them in use takes what the old one had queued.
    """
    return bool(store.run("use_pool", name, uid, *order))


def delete_pool(store: Store, name: str, uid: str, order: Sequence[str] = ()) -> Deleted | None:
    """Takes a NodePool out of use; None when it is not in use under that UID.

    One atomic step: its window closes, the gates of all its items open, its queued pods enter the window of the first
    NodePool of `order` that is in use, else the first by name. Which window it is matters little (the solve sees every
    NodePool), so nothing is left to a caller who may die. Batches closed before go on.
    """
    reply = store.run("delete_pool", name, uid, *order)
    if not int(reply[0]):
        return None
    return Deleted(routed_to=reply[1], queued=tuple(zip(reply[2::2], reply[3::2], strict=True)))


def pools_in_use(store: Store) -> dict[str, str]:
    """Name → UID."""
    return store.read(lambda redis: redis.hgetall(store.keys.nodepools))
