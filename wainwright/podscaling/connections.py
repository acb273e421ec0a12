"""Redis URLs of sources: written in the PodAutoscaler, named there and kept in a folder, or Wainwright's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from wainwright.api.podautoscalers import MetricSource
from wainwright.podscaling.sources.reading import SourceError

_NAME: Final = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")


class Connections:
    """own_url: Redis of Wainwright itself. folder: one file per connection, named after it, the URL its content (as a
    mounted Secret looks); None: there are none. Files are read anew each time, so a rotated Secret counts at once.
    """

    def __init__(self, own_url: str, folder: Path | None) -> None:
        self._own_url = own_url
        self._folder = folder

    def url(self, source: MetricSource) -> str:
        """Raises SourceError where the named connection is not there."""
        detail = source.celery or source.redis_stream or source.redis_list
        if detail is None:
            raise SourceError(f"{source.type} has no Redis connection")
        if detail.connection:
            return self._named(detail.connection)
        return detail.url or self._own_url

    def _named(self, name: str) -> str:
        if self._folder is None or not _NAME.match(name):
            raise SourceError(f"there is no connection {name}")
        try:
            return (self._folder / name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"there is no connection {name}") from error
