"""Actors whose every network call can be counted, held up, lost or made their last."""

from __future__ import annotations

import threading

from wainwright.batching.store import Store
from wainwright.cloud.errors import CloudUnavailable
from wainwright.errors import KubeUnavailable, StoreUnavailable

KUBE_CALLS = frozenset({"get", "list", "create", "merge_patch", "delete", "bind", "evict"})
CLOUD_CALLS = frozenset({"create", "find", "get", "list", "delete"})


class Killed(BaseException):
    """kill -9: nothing of ours may catch it."""


class Actor:
    """One process: its adapters announce each call before it is made. calls: what was called, in order.

    before: called with the number of the call (from 0) about to be made; may raise Killed, or change the world.
    after: the same once it was carried out, before its answer arrives.
    """

    def __init__(self, world, worker="actor"):
        self.calls = []
        self.before = lambda number: None
        self.after = lambda number: None
        self.parts = world.assemble(
            kube=Announced(world.kube, self, KUBE_CALLS, "kube", KubeUnavailable),
            cloud=Announced(world.cloud, self, CLOUD_CALLS, "cloud", CloudUnavailable),
            store=AnnouncedStore(world.store, self),
            worker=worker,
        )

    def launch(self, claim):
        """How it ended; None when it was killed."""
        try:
            return self.parts.launcher.launch(claim)
        except Killed:
            return None
        except StoreUnavailable:
            return "no store"

    def announce(self, what, call, unavailable):
        number = len(self.calls)
        self.calls.append(what)
        self.before(number)
        answer = call()
        if self.after(number) == "lost":
            raise unavailable("no answer was received")
        return answer


class Announced:
    """An adapter whose calls go through an actor."""

    def __init__(self, real, actor, calls, label, unavailable):
        self._real, self._actor, self._calls, self._label, self._unavailable = real, actor, calls, label, unavailable

    def __getattr__(self, name):
        real = getattr(self._real, name)
        if name not in self._calls:
            return real

        def call(*args, **kwargs):
            target = args[0].plural if self._label == "kube" and hasattr(args[0], "plural") else ""
            what = f"{self._label} {name} {target}".strip()
            return self._actor.announce(what, lambda: real(*args, **kwargs), self._unavailable)

        return call


class AnnouncedStore(Store):
    def __init__(self, store, actor):
        super().__init__(store.redis, store.raw, prefix=store.keys.prefix, policy=store.policy)
        self._actor = actor

    def run(self, script, *arguments):
        return self._actor.announce(
            f"redis {script}", lambda: super(AnnouncedStore, self).run(script, *arguments), StoreUnavailable
        )

    def read(self, call):
        return self._actor.announce("redis read", lambda: super(AnnouncedStore, self).read(call), StoreUnavailable)


class Paused:
    """An actor in a thread of its own that makes one call at a time, when told."""

    def __init__(self, actor, work):
        self.actor = actor
        self._turn = threading.Semaphore(0)
        self._halted = threading.Semaphore(0)
        self.is_over = False
        self.result = None
        actor.before = self._wait
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._halted.acquire()

    def _wait(self, number):
        self._halted.release()
        self._turn.acquire()

    def _run(self, work):
        self.result = work()
        self.is_over = True
        self._halted.release()

    def step(self, calls=1):
        """Lets it make so many calls (fewer when it ends)."""
        for _ in range(calls):
            if self.is_over:
                return
            self._turn.release()
            self._halted.acquire()

    def finish(self):
        while not self.is_over:
            self.step()
        self._thread.join()
        return self.result
