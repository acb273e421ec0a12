"""Collects load from sources, all side by side on one event loop; one that hangs holds up none of the others.

A source that is still being asked is not asked again. What answers after its collection has ended comes with the next
one, for the second in which it was asked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from wainwright.api.podautoscalers import PODS, PROMETHEUS, PUSH, MetricSource, PodsSource
from wainwright.clock import Clock
from wainwright.podscaling.autoscalers import Autoscaler
from wainwright.podscaling.connections import Connections
from wainwright.podscaling.samples import Sample
from wainwright.podscaling.sources.brokers import Brokers, Connect, connect
from wainwright.podscaling.sources.http import Http
from wainwright.podscaling.sources.pods import Counters, PodAddress, PodScraper
from wainwright.podscaling.sources.prometheus import read_prometheus
from wainwright.podscaling.sources.reading import READ_SECONDS, Reading, SourceError

logger = logging.getLogger(__name__)
T = TypeVar("T")

GRACE_SECONDS = 1.0


class Job(NamedTuple):
    """One thing to ask. identity: not asked again while it is being asked. ask: answers the samples."""

    identity: tuple[str, ...]
    ask: Callable[[], Coroutine[Any, Any, list[Sample]]]


class Collector:
    """Thread-safe; its event loop runs in a thread of its own, which starts with the first collection."""

    def __init__(self, connections: Connections, clock: Clock, *, connect: Connect = connect) -> None:
        self._connections = connections
        self._clock = clock
        self._connect = connect
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._under_way: set[tuple[str, ...]] = set()
        self._late: list[Sample] = []
        self._http: Http | None = None
        self._brokers: Brokers | None = None
        self._counters = Counters()

    def collect(
        self,
        autoscalers: Sequence[Autoscaler],
        pods: Mapping[str, Sequence[PodAddress]],
        now: datetime,
        *,
        seconds: float,
    ) -> list[Sample]:
        """Samples that came within `seconds`, and late ones of earlier collections.

        pods: ready pods by autoscaler, of those with a source `pods`; one that is left out cannot be told.
        """
        second = int(now.timestamp())
        jobs = list(self._jobs(autoscalers, pods, now, second))
        return self._run(self._collect(jobs, seconds), seconds + GRACE_SECONDS)

    def pod_loads(self, one: Autoscaler, pods: Sequence[PodAddress]) -> dict[str, float]:
        """Load by pod name, of all pods that can be asked; for pods and celery sources. Never raises."""
        try:
            return self._run(self._pod_loads(one, pods), READ_SECONDS + GRACE_SECONDS)
        except TimeoutError:
            return {}

    def close(self) -> None:
        """Ends the loop; nothing may be collected any more."""
        if self._loop is not None and self._thread is not None:
            self._run(self._close(), GRACE_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(GRACE_SECONDS)
            self._loop.close()

    # Jobs -------------------------------------------------------------------------------------------------------------

    def _jobs(
        self,
        autoscalers: Sequence[Autoscaler],
        pods: Mapping[str, Sequence[PodAddress]],
        now: datetime,
        second: int,
    ) -> Iterable[Job]:
        by_url: defaultdict[str, list[tuple[str, str, MetricSource]]] = defaultdict(list)
        broken: list[Sample] = []
        for one in autoscalers:
            for title, source in one.sources.items():
                if source.type == PUSH:
                    continue
                if source.type == PODS:
                    addresses = pods.get(one.key)
                    if addresses is not None:
                        yield self._pods_job(one, title, source.pods or PodsSource(), addresses, now, second)
                elif source.type == PROMETHEUS:
                    yield self._prometheus_job(one.key, title, source, second)
                else:
                    try:
                        by_url[self._connections.url(source)].append((one.key, title, source))
                    except SourceError as error:
                        broken.append(Sample(one.key, title, second, None, str(error)))
        for url, wanted in by_url.items():
            yield self._broker_job(url, wanted, second)
        if broken:

            async def tell() -> list[Sample]:
                return broken

            yield Job(("broken", str(second)), tell)

    def _broker_job(self, url: str, wanted: list[tuple[str, str, MetricSource]], second: int) -> Job:
        async def ask() -> list[Sample]:
            try:
                answers = await self._broker_client().read(url, [source for _, _, source in wanted])
            except SourceError as error:
                return [Sample(key, title, second, None, str(error)) for key, title, _ in wanted]
            return [
                _sample(key, title, second, answer) for (key, title, _), answer in zip(wanted, answers, strict=True)
            ]

        return Job(("redis", url, str(wanted[0][:2])), ask)

    def _prometheus_job(self, key: str, title: str, source: MetricSource, second: int) -> Job:
        async def ask() -> list[Sample]:
            assert source.prometheus is not None
            return [await _asked(key, title, second, read_prometheus(self._http_client(), source.prometheus))]

        return Job(("prometheus", key, title), ask)

    def _pods_job(
        self,
        one: Autoscaler,
        title: str,
        source: PodsSource,
        pods: Sequence[PodAddress],
        now: datetime,
        second: int,
    ) -> Job:
        async def ask() -> list[Sample]:
            scraper = PodScraper(self._http_client(), self._counters)
            reading = scraper.read(
                one.key,
                source,
                one.spec.metric,
                pods,
                window=timedelta(seconds=one.spec.stable_window_s),
                now=now,
                at_seconds=self._clock.monotonic_seconds(),
            )
            return [await _asked(one.key, title, second, reading)] if pods else []

        return Job(("pods", one.key, title), ask if pods else _nothing)

    async def _pod_loads(self, one: Autoscaler, pods: Sequence[PodAddress]) -> dict[str, float]:
        loads: dict[str, float] = {}
        for source in one.sources.values():
            if source.type == PODS:
                scraper = PodScraper(self._http_client(), self._counters)
                answers = await asyncio.gather(
                    *(
                        scraper.one(one.key, source.pods or PodsSource(), one.spec.metric, pod, self._now())
                        for pod in pods
                    ),
                    return_exceptions=True,
                )
                found = {
                    pod.name: answer for pod, answer in zip(pods, answers, strict=True) if isinstance(answer, float)
                }
            elif source.celery is not None:
                try:
                    url = self._connections.url(source)
                    published = await self._broker_client().worker_loads(url, source.celery)
                except SourceError:
                    continue
                found = {load.worker: load.busy for load in published}
            else:
                continue
            for name, value in found.items():
                loads[name] = loads.get(name, 0.0) + value
        return loads

    # The loop ---------------------------------------------------------------------------------------------------------

    async def _collect(self, jobs: Sequence[Job], seconds: float) -> list[Sample]:
        samples, self._late = self._late, []
        tasks = []
        for job in jobs:
            if job.identity not in self._under_way:
                self._under_way.add(job.identity)
                task = asyncio.ensure_future(self._one(job))
                tasks.append(task)
        if tasks:
            done, pending = await asyncio.wait(tasks, timeout=seconds)
            for task in done:
                samples += task.result()
            for task in pending:
                task.add_done_callback(lambda task: self._late.extend(task.result()))
        return samples

    async def _one(self, job: Job) -> list[Sample]:
        try:
            return await job.ask()
        except Exception:
            logger.exception("action=collect_failed what=%s", "/".join(job.identity[:2]))
            return []
        finally:
            self._under_way.discard(job.identity)

    def _http_client(self) -> Http:
        if self._http is None:
            self._http = Http()
        return self._http

    def _broker_client(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._connect)
        return self._brokers

    def _now(self) -> float:
        return self._clock.monotonic_seconds()

    async def _close(self) -> None:
        under_way = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        if self._brokers is not None:
            await self._brokers.close()

    def _run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Runs it on the loop, from any other thread. Raises TimeoutError."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="collector", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)


async def _nothing() -> list[Sample]:
    return []


async def _asked(key: str, title: str, second: int, reading: Awaitable[Reading | None]) -> Sample:
    try:
        answer = await reading
    except SourceError as error:
        return Sample(key, title, second, None, str(error))
    return _sample(key, title, second, answer or Reading(0.0))


def _sample(key: str, title: str, second: int, answer: Reading | SourceError) -> Sample:
    if isinstance(answer, SourceError):
        return Sample(key, title, second, None, str(answer))
    return Sample(key, title, second, answer.value, answer.message)
