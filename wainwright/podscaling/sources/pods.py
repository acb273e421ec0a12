"""`pods`: the load of ready pods from their metrics endpoints, sampled as Knative's scraper samples.

Pods that are ready for a stable window are preferred (young ones report low); one that fails is replaced by the next;
when they run out, there is no sample at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from wainwright.api.podautoscalers import PodsSource
from wainwright.autoscaling.annotations import Metric
from wainwright.autoscaling.sample_size import sample_size
from wainwright.podscaling.sources.exposition import read_metrics
from wainwright.podscaling.sources.http import Http
from wainwright.podscaling.sources.reading import Reading, SourceError, load

QUEUE_PROXY: Final = {
    Metric.CONCURRENCY: ("queue_average_concurrent_requests", "queue_average_proxied_concurrent_requests"),
    Metric.RPS: ("queue_requests_per_second", "queue_proxied_operations_per_second"),
}
"""What Knative's queue-proxy reports, and the part of it that its activator has reported already."""
OLDEST_COUNT_SECONDS: Final = 15.0
"""A counter's increase since an older reading says nothing about now."""


class PodAddress(NamedTuple):
    """A ready pod. created: None when unknown."""

    name: str
    ip: str
    created: datetime | None


class Counters:
    """Last readings of counters, in this process: a rate needs two."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[float, float]] = {}

    def rate(self, autoscaler: str, pod: str, value: float, at_seconds: float) -> float:
        """Increase per second since the last reading. Raises SourceError when there is none, or none that is recent.

        A counter that fell began anew with its pod: what it holds is the increase.
        """
        key = (autoscaler, pod)
        before = self._last.get(key)
        self._last[key] = (at_seconds, value)
        if len(self._last) > 200_000:
            self._last = {k: v for k, v in self._last.items() if at_seconds - v[0] < OLDEST_COUNT_SECONDS}
        if before is None or not 0 < at_seconds - before[0] < OLDEST_COUNT_SECONDS:
            raise SourceError("a counter says something from its second reading on")
        increase = value - before[1] if value >= before[1] else value
        return increase / (at_seconds - before[0])


class PodScraper:
    """Made and used on one event loop."""

    def __init__(self, http: Http, counters: Counters, *, shuffle: random.Random | None = None) -> None:
        self._http = http
        self._counters = counters
        self._random = shuffle or random.Random()

    async def read(
        self,
        autoscaler: str,
        source: PodsSource,
        metric: Metric,
        pods: Sequence[PodAddress],
        *,
        window: timedelta,
        now: datetime,
        at_seconds: float,
    ) -> Reading | None:
        """Load of all pods, from a sample of them; None: there are none to ask. Raises SourceError.

        at_seconds: monotonic, for counters.
        """
        wanted = sample_size(len(pods))
        if not wanted:
            return None
        order = self._order(pods, wanted, window, now)
        asked, backup = order[:wanted], order[wanted:]
        loads: list[float] = []
        problem = ""
        while asked:
            answers = await asyncio.gather(
                *(self.one(autoscaler, source, metric, pod, at_seconds) for pod in asked), return_exceptions=True
            )
            loads += [answer for answer in answers if isinstance(answer, float)]
            for pod, answer in zip(asked, answers, strict=True):
                if isinstance(answer, SourceError):
                    problem = f"pod {pod.name}: {answer}"
                elif isinstance(answer, BaseException):
                    raise answer
            lacking = wanted - len(loads)
            asked, backup = backup[:lacking], backup[lacking:]
        if len(loads) < wanted:
            raise SourceError(f"{len(loads)} of the {wanted} pods needed answered; {problem}")
        return Reading(load(sum(loads) / wanted * len(pods)))

    async def one(
        self, autoscaler: str, source: PodsSource, metric: Metric, pod: PodAddress, at_seconds: float
    ) -> float:
        """One pod's load. Raises SourceError."""
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        text = await self._http.get(f"http://{host}:{source.port}/{source.path.lstrip('/')}")
        whole, proxied = (source.metric, "") if source.metric else QUEUE_PROXY[metric]
        try:
            found = read_metrics(text, [name for name in (whole, proxied) if name])
        except ValueError as error:
            raise SourceError(f"{whole} holds no number") from error
        if whole not in found:
            raise SourceError(f"there is no {whole} in what it answers")
        value = load(found[whole]) - load(found.get(proxied, 0.0))
        if source.kind == "counter":
            value = self._counters.rate(autoscaler, pod.name, value, at_seconds)
        return max(0.0, value)

    def _order(self, pods: Sequence[PodAddress], wanted: int, window: timedelta, now: datetime) -> list[PodAddress]:
        """Old ones in random order, then young ones; where all are asked, the order is as given."""
        if wanted == len(pods):
            return list(pods)
        old = [pod for pod in pods if pod.created is not None and now - pod.created >= window]
        young = [pod for pod in pods if pod.created is None or now - pod.created < window]
        self._random.shuffle(old)
        self._random.shuffle(young)
        return old + young
