"""The containers of a Deployment's pods, played by real Celery workers.

The embedded cluster's kubelets simulate containers. This runs one real worker process for each pod that runs, under the
pod's name, and tells it to go (SIGTERM, Celery's warm shutdown) when the pod is told to go.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from wainwright.errors import WainwrightError

ROOT = Path(__file__).resolve().parents[2]


class Fleet:
    """broker: URL. ended: pod name → seconds that its worker took to go and its exit status."""

    def __init__(self, system, selector, broker):
        self._system = system
        self._selector = selector
        self._broker = broker
        self._workers = {}
        self._told = {}
        self.ended = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(5)
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.kill()
            worker.wait(10)

    def _run(self):
        while not self._stop.wait(0.2):
            try:
                names = {pod["metadata"]["name"] for pod in self._system.running(self._selector)}
            except (WainwrightError, OSError):
                continue
            for name in names - set(self._workers):
                self._workers[name] = self._start(name)
            for name, worker in self._workers.items():
                if name not in names and name not in self._told:
                    self._told[name] = time.monotonic()
                    worker.send_signal(signal.SIGTERM)
                if name in self._told and name not in self.ended and worker.poll() is not None:
                    self.ended[name] = (time.monotonic() - self._told[name], worker.returncode)

    def _start(self, name):
        command = [sys.executable, "-m", "celery", "-A", "tests.acceptance.celery_jobs", "worker", "--pool=threads"]
        command += ["--concurrency=1", f"--hostname=celery@{name}", "--loglevel=WARNING"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        own = {k: v for k, v in os.environ.items() if not k.startswith("WAINWRIGHT_")}
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**own, "JOBS_BROKER": self._broker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
