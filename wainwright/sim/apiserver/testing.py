"""An API server in a thread of the calling process, for tests."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from wainwright.clock import SystemClock
from wainwright.sim.apiserver.certificates import issue, kubeconfig, write_private
from wainwright.sim.apiserver.core import ApiServer
from wainwright.sim.apiserver.http import Front

T = TypeVar("T")

TOKEN = "test-token"  # noqa: S105


class ThreadedServer:
    """Serving from the constructor's return until `stop`; also a context manager.

    base_url: `http://127.0.0.1:port`, or https when `tls` (then `authority` is the CA in PEM). token: the bearer token.
    `front.server` is the server itself: touch it only through `call`.
    """

    def __init__(
        self,
        *,
        tls: bool = False,
        ring_size: int = 10_000,
        watch_limit_bytes: int = 8 * 1024 * 1024,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.token = TOKEN
        self._now = now or SystemClock().now
        self._directory = tempfile.TemporaryDirectory()
        certificates = issue([], self._now()) if tls else None
        self.authority = certificates.authority if certificates else b""
        context = certificates.server_context(Path(self._directory.name)) if certificates else None
        server = ApiServer(ring_size=ring_size, watch_limit_bytes=watch_limit_bytes)
        server.bootstrap(self._now())
        self.front = Front(server, token=TOKEN, now=self._now)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="apiserver", daemon=True)
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self.front.start("127.0.0.1", 0, context), self._loop).result(10)
        self.base_url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"

    def write_kubeconfig(self, path: Path) -> Path:
        write_private(path, kubeconfig(self.base_url, self.authority, TOKEN))
        return path

    def call(self, function: Callable[[ApiServer], T]) -> T:
        """Run a function on the server in the server's thread."""

        async def run() -> T:
            return function(self.front.server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def stop(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.front.stop(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_in_thread(*, tls: bool = False) -> ThreadedServer:
    return ThreadedServer(tls=tls)
