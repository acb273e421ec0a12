"""`python -m wainwright.cloud.simulated`: serve a simulated cloud until told to stop (SIGTERM, SIGINT)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from wainwright.clock import SystemClock
from wainwright.cloud.catalog import CatalogError, load_packing_catalog
from wainwright.cloud.simulated.journal import Journal, JournalError
from wainwright.cloud.simulated.service import Delays, SimulatedCloud
from wainwright.cloud.simulated.state import CloudState
from wainwright.cloud.simulated.types import generated_catalog

PARENT_CHECK_SECONDS = 0.5
logger = logging.getLogger("wainwright.cloud.simulated")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m wainwright.cloud.simulated",
        description="A simulated cloud: launches instances that are records, remembers every launch, fails on demand.",
    )
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS", help="address to bind (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to bind; 0: any free one (%(default)s)")
    parser.add_argument("--state-file", type=Path, required=True, metavar="FILE", help="record of all launches")
    parser.add_argument("--url-file", type=Path, metavar="FILE", help="where to write the URL, once it is served")
    parser.add_argument(
        "--catalog", type=Path, metavar="FILE", help="a packing-catalog/v1 file instead of our own types"
    )
    defaults = Delays()
    for name, default, meaning in (
        ("launch", defaults.launch, "until a launch is answered"),
        ("boot", defaults.boot, "from then until the kubelet reports"),
        ("terminate", defaults.terminate, "from a deletion until the instance is gone"),
    ):
        parser.add_argument(
            f"--{name}-delay", type=float, default=default, metavar="S", help=f"seconds {meaning} (%(default)s)"
        )
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started us is gone")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Serve until stopped. Returns 2 when the catalog, the state file or the address cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    arguments = _arguments(argv)
    try:
        asyncio.run(_serve(arguments))
    except (CatalogError, JournalError, OSError) as error:
        sys.stderr.write(f"simulated cloud: {error}\n")
        return 2
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    parent = os.getppid()
    state = CloudState(load_packing_catalog(arguments.catalog) if arguments.catalog else generated_catalog())
    journal = Journal(arguments.state_file)
    for event in journal.replay():
        state.apply(event)
    delays = Delays(launch=arguments.launch_delay, boot=arguments.boot_delay, terminate=arguments.terminate_delay)
    cloud = SimulatedCloud(state, journal, delays, SystemClock())
    runner = web.AppRunner(cloud.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, arguments.listen, arguments.port).start()
        host, port = runner.addresses[0][:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if arguments.url_file:
            _write_whole(arguments.url_file, url + "\n")
        logger.info("serving %d instance types at %s", len(state.catalog.instance_types), url)
        await _until_stopped(parent if arguments.exit_with_parent else None)
    finally:
        await runner.cleanup()
        journal.close()


async def _until_stopped(parent: int | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    while not stopped.is_set():
        if parent is not None and os.getppid() != parent:
            logger.info("the parent process is gone")
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), PARENT_CHECK_SECONDS if parent is not None else None)


def _write_whole(path: Path, text: str) -> None:
    """A reader sees all of it or nothing."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


if __name__ == "__main__":
    sys.exit(main())
