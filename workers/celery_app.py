"""The Celery application: what workers, beats and senders of hints share."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery

from config.celery import celery_config
from config.settings import Settings

TASK_MODULES = {
    "window": "tasks.batching",
    "solve": "tasks.solving",
    "launch": "tasks.launching",
    "collect": "tasks.upkeep",
    "tick": "tasks.upkeep",
}
"""Which module holds a queue's tasks; a worker loads only what it serves."""


def make_app(settings: Settings, *, queues: Sequence[str] = ()) -> Celery:
    """The application for these settings, with the tasks of these queues; who only sends needs none."""
    app = Celery("wainwright", set_as_current=True)
    app.conf.update(celery_config(settings))
    app.conf.imports = tuple(sorted({TASK_MODULES[queue] for queue in queues}))
    app.set_default()
    return app
