"""The embedded stack: a Redis-compatible server, a cluster, a cloud, and Wainwright's own processes, on this machine.

The same processes run against a real cluster and Redis by setting their addresses (docs/real-cluster.md).
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import IO

import msgspec
import yaml

from config.settings import Settings, environment
from tasks.context import make_store
from wainwright.batching.store import Store
from wainwright.errors import AlreadyExists, StoreUnavailable, WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from wainwright.kube.resources import CRDS
from workers.children import Children

START_SECONDS = 60.0
"""Starting is given up after this long."""


class StackError(Exception):
    """The stack could not be started; the message says which part, with the end of its log."""


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the embedded stack consists of. push: the endpoint that takes load over HTTP. port numbers: 0 is any free
    one.
    """

    folder: Path
    watchers: int = 1
    launch_workers: int = 1
    beats: int = 1
    push: bool = False
    redis_port: int = 0
    api_port: int = 0
    keep: bool = False
    """Go on with the cluster that was stopped in this folder (Redis and cloud always do); else start an empty one."""


class Stack:
    """The embedded stack, running. Made by `start`, ended by `stop`."""

    def __init__(self, settings: Settings, options: StackOptions) -> None:
        self.options = options
        self.folder = options.folder
        self.kubeconfig = options.folder / "kubeconfig"
        self.children = Children(options.folder / "logs")
        redis_port = options.redis_port or free_port()
        cloud_port = free_port()
        self.settings = settings.model_copy(
            update={
                "redis": settings.redis.model_copy(update={"url": f"redis://127.0.0.1:{redis_port}/0"}),
                "kube": settings.kube.model_copy(update={"kubeconfig": str(self.kubeconfig), "context": ""}),
                "cloud": settings.cloud.model_copy(update={"url": f"http://127.0.0.1:{cloud_port}"}),
                "autoscaling": settings.autoscaling.model_copy(
                    update={"push_listen": "127.0.0.1", "push_port": free_port()} if options.push else {}
                ),
            }
        )
        self._redis_port, self._cloud_port = redis_port, cloud_port
        self._api_port = options.api_port or free_port()
        self._api_restarts = 0
        self._lock: IO[bytes] | None = None
        self.store: Store = make_store(self.settings)

    @property
    def kube(self) -> KubeClient:
        return KubeClient(load_config(str(self.kubeconfig)))

    def start(self, report: Callable[[str], None]) -> None:
        """Starts everything; report is told each step. Raises StackError, with nothing left running."""
        catalog = self.settings.stack.catalog
        if catalog and not Path(catalog).is_file():
            raise StackError(f"WAINWRIGHT_STACK_CATALOG={catalog}: there is no such file")
        self._take_folder()
        try:
            self._start(report)
        except BaseException:
            self.stop()
            raise

    def _start(self, report: Callable[[str], None]) -> None:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        report("Redis-compatible server, Kubernetes API, simulated cloud")
        self._start_redis()
        self._start_api_server()
        self._start_cloud()
        self._until("redis", self._redis_answers)
        self._forget_last_run()
        self._until("api-server", self.kubeconfig.exists)
        report("CustomResourceDefinitions, controllers, watchers, workers, beats")
        apply_crds(self.kube)
        self._start_controllers()
        roles = self._start_workers()
        report("waiting until every process shows life and the cluster view is complete")
        self._until("workers", lambda: len(self.signs_of_life()) >= roles)
        self._until("watcher-1", self._view_is_complete)

    def _forget_last_run(self) -> None:
        """Signs of life and the view of a stack that was stopped here moments ago say nothing of this one."""
        gone = [*self.signs_of_life(), self.store.keys.view_meta]
        self.store.read(lambda redis: redis.delete(*gone))

    def _start_redis(self) -> None:
        data = self.folder / "data" / "redis"
        self._python("redis", "workers.redis_server", "--port", str(self._redis_port), "--data", str(data))

    def _start_api_server(self) -> None:
        """The cluster. It is there when its kubeconfig is."""
        self.kubeconfig.unlink(missing_ok=True)
        self._python(
            "api-server",
            "wainwright.sim.apiserver",
            "--port",
            str(self._api_port),
            "--kubeconfig",
            str(self.kubeconfig),
            "--data-dir",
            str(self.folder / "data" / "api-server"),
            *(("--snapshot", str(self.folder / "data" / "cluster.jsonl")) if self.options.keep else ()),
            "--exit-with-parent",
        )

    def _start_cloud(self) -> None:
        stack = self.settings.stack
        cloud = [
            "--port",
            str(self._cloud_port),
            "--state-file",
            str(self.folder / "data" / "cloud.jsonl"),
            "--launch-delay",
            str(stack.launch_delay_seconds),
            "--boot-delay",
            str(stack.boot_delay_seconds),
            "--exit-with-parent",
        ]
        if stack.catalog:
            cloud += ["--catalog", stack.catalog]
        self._python("cloud", "wainwright.cloud.simulated", *cloud)

    def _start_controllers(self, *options: str) -> None:
        self._python(
            "controllers",
            "wainwright.sim.controllers",
            "--kubeconfig",
            str(self.kubeconfig),
            "--cloud",
            self.settings.cloud.url,
            "--exit-with-parent",
            *options,
        )

    def _start_workers(self) -> int:
        """Our own processes; how many."""
        roles: list[tuple[str, tuple[str, ...]]] = []
        roles += [(f"watcher-{n}", ("workers.watcher",)) for n in range(1, self.options.watchers + 1)]
        roles += [(name, ("workers.worker", name)) for name in ("window", "solve")]
        roles += [(f"launch-{n}", ("workers.worker", "launch")) for n in range(1, self.options.launch_workers + 1)]
        roles += [("tick", ("workers.worker", "tick", "collect"))]
        roles += [(f"beat-{n}", ("workers.beat",)) for n in range(1, self.options.beats + 1)]
        roles += [("push", ("workers.push",))] if self.options.push else []
        for name, command in roles:
            self._python(name, *command, "--exit-with-parent")
        return len(roles)

    def stop(self) -> None:
        """Ends every child; within five seconds."""
        self.children.stop()
        self.store.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check(self) -> None:
        """Starts anew what died. Raises StackError for what does not stay up."""
        lost = self.children.check()
        if lost:
            words = "\n".join(f"--- {child.name} ({child.log})\n{child.last_words()}" for child in lost)
            raise StackError(f"{lost[0].name} does not stay up\n{words}")
        restarts = self.children["api-server"].restarts if "api-server" in self.children else 0
        if restarts != self._api_restarts and self._api_answers():
            # One that was killed kept nothing since its last orderly stop; without these nothing of ours could go on.
            self._api_restarts = restarts
            apply_crds(self.kube)

    def _api_answers(self) -> bool:
        try:
            self.kube.request("GET", "/readyz")
        except (WainwrightError, OSError):
            return False
        return True

    def _take_folder(self) -> None:
        """Two stacks in one folder would write each other's files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            self._lock = None
            raise StackError(
                f"{self.folder} is in use by a stack that runs; stop it, or choose another --dir"
            ) from error

    def signs_of_life(self) -> list[str]:
        pattern = self.store.keys.worker("*")
        return [str(name) for name in self.store.read(lambda redis: redis.keys(pattern))]

    def environment(self) -> dict[str, str]:
        """For processes of ours that shall work with this stack."""
        return child_environment() | environment(self.settings)

    def _python(self, name: str, module: str, *arguments: str) -> None:
        self.children.start(name, python(module, *arguments), self.environment())

    def _redis_answers(self) -> bool:
        try:
            return self.store.now_ms() > 0
        except StoreUnavailable:
            return False

    def _view_is_complete(self) -> bool:
        return bool(self.store.read(lambda redis: redis.hget(self.store.keys.view_meta, "complete")) == "1")

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise StackError(f"{what} did not get ready within {START_SECONDS:.0f} s; logs: {self.folder / 'logs'}")
            time.sleep(0.05)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """The environment of this process without settings of ours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WAINWRIGHT_")}
    return own | {"PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def manifests(folder: str) -> Iterator[dict[str, object]]:
    """The YAML documents of config/FOLDER, file by file."""
    for file in sorted((resources.files("config") / folder).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            yield from (document for document in yaml.safe_load_all(file.read_text()) if document)


def apply_crds(kube: KubeClient) -> None:
    """Creates our CustomResourceDefinitions where they are missing. Raises WainwrightError."""
    for document in manifests("crd"):
        try:
            kube.create(CRDS, document)
        except AlreadyExists:
            continue
        except WainwrightError as error:
            raise StackError(f"CustomResourceDefinition {document['metadata']} was refused: {error}") from error
