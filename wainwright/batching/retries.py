"""Retries: pods that could not be placed are tried again, and never delay fresh ones.

They wait in `retry` by the time of their next try (back-off), or until something changed that could help. Then they
join their NodePool's open window without extending it, or make a batch of their own, which is solved behind all fresh
ones. Put aside by the script that records a plan.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from wainwright.batching.store import Store

RETRIES_PER_CALL = 1000
"""Retries one script call moves, so that it does not hold the server long."""
FORGOTTEN_PER_CALL = 500


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """pods: retries that were looked at because they were due; batches: closed batches made of them (hint the solve);
    the others joined open windows, or do not wait for capacity any more.
    """

    pods: int
    batches: tuple[str, ...]


def wake_retries(store: Store, reason: str) -> None:
    """Something changed that could help a pod that was not placed: a NodePool, a node, an offering, an ended claim.

    The next `take_due` takes every retry that was last tried with an older view, but none within a second of its try.
    Also one whose solve is still running: it is compared with the time of the view that it is tried with. Cheap.
    """
    store.run("wake_retries", reason)


def take_due(store: Store) -> Taken:
    """Moves what is due, in steps of RETRIES_PER_CALL. Pods that the view does not show as pending any more drop out.

    Nothing moves while the view is incomplete. May be repeated, and run twice at once.
    """
    pods = 0
    batches: list[str] = []
    while True:
        reply = store.run("take_due", secrets.token_hex(4), RETRIES_PER_CALL)
        pods += int(reply[0])
        batches += reply[1:]
        if int(reply[0]) < RETRIES_PER_CALL:
            return Taken(pods=pods, batches=tuple(batches))


def forget_retries(store: Store, uids: Iterable[str]) -> int:
    """Pods that changed or are gone leave the retry set and `dead`, so that `add` queues them; how many were there."""
    pods = list(uids)
    parts = (pods[first : first + FORGOTTEN_PER_CALL] for first in range(0, len(pods), FORGOTTEN_PER_CALL))
    return sum(int(store.run("forget_retries", *part)) for part in parts)
