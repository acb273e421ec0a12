"""`celery`, `redisStream`, `redisList`: queues on the users' Redis servers (the Store holds our own state).

All sources on one server are read together: the number of round trips does not grow with theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from wainwright.api.podautoscalers import CelerySource, MetricSource, RedisListSource, RedisStreamSource
from wainwright.podscaling.sources.reading import READ_SECONDS, Reading, SourceError, load

COUNTED: Final = "waiting, reserved and running tasks"
ONLY_LATE: Final = (
    "waiting, reserved and late-acknowledged running tasks; no worker publishes early-acknowledged running ones "
    "(wainwright.celery_load)"
)
FRESH_MS: Final = 5000
"""What a worker published longer ago is not counted: it is gone, or out of touch."""
MOST_UNACKED_READ: Final = 20_000
"""Reserved tasks that are looked at one by one; of more, the share of each queue is estimated."""
MOST_LAG_COUNTED: Final = 10_000

Connect = Callable[[str], Any]
"""Makes an asynchronous Redis client that answers bytes for a URL."""


def connect(url: str) -> Any:
    """A client that gives up in time and repeats nothing by itself."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=READ_SECONDS,
        socket_connect_timeout=READ_SECONDS,
        retry=Retry(NoBackoff(), 0),
        max_connections=4,
    )


class PodLoad(NamedTuple):
    """What one Celery worker has to do. worker: its host name."""

    worker: str
    busy: float


class Brokers:
    """Clients by URL. Made and used on one event loop."""

    def __init__(self, connect: Connect = connect) -> None:
        self._connect = connect
        self._clients: dict[str, Any] = {}
        self._celery = (resources.files("wainwright.podscaling.sources") / "celery_queues.lua").read_text()

    async def read(self, url: str, sources: Sequence[MetricSource]) -> list[Reading | SourceError]:
        """One answer per source. Raises SourceError when the server cannot be reached."""
        queues: dict[str, list[str]] = {}
        for source in sources:
            if source.celery is not None:
                names = queues.setdefault(source.celery.key_prefix, [])
                if source.celery.queue not in names:
                    names.append(source.celery.queue)
        pipe = self._client(url).pipeline(transaction=False)
        for prefix, names in queues.items():
            pipe.eval(self._celery, 0, prefix, FRESH_MS, MOST_UNACKED_READ, *names)
        for source in sources:
            if source.redis_list is not None:
                pipe.llen(source.redis_list.list)
            elif source.redis_stream is not None:
                pipe.xlen(source.redis_stream.stream)
                pipe.xinfo_groups(source.redis_stream.stream)
        answers = await self._bounded(pipe.execute(raise_on_error=False))
        by_queue = {
            (prefix, name): row if isinstance(answer, Exception) else answer[number]
            for (prefix, names), answer in zip(queues.items(), answers, strict=False)
            for number, name in enumerate(names)
            for row in [answer]
        }
        rest = list(answers[len(queues) :])
        readings: list[Reading | SourceError] = []
        for source in sources:
            try:
                readings.append(await self._reading(url, source, by_queue, rest))
            except SourceError as error:
                readings.append(error)
        return readings

    async def worker_loads(self, url: str, source: CelerySource) -> list[PodLoad]:
        """What each worker of the queue published last. Raises SourceError."""
        key = load_key(source.key_prefix, source.queue)
        held: Any = await self._bounded(self._client(url).hgetall(key))
        return [PodLoad(worker, busy) for worker, busy in busy_workers(held).items()]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    # Parts ------------------------------------------------------------------------------------------------------------

    def _client(self, url: str) -> Any:
        client = self._clients.get(url)
        if client is None:
            try:
                client = self._clients[url] = self._connect(url)
            except ValueError as error:
                raise SourceError(f"the URL is none: {error}") from error
        return client

    async def _bounded(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await call
        except TimeoutError as error:
            raise SourceError(f"no answer within {READ_SECONDS:g} s") from error
        except (RedisError, OSError) as error:
            raise SourceError(f"Redis: {error}") from error

    async def _reading(
        self, url: str, source: MetricSource, by_queue: Mapping[tuple[str, str], Any], rest: list[Any]
    ) -> Reading:
        if source.celery is not None:
            return _celery_reading(by_queue[source.celery.key_prefix, source.celery.queue])
        if source.redis_list is not None:
            return _list_reading(source.redis_list, rest.pop(0))
        if source.redis_stream is not None:
            length, groups = rest.pop(0), rest.pop(0)
            return await self._stream_reading(url, source.redis_stream, length, groups)
        raise SourceError(f"{source.type} is not read from Redis")

    async def _stream_reading(self, url: str, source: RedisStreamSource, length: Any, groups: Any) -> Reading:
        if isinstance(length, Exception):
            raise SourceError(f"Redis: {length}")
        if not length and isinstance(groups, ResponseError):
            return Reading(0.0, f"stream {source.stream} does not exist")
        if isinstance(groups, Exception):
            raise SourceError(f"Redis: {groups}")
        group = next((one for one in groups if _text(one["name"]) == source.group), None)
        if group is None:
            # It is made with its first consumer; until then everything in the stream waits for it.
            return Reading(load(float(length)), f"all entries: there is no group {source.group} yet")
        lag = group.get("lag")
        if lag is None:
            behind = "(" + _text(group["last-delivered-id"])
            call = self._client(url).xrange(source.stream, min=behind, count=MOST_LAG_COUNTED)
            lag = len(await self._bounded(call))
        return Reading(load(float(lag) + float(group["pending"])), "lag and pending entries")


def _celery_reading(row: Any) -> Reading:
    if isinstance(row, Exception):
        raise SourceError(f"Redis: {row}")
    waiting, unacked, running, workers = (int(number) for number in row)
    return Reading(load(float(waiting + unacked + running)), COUNTED if workers else ONLY_LATE)


def _list_reading(source: RedisListSource, answer: Any) -> Reading:
    if isinstance(answer, Exception):
        raise SourceError(f"Redis: {answer}")
    return Reading(load(float(answer)), f"length of {source.list}")


def load_key(key_prefix: str, queue: str) -> str:
    """The hash in which `wainwright.celery_load` publishes, in the broker: worker → `at_ms running busy`."""
    return f"{key_prefix}wainwright:celery-load:{queue}"


def busy_workers(held: Mapping[Any, Any]) -> dict[str, float]:
    """Tasks that each worker has in hand, by its host name (a pod's name, in a cluster)."""
    loads: dict[str, float] = {}
    for worker, text in held.items():
        parts = _text(text).split()
        if len(parts) == 3 and parts[2].isdigit():
            name = _text(worker).partition("@")[2] or _text(worker)
            loads[name] = loads.get(name, 0.0) + float(parts[2])
    return loads


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
