"""`python -m workers.push`: takes load that applications report over HTTP (source `push`). Run as many as you like.

    POST /v1/namespaces/NAMESPACE/podautoscalers/NAME/load   {"value": 3.5, "reporter": "web-7f"}
    POST /v1/load    [{"pa": "NAMESPACE/NAME", "value": 3.5, "source": "", "reporter": "", "at_ms": 0}, …]

202 means noted; the next tick takes it over. 400 names what is wrong with which item, and nothing of it is noted.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from config.settings import Settings
from tasks.context import make_store
from wainwright.batching.store import Store
from wainwright.errors import StoreUnavailable
from wainwright.podscaling.inbox import Push, PushRefused, push
from workers.process import end_with_parent, set_up_logging, settings_or_exit, show_life

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 1 << 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_application(store: Store, token: str) -> web.Application:
    """token: empty to let anyone push."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if token and request.path != "/healthz" and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return web.json_response({"error": "Authorization: Bearer TOKEN is missing or wrong"}, status=401)
        return await handler(request)

    async def one(request: web.Request) -> web.StreamResponse:
        pa = f"{request.match_info['namespace']}/{request.match_info['name']}"

        def parse(body: bytes) -> list[Push]:
            return [msgspec.structs.replace(msgspec.json.decode(body, type=Push), pa=pa)]

        return await noted(request, parse)

    async def many(request: web.Request) -> web.StreamResponse:
        return await noted(request, lambda body: msgspec.json.decode(body, type=list[Push]))

    async def noted(request: web.Request, parse: Callable[[bytes], Sequence[Push]]) -> web.StreamResponse:
        try:
            pushes = parse(await request.read())
            await asyncio.to_thread(push, store, pushes)
        except (msgspec.MsgspecError, UnicodeDecodeError, PushRefused) as error:
            return web.json_response({"error": str(error)}, status=400)
        except StoreUnavailable as error:
            return web.json_response({"error": str(error)}, status=503, headers={"Retry-After": "1"})
        return web.json_response({"noted": len(pushes)}, status=202)

    async def healthy(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    application = web.Application(client_max_size=MOST_BYTES, middlewares=[guarded])
    application.router.add_post("/v1/namespaces/{namespace}/podautoscalers/{name}/load", one)
    application.router.add_post("/v1/load", many)
    application.router.add_get("/healthz", healthy)
    return application


async def serve(settings: Settings, store: Store) -> None:
    """Until SIGTERM or SIGINT. Raises OSError when the port is taken."""
    runner = web.AppRunner(make_application(store, settings.autoscaling.push_token), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, settings.autoscaling.push_listen, settings.autoscaling.push_port)
    await site.start()
    addresses: Any = runner.addresses
    logger.info("action=push_listens address=%s:%d", *addresses[0][:2])
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
    await runner.cleanup()


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m workers.push", description=__doc__.splitlines()[0])
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started us is gone")
    arguments = parser.parse_args(argv)
    settings = settings_or_exit()
    set_up_logging(settings)
    if arguments.exit_with_parent:
        end_with_parent()
    store = make_store(settings)
    show_life(store, "push")
    asyncio.run(serve(settings, store))
    return 0


if __name__ == "__main__":
    sys.exit(main())
