"""`python -m workers.health`: exit status 0 while a process of this host shows life in Redis; for container checks."""

from __future__ import annotations

import socket
import sys

from tasks.context import make_store
from wainwright.errors import StoreUnavailable
from workers.process import settings_or_exit


def main() -> int:
    """0: a process of this host refreshed its sign of life within 15 s; 1: none did, or Redis does not answer."""
    store = make_store(settings_or_exit())
    pattern = store.keys.worker(f"*@{socket.gethostname()}:*")
    try:
        alive = store.read(lambda redis: redis.keys(pattern))
    except StoreUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not alive:
        sys.stderr.write(f"no process of {socket.gethostname()} has shown life for 15 s\n")
    return 0 if alive else 1


if __name__ == "__main__":
    sys.exit(main())
