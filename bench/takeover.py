"""Takeover: seconds from kill -9 of a holder until somebody else has done its work.

Two of each worker run; the victim is not started anew before its work is done. So that it is certain who holds the
work, the other one is stopped (SIGSTOP) until the victim has it, and goes on in the moment the victim is killed.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.figures import Figure, Run, spread
from bench.parts import SHAPES, create_pods, pod, running_stack, until, wait_bound
from config.settings import Settings
from wainwright.batching.shards import shard_of
from workers.demo.observer import Observer
from workers.stack import Stack, python

LAUNCH_SECONDS = 1.0
"""Launches take so long here, so that a launcher is killed in the middle of one."""


def measure(run: Run) -> Iterator[Figure]:
    repeats = 1 if run.quick else 5
    settings = Settings()
    settings = settings.model_copy(
        update={"stack": settings.stack.model_copy(update={"launch_delay_seconds": LAUNCH_SECONDS})}
    )
    with running_stack(run, settings, watchers=2, launch_workers=2, beats=2) as stack:
        for role in ("window", "solve"):
            stack.children.start(f"{role}-2", python("workers.worker", role, "--exit-with-parent"), stack.environment())
        _until_all_live(stack)
        observer = Observer(stack.kube, "bench=wainwright")
        try:
            takeovers = Takeovers(stack, observer, run)
            takeovers.warm_up()
            for what, kill, target in (
                ("window shard's holder → its window closed", takeovers.window, 5),
                ("solver in the middle → another one solves", takeovers.solver, 5),
                ("launcher in the middle → its pods bound", takeovers.launcher, 5),
                ("active watcher → the view complete anew", takeovers.watcher, 10),
            ):
                seconds = []
                for number in range(repeats):
                    run.report(f"{what}, {number + 1} of {repeats}")
                    seconds.append(kill(number))
                    _until_all_live(stack)
                yield Figure(name=what, values=spread(seconds), unit="s", target=f"< {target}")
            for what, seconds in takeovers.also.items():
                yield Figure(name=what, values=spread(seconds), unit="s")
        finally:
            observer.stop()


class Takeovers:
    """Each method kills one holder at work and answers how long the work then took, all in all."""

    def __init__(self, stack: Stack, observer: Observer, run: Run) -> None:
        self.also: dict[str, list[float]] = defaultdict(list)
        """Further figures: seconds by what was waited for."""
        self._stack = stack
        self._observer = observer
        self._run = run
        self._store = stack.store

    def warm_up(self) -> None:
        """Everything has run once, in both workers of each kind as far as chance has it."""
        self._bind("warm-up", 20)

    def window(self, number: int) -> float:
        """Killed half a second into the window."""
        lock = self._store.keys.lock(f"window:{shard_of('general', self._stack.settings.batching.shards)}")
        with self._only("window", "window-2") as victim:
            until(lambda: not self._exists(lock), 40, "the shard to be free")
            created = create_pods(self._stack.kube, [pod(f"w{number}-0", SHAPES[0], round_=f"w{number}")])
            until(lambda: self._exists(lock), 10, "the shard to be held")
            time.sleep(0.5)
            before = self._closed()
            killed = victim()
        until(lambda: self._closed() > before, 30, "the window to be closed", pause=0.01)
        took = time.monotonic() - killed
        wait_bound(self._observer, list(created), 60)
        return took

    def solver(self, number: int) -> float:
        """Killed 50 ms into a solve of 600 pods, no two alike."""
        keys = self._store.keys
        manifests = [pod(f"s{number}-{n}", (100 + n, 128 + n), round_=f"s{number}") for n in range(600)]
        with self._only("solve", "solve-2") as victim:
            before = self._store.read(lambda redis: redis.zcard(keys.plans))
            created = create_pods(self._stack.kube, manifests)
            until(lambda: self._exists(keys.lock("solve")), 30, "a solve to begin", pause=0.002)
            time.sleep(0.05)
            fence = self._fence()
            killed = victim()
            if self._store.read(lambda redis: redis.zcard(keys.plans)) > before:
                self._run.report("killed too late: the plan was recorded already")
        until(lambda: self._fence() not in ("", fence), 60, "another solve", pause=0.005)
        took = time.monotonic() - killed
        until(lambda: not self._exists(keys.batches("closed")), 60, "a plan", pause=0.01)
        self.also["solver in the middle → the plan recorded"].append(time.monotonic() - killed)
        wait_bound(self._observer, list(created), 120)
        return took

    def launcher(self, number: int) -> float:
        """Killed while it waits for the cloud with all claims of 100 pods."""
        keys = self._store.keys
        manifests = [pod(f"l{number}-{n}", (2000, 4096), round_=f"l{number}") for n in range(100)]
        with self._only("launch-1", "launch-2") as victim:
            created = create_pods(self._stack.kube, manifests)
            until(lambda: self._asked_for() > 0, 30, "a launch to begin", pause=0.005)
            time.sleep(LAUNCH_SECONDS / 2)
            self._run.report(f"killed with {self._store.read(lambda redis: redis.zcard(keys.claims_due))} claims to do")
            killed = victim()
        seen = wait_bound(self._observer, list(created), 60)
        return max(one.bound_at or 0.0 for one in seen) - killed

    def watcher(self, number: int) -> float:
        """Killed while nothing happens; a pod is created right after it."""
        meta = self._store.keys.view_meta
        holder, epoch = self._store.read(lambda redis: redis.hmget(meta, "holder", "epoch"))
        active = next(c for c in self._stack.children.all() if c.pid and holder.endswith(f":{c.pid}"))
        active.signal(signal.SIGKILL)
        killed = time.monotonic()
        created: dict[str, float] = {}

        def create() -> None:
            created.update(create_pods(self._stack.kube, [pod(f"x{number}-0", SHAPES[0], round_=f"x{number}")]))

        thread = threading.Thread(target=create)
        thread.start()

        def is_new() -> bool:
            now = self._store.read(lambda redis: redis.hmget(meta, "epoch", "complete"))
            return bool(now[0] != epoch and now[1] == "1")

        until(is_new, 60, "a new epoch", pause=0.01)
        took = time.monotonic() - killed
        thread.join()
        seen = wait_bound(self._observer, list(created), 60)
        self.also["active watcher → a pod created then is bound"].append((seen[0].bound_at or 0.0) - killed)
        return took

    @contextmanager
    def _only(self, name: str, other: str) -> Iterator[Callable[[], float]]:
        """`other` is stopped meanwhile; calling what this yields kills `name`, lets `other` go on, answers when."""
        victim, standby = self._stack.children[name], self._stack.children[other]

        def kill() -> float:
            victim.signal(signal.SIGKILL)
            standby.signal(signal.SIGCONT)
            return time.monotonic()

        standby.signal(signal.SIGSTOP)
        try:
            yield kill
        finally:
            standby.signal(signal.SIGCONT)

    def _exists(self, key: str) -> bool:
        return bool(self._store.read(lambda redis: redis.exists(key)))

    def _fence(self) -> str:
        """Of who solves; empty while nobody does."""
        return str(self._store.read(lambda redis: redis.hget(self._store.keys.lock("solve"), "fence")) or "")

    def _closed(self) -> int:
        """Batches that ever were, in whatever state."""
        keys = self._store.keys
        states = ("closed", "planned", "done")
        return int(self._store.read(lambda redis: sum(redis.zcard(keys.batches(state)) for state in states)))

    def _asked_for(self) -> int:
        """Claims for which the cloud is being called."""
        due = self._store.read(lambda redis: redis.zrange(self._store.keys.claims_due, 0, -1))
        states = [self._store.read(lambda redis, c=c: redis.hget(self._store.keys.claim(c), "state")) for c in due]  # type: ignore[misc]
        return sum(state == "created" for state in states)

    def _bind(self, name: str, count: int) -> None:
        created = create_pods(self._stack.kube, [pod(f"{name}-{n}", SHAPES[n % 5], round_=name) for n in range(count)])
        wait_bound(self._observer, list(created), 60)


def _until_all_live(stack: Stack) -> None:
    """Starts the dead anew and waits until every process shows life under its own id."""

    def all_live() -> bool:
        stack.check()
        ids = {name.rpartition(":")[2] for name in stack.signs_of_life()}
        ours = [c for c in stack.children.all() if c.name not in ("redis", "api-server", "cloud", "controllers")]
        return all(str(child.pid) in ids for child in ours)

    until(all_live, 30, "every process to show life")
