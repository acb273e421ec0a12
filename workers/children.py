"""Child processes: started together, watched, restarted when they die, stopped together within a few seconds."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 4.0
"""A child that has not ended this long after SIGTERM is killed."""
QUICK_DEATH_SECONDS = 5.0
MOST_QUICK_DEATHS = 5
"""A child that dies so often within QUICK_DEATH_SECONDS of its start is given up."""


def _die_with_parent() -> None:
    """In the child, before exec: SIGKILL to it when the starting thread ends (Linux only; elsewhere a no-op)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Child:
    """One process of a name, kept running until stopped. log: everything it writes goes there."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.restarts = 0
        self.given_up = False
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._quick_deaths = 0

    @property
    def pid(self) -> int:
        """Of the running process; 0 when none runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - only prctl, before any thread of the child
                start_new_session=True,
            )
        self._started = time.monotonic()

    def restart_if_dead(self) -> bool:
        """Starts it again when it died; gives up on one that dies at once, again and again."""
        if self._process is None or self.given_up or self._process.poll() is None:
            return False
        quick = time.monotonic() - self._started < QUICK_DEATH_SECONDS
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths >= MOST_QUICK_DEATHS:
            self.given_up = True
            return False
        self.restarts += 1
        self.start()
        return True

    def signal(self, number: int) -> None:
        """To the process and everything it started."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def terminate(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self, until: float) -> None:
        """Until `until` (monotonic seconds); then SIGKILL to its whole group."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Children:
    """The children of this process. `check` restarts the dead ones; `stop` ends all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._children: dict[str, Child] = {}

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def all(self) -> list[Child]:
        return list(self._children.values())

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        child = Child(name, command, environment, self._folder / f"{name}.log")
        with self._lock:
            child.start()
            self._children[name] = child
        return child

    def check(self) -> list[Child]:
        """Restarts what died; answers those that are given up. From the thread that started them (they die with it)."""
        with self._lock:
            if not self._stopping.is_set():
                for child in self._children.values():
                    child.restart_if_dead()
            return [child for child in self._children.values() if child.given_up]

    def stop(self) -> None:
        """SIGTERM to all at once, SIGKILL to who is left STOP_SECONDS later. Idempotent."""
        self._stopping.set()
        with self._lock:
            children = list(self._children.values())
        for child in children:
            child.terminate()
        until = time.monotonic() + STOP_SECONDS
        for child in children:
            child.wait(until)
