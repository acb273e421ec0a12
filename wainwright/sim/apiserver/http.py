"""The API server on aiohttp: authentication, bodies, streams, and the admin path of the fault switches."""

from __future__ import annotations

import asyncio
import hmac
import ssl
import sys
import traceback
from collections.abc import Callable
from datetime import datetime
from urllib.parse import parse_qsl

import msgspec
from aiohttp import ClientConnectionResetError, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from wainwright.sim.apiserver import snapshot
from wainwright.sim.apiserver.core import ApiServer
from wainwright.sim.apiserver.errors import BODY_LIMIT_BYTES, ApiError, too_large
from wainwright.sim.apiserver.faults import Faults
from wainwright.sim.apiserver.requests import Request, Response, WatchStream, answer, refusal

BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0
_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_ADMIN = "/_wainwright/"


class Front:
    """One API server behind one listening socket.

    server_of: builds the server that a `restart` goes on with, empty; state is put back into it.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        token: str,
        now: Callable[[], datetime],
        server_of: Callable[[], ApiServer] = ApiServer,
    ) -> None:
        self.server = server
        self.faults = Faults()
        self._server_of = server_of
        self._bearer = f"Bearer {token}".encode()
        self._now = now
        self._runner: web.ServerRunner | None = None
        self._address: tuple[str, int, ssl.SSLContext | None] = ("", 0, None)
        self._restarts: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port that was given or found."""
        web_server = web.Server(
            self._handle,
            request_factory=_request_factory,
            handler_cancellation=True,
            access_log=None,
            max_line_size=65536,
            max_field_size=65536,
            lingering_time=0.5,
        )
        self._runner = web.ServerRunner(web_server, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024, reuse_address=True)
        await site.start()
        port = int(self._runner.addresses[0][1])
        self._address = (host, port, context)
        return port

    async def stop(self) -> None:
        """Close every connection and the socket."""
        self._cut_watches("")
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # Requests -----------------------------------------------------------------------------------------------------

    async def _handle(self, received: web.BaseRequest) -> web.StreamResponse:
        path = received.path
        if path not in _PUBLIC and not hmac.compare_digest(
            received.headers.get("Authorization", "").encode(), self._bearer
        ):
            return _plain(refusal(ApiError(401, "Unauthorized", "Unauthorized")))
        try:
            body = await received.read() if received.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            response = _plain(refusal(too_large()))
            response.force_close()
            return response
        request = Request(
            received.method,
            received.rel_url.raw_path,
            dict(parse_qsl(received.rel_url.raw_query_string, keep_blank_values=True)),
            {name.lower(): value for name, value in received.headers.items()},
            body,
        )
        if path.startswith(_ADMIN):
            return _plain(await self._administer(path.removeprefix(_ADMIN), request))
        if self.faults.rules:
            latency, failure = self.faults.meet(request)
            if latency:
                await asyncio.sleep(latency)
            if failure is not None:
                return _plain(refusal(failure))
        try:
            found = self.server.handle(request, self._now)
        except Exception as error:
            # A fault of ours: this client gets a Status, the log the rest, and others go on being served.
            traceback.print_exc(file=sys.stderr)
            return _plain(refusal(ApiError(500, "InternalError", f"Internal error occurred: {error!r}")))
        if isinstance(found, WatchStream):
            return await self._stream(received, found)
        return _plain(found)

    async def _stream(self, received: web.BaseRequest, stream: WatchStream) -> web.StreamResponse:
        watch, loop = stream.watch, asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            woken.set()
            if watch.overflowed and received.transport is not None:
                received.transport.abort()

        watch.wake = wake
        response = web.StreamResponse(headers={"Content-Type": stream.content_type, "Cache-Control": "no-cache"})
        end = loop.time() + stream.timeout_seconds
        last = end - _LAST_BOOKMARK_SECONDS
        due = min(last, loop.time() + BOOKMARK_SECONDS) if stream.bookmarks else end
        timer = loop.call_at(max(due, 0.0), woken.set)
        try:
            await response.prepare(received)
            while not watch.overflowed:
                woken.clear()
                lines = watch.take()
                if lines:
                    await response.write(b"".join(lines))
                    continue
                time = loop.time()
                if watch.closed or time >= end:
                    await response.write_eof()
                    break
                if time >= due:
                    if stream.bookmarks:
                        await response.write(self.server.reader.bookmark(watch.kind))
                    due = end if time >= last else min(last, time + BOOKMARK_SECONDS)
                    timer = loop.call_at(due, woken.set)
                await woken.wait()
        except (ClientConnectionResetError, ConnectionError):
            pass
        finally:
            timer.cancel()
            watch.wake = None
            watch.close()
        return response

    # Fault switches -----------------------------------------------------------------------------------------------

    async def _administer(self, action: str, request: Request) -> Response:
        """Faults (GET, PUT a list of rules, DELETE), and by POST: cut-watches, compact, stale, snapshot, restart."""
        try:
            return self._switched(action, request)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            return refusal(ApiError(400, "BadRequest", f"{action}: {error}"))

    def _switched(self, action: str, request: Request) -> Response:
        match request.method, action:
            case "GET", "faults":
                return Response(200, self.faults.encoded())
            case "PUT" | "POST", "faults":
                self.faults.replace(request.body)
                return Response(200, self.faults.encoded())
            case "DELETE", "faults":
                self.faults.rules = ()
                self.server.reader.stale_version = None
                return Response(200, b"[]")
            case "POST", "cut-watches":
                return answer(200, {"cut": self._cut_watches(request.query.get("resource", ""))})
            case "POST", "compact":
                self.server.store.forget_history()
                return answer(200, {"compacted": self.server.store.version})
            case "POST", "stale":
                behind = int(request.query.get("versions", "0"))
                version = max(self.server.store.version - behind, 0) if behind else None
                self.server.reader.stale_version = version
                return answer(200, {"stale": version})
            case "POST", "snapshot":
                return Response(200, b"".join(snapshot.lines(self.server)), "application/x-ndjson")
            case "POST", "restart":
                task = asyncio.get_running_loop().create_task(self._restart(float(request.query.get("seconds", "0"))))
                self._restarts.add(task)
                task.add_done_callback(self._restarts.discard)
                return answer(202, {"restarting": True})
            case _:
                return refusal(ApiError(404, "NotFound", f"no fault switch answers {request.method} {action}"))

    def _cut_watches(self, resource: str) -> int:
        """End the watches of a resource (`pods`, `deployments.apps`), or all; how many there were."""
        watches = [
            watch
            for collection in self.server.store.collections()
            for watch in collection.watches
            if not resource or collection.kind.collection == resource
        ]
        for watch in watches:
            watch.close()
        return len(watches)

    async def _restart(self, seconds: float) -> None:
        """Go down, losing connections and history, and come back after `seconds` with the objects kept."""
        await asyncio.sleep(0.05)
        kept = b"".join(snapshot.lines(self.server))
        await self.stop()
        await asyncio.sleep(seconds)
        server = self._server_of()
        snapshot.restore(server, kept)
        self.server = server
        await self.start(*self._address)


def _request_factory(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=BODY_LIMIT_BYTES
    )


def _plain(response: Response) -> web.Response:
    headers = {"Content-Type": response.content_type, "Cache-Control": "no-cache, private", **response.headers}
    return web.Response(status=response.status, body=response.body, headers=headers)
