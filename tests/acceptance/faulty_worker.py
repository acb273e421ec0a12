"""Workers that kill themselves (SIGKILL, whole process group) before the n-th network call of their work.

`python -m tests.acceptance.faulty_worker` imports everything once and then forks one real worker (workers.worker.main)
per line on stdin, a JSON `Order`; it answers the child's pid. So a worker costs a tenth of a second instead of two.
What is patched is only the way to the network: Redis commands (Celery's messages are some), Kubernetes, the cloud.
"""

import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from redis.connection import AbstractConnection

from config.settings import load_settings
from tasks import batching, launching, solving, upkeep
from tasks.context import make_store
from tasks.hints import CeleryHints
from wainwright.batching.store import script_text
from wainwright.cloud.simulated.provider import SimulatedProvider
from wainwright.errors import StoreUnavailable
from wainwright.kube.client import KubeClient
from workers import worker
from workers.celery_app import make_app

LOADED = (batching, launching, solving, upkeep)
QUIET_THREADS = ("sign-of-life", "hinter")
"""What they ask of the network is not the worker's work."""
HINT_AGAIN_SECONDS = 3.0


class Order(NamedTuple):
    """kill_before: number of the call, from 1; 0 never. note: file that tells which call it was. pool: where given, the
    worker gets the claims of this NodePool, on a broker of its own, and nobody else's.
    """

    role: str
    kill_before: int
    note: str
    log: str
    environment: dict[str, str]
    pool: str = ""


class Trap:
    """Counts the calls of this process and springs before one of them."""

    def __init__(self, order):
        self.order = order
        self.calls = 0
        self.lock = threading.Lock()
        self.main_pid = os.getpid()

    def step(self, what):
        thread = threading.current_thread()
        if thread.name in QUIET_THREADS:
            return
        if os.getpid() == self.main_pid and (self.order.role == "solve" or thread is threading.main_thread()):
            return  # Celery fetching messages: the work is done in the pool's processes, or threads
        with self.lock:
            self.calls += 1
            if self.calls == self.order.kill_before:
                Path(self.order.note).write_text(f"{self.calls}: {what}")
                os.killpg(0, signal.SIGKILL)
                signal.pause()

    def around(self, kind, method, name):
        """Replaces a method of a class by one that steps first. name: what the note says; empty for what is no call."""
        original = getattr(kind, method)

        def stepping(this, *arguments, **options):
            if what := name(*arguments):
                self.step(what)
            return original(this, *arguments, **options)

        setattr(kind, method, stepping)


def set_trap(order):
    trap = Trap(order)
    trap.around(AbstractConnection, "send_packed_command", redis_command)
    trap.around(KubeClient, "request", lambda verb, path: f"Kubernetes {verb} {path}")
    trap.around(SimulatedProvider, "_call", lambda verb, path: f"cloud {verb} {path}")


SCRIPTS = {
    hashlib.sha1(script_text(file.stem).encode()).hexdigest(): file.stem
    for file in Path(str(resources.files("wainwright.batching") / "lua")).glob("*.lua")
    if file.stem != "lib"
}
HANDSHAKE = {"HELLO", "CLIENT", "SELECT", "AUTH", "PING"}


def redis_command(packed, *_):
    """`redis XRANGE` or `redis script record` of what is about to be sent; empty for what only opens a connection."""
    words = b"".join(packed if isinstance(packed, list) else [packed])[:200].split(b"\r\n")
    verb = words[2].decode().upper()
    if verb == "EVALSHA":
        return f"redis script {SCRIPTS.get(words[4].decode(), 'of Celery')}"
    return "" if verb in HANDSHAKE else f"redis {verb}"


def hint_own_claims(pool):
    """Does for one NodePool what solver and sweep do for all: their hints go to another broker."""
    settings = load_settings(os.environ)
    store, hints = make_store(settings), CeleryHints(make_app(settings), _Clock())

    hinted = {}

    def run():
        while True:
            with suppress(StoreUnavailable):
                for claim in store.read(lambda redis: redis.zrange(store.keys.claims_due, 0, -1)):
                    is_own = claim.rpartition("-")[0].rpartition("-")[0] == pool
                    if is_own and time.monotonic() - hinted.get(claim, 0.0) > HINT_AGAIN_SECONDS:
                        hinted[claim] = time.monotonic()
                        hints.launch(claim)
            time.sleep(0.2)

    threading.Thread(target=run, name="hinter", daemon=True).start()


class _Clock:
    def monotonic_seconds(self):
        return time.monotonic()


def become(order):
    """In the child: the worker that was ordered. Does not return."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # the children of a test that dies die with it
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order.environment)
    if order.kill_before:
        set_trap(order)
    if order.pool:
        hint_own_claims(order.pool)
    worker.main([order.role])


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                become(order)
            finally:
                os._exit(1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
