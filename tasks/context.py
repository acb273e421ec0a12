"""What the tasks of one process share: adapters and services, made when first needed, and after a fork made anew."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from celery import Celery

from config.settings import Settings
from tasks.adapters import make_cloud, make_kube
from tasks.hints import CeleryHints
from wainwright.batching.claims import ClaimRecords, LeaseKeeper
from wainwright.batching.store import Store
from wainwright.batching.windows import WindowPolicy
from wainwright.clock import Clock, SystemClock
from wainwright.cloud.port import CloudProvider
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder
from wainwright.provisioning.binding import Binder
from wainwright.provisioning.buying import Buyer
from wainwright.provisioning.failing import FailingClaims
from wainwright.provisioning.garbage import GarbageCollector
from wainwright.provisioning.joining import Joiner
from wainwright.provisioning.launching import Launcher
from wainwright.provisioning.nominations import Nominator
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.termination import Terminator
from wainwright.provisioning.upkeep import Upkeep

if TYPE_CHECKING:
    from wainwright.provisioning.solving import SolvePass

BINDERS = 8
"""Threads that bind and evict pods, shared by all claims a process works on."""

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


class Context:
    """The adapters and services of one process."""

    def __init__(self, settings: Settings, app: Celery) -> None:
        self.settings = settings
        self.app = app
        self.clock: Clock = SystemClock()
        self.worker = f"{socket.gethostname()}:{os.getpid()}"

    @cached_property
    def store(self) -> Store:
        return make_store(self.settings)

    @cached_property
    def hints(self) -> CeleryHints:
        return CeleryHints(self.app, self.clock)

    @cached_property
    def kube(self) -> KubeClient:
        return make_kube(self.settings)

    @cached_property
    def cloud(self) -> CloudProvider:
        return make_cloud(self.settings, self.kube)

    @cached_property
    def events(self) -> EventRecorder:
        return EventRecorder(self.kube, clock=self.clock)

    @cached_property
    def solver(self) -> SolvePass:
        from wainwright.provisioning.solving import SolvePass, SolvePolicy  # 30 MB that only solve workers need

        solve = self.settings.solve
        policy = SolvePolicy(
            max_pods=solve.max_pods,
            work_units=solve.work_units,
            seconds=solve.seconds,
            preferences=solve.preferences,
            min_values=solve.min_values,
            keep_seconds=solve.keep_inputs_hours * 3600,
        )
        return SolvePass(self.store, self.cloud, self.hints, policy, self.clock)

    @cached_property
    def policy(self) -> LaunchPolicy:
        return launch_policy(self.settings)

    @cached_property
    def claims(self) -> ClaimRecords:
        return ClaimRecords(self.store, worker=self.worker)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(BINDERS, thread_name_prefix="bind")

    @cached_property
    def terminator(self) -> Terminator:
        return Terminator(self.kube, self.cloud, self.pool, self.events, self.clock, self.policy)

    @cached_property
    def launcher(self) -> Launcher:
        cluster = self.settings.cloud.cluster
        buyer = Buyer(self.claims, self.kube, self.cloud, self.events, self.clock, self.policy, cluster)
        binder = Binder(self.kube, self.pool, self.clock)
        joiner = Joiner(self.claims, self.store, self.kube, self.cloud, binder, self.events, self.clock, self.policy)
        failing = FailingClaims(self.claims, self.kube, self.cloud, self.terminator, self.policy)
        keeper = LeaseKeeper(self.claims, self.clock)
        return Launcher(self.claims, buyer, joiner, failing, self.events, keeper, self.policy)

    @cached_property
    def nominator(self) -> Nominator:
        return Nominator(self.claims, self.events, self.policy)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.store,
            self.claims,
            self.kube,
            self.nominator,
            self.hints,
            self.events,
            self.pool,
            self.clock,
            self.policy,
        )

    @cached_property
    def garbage(self) -> GarbageCollector:
        cluster = self.settings.cloud.cluster
        return GarbageCollector(self.kube, self.cloud, self.terminator, self.events, self.clock, cluster)


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
