"""The simulated cloud as an HTTP service.

JSON throughout; times are RFC 3339 with zone, amounts whole units (cpu: milli-CPU).

| request | answer |
|---|---|
| `GET /healthz` | `ok` |
| `GET /v1/catalog` | the catalog; `ETag`, `If-None-Match` → 304 |
| `PUT /v1/catalog` | replaces it by a `packing-catalog/v1` document, until the service ends |
| `POST /v1/instances` | `{"request": LaunchRequest, "boot_seconds"?}`: 201 with the instance, 200 if it was there |
| `GET /v1/instances` | `{"version", "full", "instances"}`, terminated ones for five minutes; see below |
| `GET /v1/instances/ID` | the instance; 404 once terminated |
| `DELETE /v1/instances/ID` | 202: termination began, or is under way; 404 once terminated |
| `POST /v1/instances/ID/interrupt` | it is terminated at once, behind its owner's back |
| `GET /v1/find?token=T` | the instance ever launched under the token, terminated or not; 404 |
| `GET /v1/launches` | every launch ever made: `{"launches", "by_token", "by_claim", "doubles"}`, see `state` |
| `GET`, `PUT`, `DELETE /v1/faults` | what goes wrong, see `faults` |

Anything else than success: `{"error", "message", …}`, where error is a class name of wainwright.cloud.errors.

**Following the instances** (what a kubelet needs). An instance:

    {"id": "i-0f…", "provider_id": "simulated:///simulated-1a/i-0f…", "token": "…", "cluster": "…", "node_claim": "…",
     "node_pool": "…", "instance_type": "general-4-amd64", "zone": "simulated-1a", "capacity_type": "spot",
     "price": 0.0576, "state": "pending" | "running" | "terminating" | "terminated",
     "launched_at": "2026-01-01T00:00:00Z", "node_name": "default-x7k2p", "image_id": "simulated",
     "capacity": {"cpu": 4000, "memory": 15891169280, "pods": 64, …}, "allocatable": {…},
     "labels": {"node.kubernetes.io/instance-type": "general-4-amd64", …}, "boots_at": "2026-01-01T00:00:02Z"}

Fields at their default are left out: `boots_at` is missing for one that never boots; `node_name` is always there.
`GET /v1/instances?since=VERSION&wait=SECONDS` answers with what changed after that version: at once if something did,
else as soon as something does, at the latest after `wait` (at most 30) with 304. `full: true` means that this is
everything, forget what is not in it (first call, service restarted, version too old). `If-None-Match: "VERSION"` does
the same for the whole list. An instance becomes `running` at `boots_at`, by the service's own clock. `cluster=NAME`
leaves other clusters' instances out.

**When a launch happens.** A hanging one waits first; then, in one step, its date is checked, the launch is written down
and takes effect; then the launch delay passes; then the answer is sent. So nobody who asks with `find` later than a
request's date allows can miss what it launched.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from wainwright.clock import Clock
from wainwright.cloud.catalog import CatalogError, parse_packing_catalog
from wainwright.cloud.errors import CloudError, CloudUnavailable, InstanceNotFound, RequestRefused, Throttled
from wainwright.cloud.port import Instance
from wainwright.cloud.simulated.faults import FaultBoard, Faults, Operation
from wainwright.cloud.simulated.journal import Journal
from wainwright.cloud.simulated.state import CloudState, Event, Launched
from wainwright.cloud.simulated.wire import InstanceList, LaunchCall, answer_of

LONGEST_WAIT_SECONDS: Final = 30.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: until a launch is answered, from then until the kubelet reports, from a deletion until it is gone."""

    launch: float = 0.2
    boot: float = 2.0
    terminate: float = 0.5


