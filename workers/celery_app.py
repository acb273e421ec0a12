"""The Celery application: what workers, beats and senders of hints share."""

from __future__ import annotations

from celery import Celery

from config.celery import celery_config
from config.settings import Settings

TASK_MODULES = ("tasks.batching", "tasks.solving", "tasks.launching", "tasks.upkeep")


def make_app(settings: Settings, *, tasks: bool = True) -> Celery:
    """The application for these settings. tasks: load the task modules (workers do, senders need not)."""
    app = Celery("wainwright", set_as_current=True)
    app.conf.update(celery_config(settings))
    if tasks:
        app.conf.imports = TASK_MODULES
    app.set_default()
    return app
