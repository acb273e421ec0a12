"""Time-weighted concurrency out of requests that come and go, as an application or proxy would report it."""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec


class RequestEvent(enum.StrEnum):
    """Proxied requests came through something that reports them too, so they are counted apart."""

    IN = "in"
    OUT = "out"
    PROXIED_IN = "proxied_in"
    PROXIED_OUT = "proxied_out"


class RequestReport(msgspec.Struct, frozen=True, kw_only=True):
    """One reporting period. Averages are requests in flight over its seconds; counts are requests that came in."""

    average_concurrency: float
    average_proxied_concurrency: float
    request_count: int
    proxied_request_count: int


class RequestStats(msgspec.Struct, frozen=True, kw_only=True):
    """since: the last instant that was taken into account. concurrency, proxied: in flight now; the rest sums up the
    running period.
    """

    since: datetime
    concurrency: float = 0.0
    proxied: float = 0.0
    seconds: float = 0.0
    concurrency_seconds: float = 0.0
    proxied_seconds: float = 0.0
    request_count: int = 0
    proxied_request_count: int = 0

    def _until(self, now: datetime) -> RequestStats:
        """With what was in flight integrated up to now; a step that is not forward in time adds nothing."""
        if now <= self.since:
            return self
        step = (now - self.since).total_seconds()
        return msgspec.structs.replace(
            self,
            since=now,
            seconds=self.seconds + step,
            concurrency_seconds=self.concurrency_seconds + self.concurrency * step,
            proxied_seconds=self.proxied_seconds + self.proxied * step,
        )

    def handle(self, event: RequestEvent, now: datetime) -> RequestStats:
        stats = self._until(now)
        came = event in (RequestEvent.IN, RequestEvent.PROXIED_IN)
        through_proxy = event in (RequestEvent.PROXIED_IN, RequestEvent.PROXIED_OUT)
        step = 1 if came else -1
        return msgspec.structs.replace(
            stats,
            concurrency=stats.concurrency + step,
            proxied=stats.proxied + (step if through_proxy else 0),
            request_count=stats.request_count + (1 if came else 0),
            proxied_request_count=stats.proxied_request_count + (1 if came and through_proxy else 0),
        )

    def report(self, now: datetime) -> tuple[RequestReport, RequestStats]:
        """The period up to now, and the stats with which the next one starts: what is in flight stays in flight."""
        stats = self._until(now)
        seconds = stats.seconds
        report = RequestReport(
            average_concurrency=stats.concurrency_seconds / seconds if seconds > 0 else 0.0,
            average_proxied_concurrency=stats.proxied_seconds / seconds if seconds > 0 else 0.0,
            request_count=stats.request_count,
            proxied_request_count=stats.proxied_request_count,
        )
        return report, RequestStats(since=stats.since, concurrency=stats.concurrency, proxied=stats.proxied)
