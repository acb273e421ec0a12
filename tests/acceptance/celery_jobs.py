"""A user's Celery application, as tests run it: `celery -A tests.acceptance.celery_jobs worker`."""

import os
import time

import redis
from celery import Celery

from wainwright import celery_load

QUEUE = "jobs"
KEY_PREFIX = "jobs-app:"
BROKER = os.environ.get("JOBS_BROKER", "")

app = Celery("jobs", broker=BROKER, set_as_current=False)
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"global_keyprefix": KEY_PREFIX, "visibility_timeout": 3600},
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
)
celery_load.install(app)


@app.task(name="jobs.work", bind=True)
def work(task, number, seconds):
    """Notes that it began, and that it ended; acknowledged early, as is Celery's default."""
    with redis.Redis.from_url(BROKER, decode_responses=True) as notes:
        notes.rpush("jobs-notes:begun", f"{number} {task.request.hostname.partition('@')[2]}")
        time.sleep(seconds)
        notes.rpush("jobs-notes:ended", number)
