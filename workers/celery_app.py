"""The Celery application: what workers, beats and senders of hints share."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery

from config.celery import celery_config
from config.settings import Settings

TASK_MODULES = {
    "window": ("tasks.batching",),
    "solve": ("tasks.solving",),
    "launch": ("tasks.launching",),
    "collect": ("tasks.upkeep", "tasks.autoscaling"),
    "tick": ("tasks.upkeep", "tasks.autoscaling"),
}
"""Which modules hold a queue's tasks; a worker loads only what it serves."""


def make_app(settings: Settings, *, queues: Sequence[str] = ()) -> Celery:
    """The application for these settings, with the tasks of these queues; who only sends needs none."""
    app = Celery("wainwright", set_as_current=True)
    app.conf.update(celery_config(settings))
    app.conf.imports = tuple(sorted({module for queue in queues for module in TASK_MODULES[queue]}))
    app.set_default()
    return app
