"""Which shard an autoscaler is in: consistent hashing, so that another number of shards moves only what must. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = 2**64 - 1


def shard_of(key: str, shards: int) -> int:
    """The shard of `namespace/name`, from 0 to shards - 1; the same everywhere and for ever.

    From n to n + 1 shards, one key in n + 1 moves, all of them to the new shard.
    Source: jump consistent hash (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014).
    """
    if shards < 1:
        raise ValueError(f"{shards} shards")
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    shard, following = 0, 0
    while following < shards:
        shard = following
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((shard + 1) * (float(1 << 31) / float((state >> 33) + 1)))
    return shard
