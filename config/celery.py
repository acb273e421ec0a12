"""How Celery runs here, as data. Facts behind each value: docs/decisions/0003-celery-as-engine.md.

A message is a hint: it may be lost or doubled. So acknowledgement is early, nothing is retried by Celery, there is no
result backend, no canvas, no ETA, and no priorities but queues.
"""

from __future__ import annotations

from typing import Any, Final

from config.settings import Settings

QUEUES: Final = ("window", "solve", "launch", "collect", "tick")
"""window, launch, collect, tick: thread pools (they wait). solve: prefork (CPU-bound, killable)."""

ROUTES: Final = {
    "wainwright.window": "window",
    "wainwright.solve": "solve",
    "wainwright.launch": "launch",
    "wainwright.nominate": "launch",
    "wainwright.collect": "collect",
    "wainwright.pushes": "collect",
    "wainwright.autoscaler_config": "collect",
    "wainwright.garbage": "collect",
    "wainwright.pools": "collect",
    "wainwright.sweep": "tick",
    "wainwright.retries": "tick",
    "wainwright.lifecycle": "tick",
    "wainwright.decide": "tick",
    "wainwright.poke": "tick",
    "wainwright.reconcile": "tick",
}
"""Task name → queue. `collect` is apart because what it asks may hang."""


def celery_config(settings: Settings) -> dict[str, Any]:
    """The Celery configuration of workers, beats and senders alike."""
    from kombu import Queue

    return {
        "broker_url": settings.broker_url,
        "task_ignore_result": True,
        "result_backend": None,
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_default_queue": "tick",
        "task_create_missing_queues": False,
        "task_queues": [Queue(name) for name in QUEUES],
        "task_routes": {task: {"queue": queue} for task, queue in ROUTES.items()},
        "task_protocol": 2,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": 3,
        "broker_transport_options": {
            "visibility_timeout": settings.redis.visibility_seconds,
            "health_check_interval": 5,
            "socket_timeout": 10,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "global_keyprefix": f"{settings.redis.prefix}celery:",
        },
        "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5},
        "task_soft_time_limit": None,
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_max_tasks_per_child": 500,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "beat_schedule": beat_schedule(settings),
        "beat_max_loop_interval": 0.5,
        "beat_sync_every": 0,
        "timezone": "UTC",
        "enable_utc": True,
    }


def beat_schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """What beat sends, and how often. A message that waited longer than its period is dropped (`expires`)."""
    beat = settings.beat
    periods = {
        "sweep": beat.sweep_seconds,
        "retries": beat.retries_seconds,
        "lifecycle": beat.lifecycle_seconds,
        "pools": beat.pools_seconds,
        "garbage": beat.garbage_seconds,
        "pushes": beat.pushes_seconds,
        "autoscaler_config": beat.autoscaler_config_seconds,
    }
    schedule = {name: _entry(name, seconds) for name, seconds in periods.items()}
    for name, seconds in (("collect", beat.collect_seconds), ("decide", beat.decide_seconds)):
        for shard in range(settings.autoscaling.shards):
            schedule[f"{name}:{shard}"] = {**_entry(name, seconds), "args": (shard,)}
    return schedule


def _entry(name: str, seconds: float) -> dict[str, Any]:
    return {"task": f"wainwright.{name}", "schedule": seconds, "options": {"expires": max(2.0, seconds)}}
