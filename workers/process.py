"""What every process does the same way: load settings, write logs, show a sign of life, end with its parent."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping

from config.settings import Settings, SettingsError, load_settings
from wainwright.batching.store import Store
from wainwright.errors import StoreUnavailable

SIGN_OF_LIFE_SECONDS = 5.0
SIGN_OF_LIFE_LASTS_MS = 15_000
PARENT_CHECK_SECONDS = 0.5

EXIT_USAGE = 2
"""Exit status for settings or arguments that cannot be used."""


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def settings_or_exit(defaults: Mapping[str, str] | None = None) -> Settings:
    """The settings of the environment; tells every fault on stderr and ends the process when there is one.

    defaults: variables that count where the environment has none of that name.
    """
    try:
        return load_settings({**(defaults or {}), **os.environ})
    except SettingsError as error:
        sys.stderr.write(f"wainwright: settings cannot be used\n{error}\n")
        raise SystemExit(EXIT_USAGE) from error


def set_up_logging(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if settings.log.format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log.level)
    for chatty in ("celery", "kombu", "amqp", "urllib3", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def tune_garbage_collector() -> None:
    """Our structs hold no cycles, and decoding makes many objects: looking for cycles would be most of the cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def show_life(store: Store, role: str) -> str:
    """Keeps `worker:<role>@<host>:<pid>` alive from a thread of its own; answers that name."""
    name = f"{role}@{socket.gethostname()}:{os.getpid()}"
    since_ms = int(time.time() * 1000)  # noqa: TID251 - for people only
    text = json.dumps({"role": role, "pid": os.getpid(), "host": socket.gethostname(), "since_ms": since_ms})

    def keep() -> None:
        while True:
            try:
                store.read(lambda redis: redis.set(store.keys.worker(name), text, px=SIGN_OF_LIFE_LASTS_MS))
            except StoreUnavailable:
                logging.getLogger(__name__).debug("action=sign_of_life_missed")
            time.sleep(SIGN_OF_LIFE_SECONDS)

    threading.Thread(target=keep, name="sign-of-life", daemon=True).start()
    return name


def end_with_parent(stop: Callable[[], None] | None = None) -> None:
    """Ends this process (by `stop`, else SIGTERM to itself) when the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        if stop is not None:
            stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
