"""HTTP for sources that are asked over it: bounded in time and size, thousands side by side on one thread."""

from __future__ import annotations

from typing import Final

import aiohttp

from wainwright.podscaling.sources.reading import READ_SECONDS, SourceError

MOST_BYTES: Final = 1 << 20
"""An answer that is larger is refused: nobody's metrics need more."""
CONNECTIONS: Final = 512


class Http:
    """Made and used on one event loop."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=15.0, ttl_dns_cache=30),
            timeout=aiohttp.ClientTimeout(total=READ_SECONDS),
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "wainwright"},
        )

    async def get(self, url: str, parameters: dict[str, str] | None = None) -> bytes:
        """The body of a 200. Raises SourceError."""
        try:
            async with self._session.get(url, params=parameters, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise SourceError(f"answered {answer.status}")
                body = b""
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        answer.close()
                        raise SourceError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
                return body
        except TimeoutError as error:
            raise SourceError(f"no answer within {READ_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SourceError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        await self._session.close()
