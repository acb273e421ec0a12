"""`prometheus`: an instant query that answers one number."""

from __future__ import annotations

from typing import Any

import msgspec

from wainwright.api.podautoscalers import PrometheusSource
from wainwright.podscaling.sources.http import Http
from wainwright.podscaling.sources.reading import Reading, SourceError, load


async def read_prometheus(http: Http, source: PrometheusSource) -> Reading:
    """Raises SourceError; an empty answer is "cannot tell", and so is one of several numbers."""
    body = await http.get(f"{source.url.rstrip('/')}/api/v1/query", {"query": source.query})
    return Reading(load(number_in(body)))


def number_in(body: bytes) -> float:
    """The one number of a query's answer. Raises SourceError."""
    try:
        answer: Any = msgspec.json.decode(body)
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise SourceError("the answer is not one of Prometheus' query API") from error
    try:
        if kind == "scalar":
            return float(result[1])
        if kind != "vector":
            raise SourceError(f"the query answers a {kind}, not a number")
        if not result:
            raise SourceError("the query answers nothing")
        if len(result) > 1:
            raise SourceError(f"the query answers {len(result)} series: make it one, as with sum(...)")
        return float(result[0]["value"][1])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SourceError("the query's answer holds no number") from error
