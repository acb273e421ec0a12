"""The Redis adapter's lowest layer: clients with time-outs, scripts, error translation. The only importer of redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import resources
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from wainwright.batching.windows import WindowPolicy
from wainwright.errors import StoreUnavailable
from wainwright.keys import Keys

Argument = str | int | float | bytes
T = TypeVar("T")

CALL_TIMEOUT_SECONDS = 3.0
"""Every call ends by then (design §2). A blocking read asks for its own client (`blocking`)."""
LONGEST_BLOCK_SECONDS = 5.0
"""A blocking read waits at most this long and looks again: nothing hangs on a dead connection."""


def script_text(name: str) -> str:
    """`lua/lib.lua` followed by `lua/NAME.lua`."""
    folder = resources.files("wainwright.batching") / "lua"
    return (folder / "lib.lua").read_text() + "\n" + (folder / f"{name}.lua").read_text()


@contextmanager
def translated() -> Iterator[None]:
    """Turns "not now" of redis-py (no connection, no answer in time, a replica, no memory left) into StoreUnavailable;
    its other errors are bugs of ours and pass.
    """
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, redis.OutOfMemoryError, OSError) as error:
        raise StoreUnavailable(f"Redis did not answer: {error}") from error


class Store:
    """One process's access to Redis. Thread-safe.

    Nothing is retried behind the caller's back (redis-py would double writes): scripts are idempotent and callers
    loop. `redis` answers str, `raw` bytes; use both inside `translated()`, or through `run` and `read`.
    """

    def __init__(self, client: redis.Redis, raw: redis.Redis, *, prefix: str, policy: WindowPolicy) -> None:
        self.redis = client
        self.raw = raw
        self.keys = Keys(prefix)
        self.policy = policy
        self._scripts: dict[str, Callable[..., Any]] = {}

    @classmethod
    def connect(cls, url: str, *, prefix: str = "wainwright:", policy: WindowPolicy | None = None) -> Store:
        """url: `redis://…`, `rediss://…` or `unix://…`."""

        def client(*, decode: bool) -> redis.Redis:
            return redis.Redis.from_url(
                url,
                decode_responses=decode,
                socket_timeout=CALL_TIMEOUT_SECONDS,
                socket_connect_timeout=CALL_TIMEOUT_SECONDS,
                socket_keepalive=True,
                health_check_interval=10,
                retry=Retry(NoBackoff(), 0),
            )

        return cls(client(decode=True), client(decode=False), prefix=prefix, policy=policy or WindowPolicy())

    def run(self, script: str, *arguments: Argument) -> Any:
        """Runs `lua/SCRIPT.lua` atomically and answers what it returns (str, int, list or None)."""
        with translated():
            return self._script(script)(args=(*self._header, *arguments))

    def queue(self, pipe: Any, script: str, *arguments: Argument) -> None:
        """Adds `lua/SCRIPT.lua` to a pipeline; its answer comes with the pipeline's others."""
        self._script(script)(args=(*self._header, *arguments), client=pipe)

    @property
    def _header(self) -> tuple[Argument, ...]:
        return (self.keys.prefix, self.policy.idle_ms, self.policy.max_ms, self.policy.max_items)

    def _script(self, name: str) -> Callable[..., Any]:
        call = self._scripts.get(name)
        if call is None:
            call = self._scripts[name] = self.redis.register_script(script_text(name))
        return call

    def read(self, call: Callable[[Any], T]) -> T:
        """Runs a read on the text client, errors translated."""
        with translated():
            return call(self.redis)

    def now_ms(self) -> int:
        """The Redis server's clock."""
        with translated():
            seconds, microseconds = self.redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    @cached_property
    def blocking(self) -> redis.Redis:
        """A client for blocking reads of at most LONGEST_BLOCK_SECONDS, whose time-out leaves room for the block."""
        pool = self.redis.connection_pool
        options = {**pool.connection_kwargs, "socket_timeout": LONGEST_BLOCK_SECONDS + CALL_TIMEOUT_SECONDS}
        return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **options))

    def close(self) -> None:
        self.redis.close()
        self.raw.close()
        if "blocking" in self.__dict__:
            self.blocking.close()
