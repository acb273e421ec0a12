"""The API server as a process of its own: `python -m wainwright.sim.apiserver`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import secrets
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from wainwright.clock import SystemClock
from wainwright.sim.apiserver import snapshot
from wainwright.sim.apiserver.certificates import Certificates, issue, kubeconfig, write_private
from wainwright.sim.apiserver.core import ApiServer
from wainwright.sim.apiserver.http import Front

_PARENT_POLL_SECONDS = 0.5
_FIRST_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Options:
    """port 0 takes a free one. snapshot: read at start if it is there, written at the end; None keeps nothing."""

    port: int
    kubeconfig: Path
    data_dir: Path
    listen: str = "127.0.0.1"
    advertise: str = ""
    snapshot: Path | None = None
    exit_with_parent: bool = False


class Credentials(msgspec.Struct, frozen=True):
    """What a restart must find again, so that kubeconfigs stay good."""

    token: str
    authority: str
    serving: str
    key: str
    hosts: list[str]


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m wainwright.sim.apiserver", description="The Kubernetes API server of the embedded cluster."
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="file to write as soon as requests are served")
    parser.add_argument("--data-dir", type=Path, required=True, help="directory for certificates and token")
    parser.add_argument("--listen", default="127.0.0.1", help="address to listen on (default: loopback only)")
    parser.add_argument("--advertise", default="", help="host name or address that the kubeconfig names")
    parser.add_argument("--snapshot", type=Path, help="file to start from and to leave the state in")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when the starting process does")
    return Options(**vars(parser.parse_args(arguments)))


def credentials(options: Options, now: datetime) -> Credentials:
    """Those in the data directory, or new ones when there are none or they are for other hosts."""
    path = options.data_dir / "credentials.json"
    hosts = [host for host in (options.listen, options.advertise) if host and host not in ("0.0.0.0", "::")]  # noqa: S104
    with suppress(FileNotFoundError):
        found = msgspec.json.decode(path.read_bytes(), type=Credentials)
        if set(hosts) <= set(found.hosts):
            return found
    made = issue(hosts, now)
    fresh = Credentials(
        secrets.token_urlsafe(32), made.authority.decode(), made.serving.decode(), made.key.decode(), hosts
    )
    write_private(path, msgspec.json.encode(fresh).decode())
    return fresh


def new_server(now: datetime) -> ApiServer:
    """A server with the objects of a fresh cluster. Its first version grows with time, so that what watched the server
    before it, whose state is lost, is told so (410) instead of waiting for ever.
    """
    server = ApiServer(version=int((now - _FIRST_YEAR).total_seconds()) * 1000)
    server.bootstrap(now)
    return server


def loaded_server(path: Path | None, now: datetime) -> ApiServer:
    if path is None or not path.exists():
        return new_server(now)
    server = ApiServer()
    snapshot.restore(server, path.read_bytes())
    return server


async def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, or, when it was asked for, until the parent is gone."""
    clock = SystemClock()
    parent = os.getppid()
    options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = credentials(options, clock.now())
    certificates = Certificates(kept.authority.encode(), kept.serving.encode(), kept.key.encode())
    front = Front(loaded_server(options.snapshot, clock.now()), token=kept.token, now=clock.now)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    port = await front.start(options.listen, options.port, certificates.server_context(options.data_dir))
    wildcard = options.listen in ("0.0.0.0", "::")  # noqa: S104
    host = options.advertise or ("127.0.0.1" if wildcard else options.listen)
    address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    write_private(options.kubeconfig, kubeconfig(address, certificates.authority, kept.token))
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    sys.stdout.write(f"embedded Kubernetes API ready at {address} (kubeconfig {options.kubeconfig})\n")
    sys.stdout.flush()
    while not stopped.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARENT_POLL_SECONDS if options.exit_with_parent else None):
                await stopped.wait()
        if options.exit_with_parent and os.getppid() != parent:
            stopped.set()
    await front.stop()
    if options.snapshot is not None:
        snapshot.save(front.server, options.snapshot)


def main(arguments: list[str] | None = None) -> int:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options))
    return 0
