"""Jobs: pods until enough have succeeded, or too many failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wainwright.sim.controllers.client import STRATEGIC_PATCH, ApiError
from wainwright.sim.controllers.context import Cluster, rfc3339
from wainwright.sim.controllers.objects import JOBS, Job, Pod
from wainwright.sim.controllers.queues import KeyQueue
from wainwright.sim.controllers.workloads.pods import BURST, PodWriter, deletion_rank, pod_from

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to do now. create: completion indexes of the pods to make (None where the job has none).

    outcome: the condition that ends the job.

    retry_seconds: when to look again (back-off after a failure, a deadline), None: when something changes.
    """

    create: tuple[int | None, ...] = ()
    delete: tuple[Pod, ...] = ()
    outcome: tuple[str, str, str] | None = None
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    retry_seconds: float | None = None


def finished_condition(job: Job) -> str:
    """`Complete` or `Failed` if the job is over, else empty."""
    return next((c.type for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), "")


def _index(pod: Pod) -> int:
    text = pod.metadata.annotations.get(INDEX_ANNOTATION, "")
    return int(text) if text.isdigit() else -1


def plan(job: Job, pods: Sequence[Pod], now: datetime) -> JobPlan:
    """What to do for a job that is not over. pods: those it owns, finished ones included.

    Over when completions (without any: one, and no pod runs any more) have succeeded, when more than backoffLimit
    failed, or at the active deadline. Suspended: no pods. After a failure the next pod waits 1 s, 2 s, ... 60 s.
    """
    spec = job.spec
    active = [pod for pod in pods if pod.is_active]
    ready = sum(pod.is_ready for pod in active)
    succeeded_pods = [pod for pod in pods if pod.status.phase == "Succeeded"]
    failures = [pod for pod in pods if pod.status.phase == "Failed"]
    indexed = spec.completion_mode == "Indexed" and spec.completions is not None
    done_indexes = {_index(pod) for pod in succeeded_pods}
    succeeded = len(done_indexes - {-1}) if indexed else max(len(succeeded_pods), job.status.succeeded)
    failed = max(len(failures), job.status.failed)
    restarts = sum(s.restart_count for pod in active for s in pod.status.container_statuses)

    def end(outcome: tuple[str, str, str]) -> JobPlan:
        return JobPlan(delete=tuple(active), outcome=outcome, succeeded=succeeded, failed=failed)

    deadline = spec.active_deadline_seconds
    started = job.status.start_time
    left = None
    if deadline is not None and started is not None:
        left = deadline - (now - started).total_seconds()
        if left <= 0:
            return end(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    if failed > spec.backoff_limit or restarts > spec.backoff_limit:
        return end(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    is_complete = succeeded >= spec.completions if spec.completions is not None else succeeded > 0 and not active
    if is_complete:
        return end(("Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
    if spec.suspend:
        return JobPlan(delete=tuple(active), succeeded=succeeded, failed=failed)
    if spec.completions is None:
        wanted = spec.parallelism if not succeeded else min(spec.parallelism, len(active))
    else:
        wanted = min(spec.parallelism, spec.completions - succeeded)
    surplus = len(active) - wanted
    delete = tuple(sorted(active, key=deletion_rank)[: max(0, surplus)])
    wait = _backoff_left(failures, now) if surplus < 0 else 0.0
    create: tuple[int | None, ...] = ()
    if surplus < 0 and wait <= 0:
        missing = min(-surplus, BURST)
        taken = done_indexes | {_index(pod) for pod in active}
        free = [i for i in range(spec.completions or 0) if i not in taken]
        create = tuple(free[:missing]) if indexed else (None,) * missing
    waits = [seconds for seconds in (wait if wait > 0 else None, left) if seconds is not None]
    return JobPlan(
        create=create,
        delete=delete,
        active=len(active),
        ready=ready,
        succeeded=succeeded,
        failed=failed,
        retry_seconds=min(waits, default=None),
    )


def _backoff_left(failures: Sequence[Pod], now: datetime) -> float:
    """Seconds until the next pod may be made, counted from the last failure."""
    moments = [
        moment
        for pod in failures
        if (c := pod.condition("Ready")) is not None and (moment := c.last_transition_time) is not None
    ]
    if not moments:
        return 0.0
    wait = min(_BACKOFF_SECONDS * 2.0 ** (len(failures) - 1), _MAX_BACKOFF_SECONDS)
    return (max(moments) + timedelta(seconds=wait) - now).total_seconds()


def status_of(job: Job, steps: JobPlan, now: datetime) -> dict[str, Any]:
    """The status to report; a finished job gets its condition and, if complete, its completion time."""
    status: dict[str, Any] = {
        "active": steps.active,
        "ready": steps.ready,
        "succeeded": steps.succeeded,
        "failed": steps.failed,
        "startTime": rfc3339(job.status.start_time or now),
    }
    if job.spec.suspend and steps.outcome is None:
        del status["startTime"]
    if steps.outcome is not None:
        kind, reason, message = steps.outcome
        moment = rfc3339(now)
        early = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        status["conditions"] = [
            {
                "type": name,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastProbeTime": moment,
                "lastTransitionTime": moment,
            }
            for name in (early, kind)
        ]
        if kind == "Complete":
            status["completionTime"] = moment
    return status


def job_pod(job: Job, index: int | None) -> dict[str, Any]:
    """One pod of the job; an indexed job's pod carries its index in name, label and annotation."""
    name = job.metadata.name
    labels = {
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": job.metadata.uid,
        "job-name": name,
        "controller-uid": job.metadata.uid,
    }
    if index is None:
        return pod_from(job.spec.template, JOBS, job, labels=labels)
    extra = {INDEX_ANNOTATION: str(index)}
    body = pod_from(job.spec.template, JOBS, job, labels={**labels, **extra}, annotations=extra)
    body["metadata"]["generateName"] = f"{name}-{index}-"
    return body


class Jobs:
    """Runs Jobs to their end, and removes finished ones after their time to live."""

    name = "job"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs = cluster.informer(JOBS)
        self._pods = cluster.pods()
        self._writer = PodWriter(cluster, "job-controller")
        self._queue = KeyQueue("job", self._reconcile, workers=8)
        self._jobs.on_change(lambda _old, new: self._queue.add(new.metadata.key) if new else None)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        await self._queue.run()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "Job":
            self._queue.add_after(f"{pod.metadata.namespace}/{owner.name}", 0.02)

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            return None
        if finished_condition(job):
            return await self._expire(job)
        steps = plan(job, self._pods.by("owner", job.metadata.uid), self._cluster.clock.now())
        await self._writer.delete(JOBS, job, steps.delete)
        await self._writer.create(JOBS, job, [job_pod(job, index) for index in steps.create])
        now = self._cluster.clock.now()
        if steps.outcome is None:
            steps = plan(job, self._pods.by("owner", job.metadata.uid), now)
        shown = job.status
        is_same = (shown.active, shown.ready, shown.succeeded, shown.failed) == (
            steps.active,
            steps.ready,
            steps.succeeded,
            steps.failed,
        )
        if steps.outcome is None and is_same and (shown.start_time is not None or job.spec.suspend):
            return steps.retry_seconds
        try:
            patch = {"metadata": {"uid": job.metadata.uid}, "status": status_of(job, steps, now)}
            content = await self._cluster.client.patch(JOBS.item(key, "status"), patch, STRATEGIC_PATCH)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        self._jobs.put(self._jobs.decode(content))
        if steps.outcome is not None:
            reason = "Completed" if steps.outcome[0] == "Complete" else steps.outcome[1]
            message = "Job completed" if reason == "Completed" else steps.outcome[2]
            kind = "Normal" if reason == "Completed" else "Warning"
            self._cluster.events.tell(JOBS, job, reason=reason, message=message, component="job-controller", kind=kind)
        return steps.retry_seconds

    async def _expire(self, job: Job) -> float | None:
        """Delete a finished job once its time to live is over; the seconds left until then."""
        if job.spec.ttl_seconds_after_finished is None:
            return None
        ended = [c.last_transition_time for c in job.status.conditions if c.last_transition_time is not None]
        if not ended:
            return None
        expires = max(ended) + timedelta(seconds=job.spec.ttl_seconds_after_finished)
        left = (expires - self._cluster.clock.now()).total_seconds()
        if left <= 0:
            await self._cluster.client.delete(
                JOBS.item(job.metadata.key), uid=job.metadata.uid, propagation="Background"
            )
            return None
        return left