class SimulatedCloud:
    """The service: one state, one journal, on one event loop, so that each change is one step."""

    def __init__(self, state: CloudState, journal: Journal, delays: Delays, clock: Clock) -> None:
        self._state = state
        self._journal = journal
        self._delays = delays
        self._clock = clock
        self._board = FaultBoard()
        self._epoch = uuid.uuid4().hex[:8]
        """Versions of another life of the service mean nothing."""
        self._change = asyncio.Event()
        state.advance(clock.now())

    def application(self) -> web.Application:
        """The routes, to be served by whoever calls."""
        app = web.Application(middlewares=[self._say_errors], client_max_size=64 * 2**20)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/v1/catalog", self._get_catalog)
        app.router.add_put("/v1/catalog", self._put_catalog)
        app.router.add_post("/v1/instances", self._launch)
        app.router.add_get("/v1/instances", self._list)
        app.router.add_get("/v1/instances/{id}", self._get)
        app.router.add_delete("/v1/instances/{id}", self._terminate)
        app.router.add_post("/v1/instances/{id}/interrupt", self._interrupt)
        app.router.add_get("/v1/find", self._find)
        app.router.add_get("/v1/launches", self._launches)
        app.router.add_get("/v1/faults", self._get_faults)
        app.router.add_put("/v1/faults", self._put_faults)
        app.router.add_delete("/v1/faults", self._delete_faults)
        return app

    @web.middleware
    async def _say_errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except CloudError as error:
            status, answer = answer_of(error)
            headers = {"Retry-After": f"{answer.retry_after_seconds:.0f}"} if answer.retry_after_seconds else None
            return _json(answer, status=status, headers=headers)
        except msgspec.DecodeError as error:
            status, answer = answer_of(RequestRefused("InvalidRequest", str(error)))
            return _json(answer, status=HTTPStatus.BAD_REQUEST)

    def _advance(self) -> datetime:
        """Let what is due happen; the instant that the rest of this step sees."""
        now = self._clock.now()
        before = self._state.revision
        self._state.advance(now)
        if self._state.revision != before:
            self._tell_change()
        return now

    def _do(self, event: Event) -> None:
        self._journal.append(event)
        self._state.apply(event)
        self._tell_change()

    def _tell_change(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _begin(self, operation: Operation) -> None:
        """Meet the faults that come before anything is done."""
        if (seconds := self._board.throttled_for(operation, self._clock.now())) > 0:
            raise Throttled(round(seconds, 3))
        if (seconds := self._board.hang_seconds(operation)) > 0:
            await asyncio.sleep(seconds)
        if self._board.fails(operation):
            raise CloudUnavailable("internal error (injected)")

    def _answer(self, request: web.Request, operation: Operation, response: web.Response) -> web.Response:
        """The response, or a closed connection where its loss was asked for."""
        if self._board.loses_answer(operation) and request.transport is not None:
            request.transport.abort()
        return response

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _get_catalog(self, request: web.Request) -> web.Response:
        await self._begin(Operation.CATALOG)
        catalog = self._state.catalog
        etag = f'"{catalog.version}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
        return self._answer(request, Operation.CATALOG, _json(catalog, headers={"ETag": etag}))

    async def _put_catalog(self, request: web.Request) -> web.Response:
        try:
            catalog = parse_packing_catalog(await request.read(), "the catalog")
        except CatalogError as error:
            raise RequestRefused("InvalidCatalog", str(error)) from error
        self._state.offer(catalog)
        return _json({"version": catalog.version, "instance_types": len(catalog.instance_types)})

    async def _launch(self, request: web.Request) -> web.Response:
        call = msgspec.json.decode(await request.read(), type=LaunchCall)
        await self._begin(Operation.LAUNCH)
        if (refusal := self._board.refusal(call.request.node_pool)) is not None:
            raise RequestRefused(refusal.reason, refusal.message)
        # From here to the event's effect nothing may wait: date, decision and record belong together.
        now = self._advance()
        boot_seconds = self._delays.boot if call.boot_seconds is None else call.boot_seconds
        sold_out = tuple(fault.pattern for fault in self._board.faults.sold_out)
        boots_at = now + timedelta(seconds=self._delays.launch + boot_seconds)
        outcome = self._state.launch(call.request, now=now, boots_at=boots_at, sold_out=sold_out)
        if isinstance(outcome, Instance):
            return self._answer(request, Operation.LAUNCH, _json(outcome))
        if not self._board.boots():
            outcome = Launched(
                instance=msgspec.structs.replace(outcome.instance, boots_at=None), request=outcome.request
            )
        self._do(outcome)
        await asyncio.sleep(self._delays.launch)
        return self._answer(request, Operation.LAUNCH, _json(outcome.instance, status=HTTPStatus.CREATED))

    async def _list(self, request: web.Request) -> web.Response:
        await self._begin(Operation.LIST)
        query = request.query
        since, cluster = query.get("since", ""), query.get("cluster", "")
        seen = since or request.headers.get("If-None-Match", "").strip('"')
        await self._wait_for_change(seen, _seconds(query.get("wait", "0")))
        version = self._version()
        headers = {"ETag": f'"{version}"'}
        if seen == version:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        changed_since = self._revision_of(since)
        instances = self._state.instances(changed_since=changed_since)
        if cluster:
            instances = [instance for instance in instances if instance.cluster == cluster]
        body = InstanceList(version=version, full=changed_since == 0, instances=tuple(instances))
        return self._answer(request, Operation.LIST, _json(body, headers=headers))

    async def _wait_for_change(self, seen: str, wait_seconds: float) -> None:
        self._advance()
        until = self._clock.monotonic_seconds() + wait_seconds
        while self._version() == seen:
            left = until - self._clock.monotonic_seconds()
            if left <= 0:
                return
            if (due := self._state.next_due) is not None:
                left = min(left, max(0.001, (due - self._clock.now()).total_seconds()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), left)
            self._advance()

    def _version(self) -> str:
        return f"{self._epoch}-{self._state.revision}"

    def _revision_of(self, version: str) -> int:
        """The revision that the caller has seen; 0 when it must read everything."""
        epoch, _, text = version.partition("-")
        if epoch != self._epoch or not text.isdecimal():
            return 0
        revision = int(text)
        return revision if self._state.forgotten_revision <= revision <= self._state.revision else 0

    async def _get(self, request: web.Request) -> web.Response:
        await self._begin(Operation.GET)
        self._advance()
        return self._answer(request, Operation.GET, _json(self._state.get(request.match_info["id"])))

    async def _find(self, request: web.Request) -> web.Response:
        await self._begin(Operation.FIND)
        self._advance()
        token = request.query.get("token", "")
        instance = self._state.find(token)
        if instance is None:
            raise InstanceNotFound(f"nothing was launched under token {token}")
        return self._answer(request, Operation.FIND, _json(instance))

    async def _terminate(self, request: web.Request) -> web.Response:
        await self._begin(Operation.TERMINATE)
        now = self._advance()
        identity = request.match_info["id"]
        delay = timedelta(seconds=self._delays.terminate)
        if (event := self._state.terminate(identity, now=now, delay=delay)) is not None:
            self._do(event)
        response = _json(self._state.get(identity), status=HTTPStatus.ACCEPTED)
        return self._answer(request, Operation.TERMINATE, response)

    async def _interrupt(self, request: web.Request) -> web.Response:
        now = self._advance()
        identity = request.match_info["id"]
        event = self._state.terminate(identity, now=now, delay=timedelta(0), cause="interrupted")
        if event is not None:
            self._do(event)
            self._advance()
        return _json({"id": identity})

    async def _launches(self, _request: web.Request) -> web.Response:
        return _json(self._state.record())

    async def _get_faults(self, _request: web.Request) -> web.Response:
        return _json(self._board.faults)

    async def _put_faults(self, request: web.Request) -> web.Response:
        self._board.replace(msgspec.json.decode(await request.read(), type=Faults))
        return _json(self._board.faults)

    async def _delete_faults(self, _request: web.Request) -> web.Response:
        self._board.replace(Faults())
        return _json(self._board.faults)


def _seconds(text: str) -> float:
    """A waiting time from a query, 0 to LONGEST_WAIT_SECONDS. Raises RequestRefused."""
    try:
        seconds = float(text)
    except ValueError as error:
        raise RequestRefused("InvalidRequest", f"wait={text!r} is not a number of seconds") from error
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS) if seconds == seconds else 0.0  # noqa: PLR0124 - NaN


def _json(body: object, *, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json")
