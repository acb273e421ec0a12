"""What the tasks of one process share: adapters and services, made when first needed, and after a fork made anew."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from celery import Celery

from config.settings import Settings
from tasks.adapters import make_cloud, make_kube
from tasks.hints import CeleryHints
from wainwright.batching.claims import ClaimRecords
from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy
from wainwright.clock import Clock, SystemClock
from wainwright.cloud.port import CloudProvider
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder
from wainwright.provisioning.assembly import Provisioning, assemble
from wainwright.provisioning.policy import LaunchPolicy

if TYPE_CHECKING:
    from wainwright.podscaling.assembly import PodScaling
    from wainwright.provisioning.solving import SolvePass

T = TypeVar("T")

BINDERS = 8
"""Threads that bind and evict pods, shared by all claims a process works on."""

WRITERS = 8
"""Threads that write Scales and statuses of pod autoscalers, and as many that ask for their targets."""

stopping = threading.Event()
"""Set when this worker is shutting down; tasks that stay for a while look at it."""


def window_policy(settings: Settings) -> WindowPolicy:
    batching = settings.batching
    return WindowPolicy(
        idle_ms=round(batching.idle_seconds * 1000),
        max_ms=round(batching.max_seconds * 1000),
        max_items=batching.max_items,
    )


def make_store(settings: Settings) -> Store:
    return Store.connect(settings.redis.url, prefix=settings.redis.prefix, policy=window_policy(settings))


def launch_policy(settings: Settings) -> LaunchPolicy:
    launch = settings.launch
    return LaunchPolicy(
        binding=launch.binding,
        deadline=timedelta(seconds=launch.deadline_seconds),
        ready_deadline=timedelta(seconds=launch.ready_deadline_seconds),
        unavailable=timedelta(seconds=launch.unavailable_seconds),
        nomination=timedelta(seconds=launch.nomination_seconds),
    )


class made_once(Generic[T]):  # noqa: N801 - used like functools.cached_property
    """A cached property that a pool's threads may ask for at once (Python 3.12 took cached_property's lock away)."""

    _making = threading.RLock()

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:
        with self._making:
            made: T = instance.__dict__.get(self._name) or instance.__dict__.setdefault(
                self._name, self._make(instance)
            )
        return made


class Context:
    """The adapters and services of one process."""

    def __init__(self, settings: Settings, app: Celery) -> None:
        self.settings = settings
        self.app = app
        self.clock: Clock = SystemClock()
        self.worker = f"{socket.gethostname()}:{os.getpid()}"

    @made_once
    def store(self) -> Store:
        return make_store(self.settings)

    @made_once
    def hints(self) -> CeleryHints:
        return CeleryHints(self.app, self.clock)

    @made_once
    def kube(self) -> KubeClient:
        return make_kube(self.settings)

    @made_once
    def cloud(self) -> CloudProvider:
        return make_cloud(self.settings, self.kube)

    @made_once
    def events(self) -> EventRecorder:
        return EventRecorder(self.kube, clock=self.clock)

    @made_once
    def solver(self) -> SolvePass:
        from wainwright.provisioning.solving import SolvePass, SolvePolicy  # 30 MB that only solve workers need

        solve = self.settings.solve
        policy = SolvePolicy(
            max_pods=solve.max_pods,
            work_units=solve.work_units,
            improvement_units=solve.improvement_units,
            seconds=solve.seconds,
            preferences=solve.preferences,
            min_values=solve.min_values,
            keep_seconds=solve.keep_inputs_hours * 3600,
            keep_bytes=round(solve.keep_inputs_mb * 1e6),
        )
        return SolvePass(self.store, self.cloud, self.hints, policy, self.clock)

    @made_once
    def provisioning(self) -> Provisioning:
        return assemble(
            self.store,
            self.kube,
            self.cloud,
            self.events,
            self.hints,
            ThreadPoolExecutor(BINDERS, thread_name_prefix="bind"),
            self.clock,
            policy=launch_policy(self.settings),
            cluster=self.settings.cloud.cluster,
            records=ClaimRecords(self.store, worker=self.worker),
        )

    @made_once
    def scaling(self) -> PodScaling:
        # numpy and aiohttp, for these workers alone
        from wainwright.podscaling.assembly import PodScaling, ScalingOptions
        from wainwright.podscaling.collector import Collector
        from wainwright.podscaling.connections import Connections

        autoscaling = self.settings.autoscaling
        folder = Path(autoscaling.connections) if autoscaling.connections else None
        # Every scaling act is told, also the same one twice within two minutes.
        recorder = EventRecorder(self.kube, clock=self.clock, dedupe_seconds=0.0, per_second=100.0, burst=1000)
        return PodScaling(
            self.store,
            self.kube,
            recorder,
            self.clock,
            Collector(Connections(self.settings.redis.url, folder), self.clock),
            ScalingOptions(shards=autoscaling.shards, namespace=autoscaling.namespace),
            writers=ThreadPoolExecutor(WRITERS, thread_name_prefix="scale"),
            askers=ThreadPoolExecutor(WRITERS, thread_name_prefix="targets"),
        )


class _Process:
    context: Context | None = None


def use(settings: Settings, app: Celery) -> None:
    """Gives this process a context; a forked child calls it again and shares nothing with its parent."""
    _Process.context = Context(settings, app)


def context() -> Context:
    """The context of this process. `use` must have been called."""
    found = _Process.context
    if found is None:
        raise RuntimeError("tasks.context.use(settings, app) was not called in this process")
    return found
