"""The whole system as child processes, and what tests ask of it from outside: kubectl's, the cloud's and Redis' view.

Everything a test waits for is bounded: `System.wait` restarts what died (as `wainwright up` does) while it waits.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import msgspec
import yaml

from config.settings import load_settings
from wainwright.errors import AlreadyExists, NotFound, WainwrightError
from wainwright.kube import resources
from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from wainwright.kube.resources import Resource
from workers.stack import Stack, StackOptions

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CATALOG = HERE / "catalog.json"
"""A small catalog with the instance types that the cases name."""

QUICK = {
    "WAINWRIGHT_STACK_CATALOG": str(CATALOG),
    "WAINWRIGHT_STACK_BOOT_DELAY_SECONDS": "0.5",
    "WAINWRIGHT_STACK_LAUNCH_DELAY_SECONDS": "0.05",
    "WAINWRIGHT_BATCHING_IDLE_SECONDS": "0.4",
    "WAINWRIGHT_BATCHING_MAX_SECONDS": "3",
    "WAINWRIGHT_WATCHER_WATCH_SECONDS": "3",
    "WAINWRIGHT_WATCHER_STALE_SECONDS": "6",
    "WAINWRIGHT_WATCHER_RESYNC_SECONDS": "5",
    "WAINWRIGHT_LOG_FORMAT": "json",
}
"""Settings under which little time is spent waiting for what is simulated."""

SIMULATED_NODE_CLASSES = Resource(
    "simulated.wainwright.dev", "v1alpha1", "simulatednodeclasses", "SimulatedNodeClass", namespaced=False
)
KINDS = {kind.kind: kind for kind in [*vars(resources).values(), SIMULATED_NODE_CLASSES] if isinstance(kind, Resource)}


class TimedOut(AssertionError):
    """What was waited for did not happen in time."""


class System:
    """A stack of its own in a folder of its own. options: as StackOptions; settings: variables beside QUICK."""

    def __init__(self, settings=None, **options):
        self.folder = Path(tempfile.mkdtemp(prefix="wainwright-acceptance-"))
        self.stack = Stack(load_settings(QUICK | (settings or {})), StackOptions(folder=self.folder, **options))
        self.steps = []
        self._kube = None

    def start(self):
        self.stack.start(self.steps.append)
        return self

    def stop(self):
        """Ends every child, and fails when one is left."""
        self.close_clients()
        self.stack.stop()
        left = processes_of(self.folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, f"still running after the stop: {left}"

    def close_clients(self):
        if self._kube is not None:
            self._kube.close()
            self._kube = None

    # Kubernetes -------------------------------------------------------------------------------------------------------

    @property
    def kube(self):
        if self._kube is None:
            self._kube = KubeClient(load_config(str(self.stack.kubeconfig)), call_timeout=10)
        return self._kube

    def apply(self, *manifests):
        """As `kubectl apply` does it: creates what is not there, patches what is. Answers the objects as stored."""
        stored = []
        for manifest in manifests:
            kind, meta = KINDS[manifest["kind"]], manifest["metadata"]
            if kind.namespaced:
                meta.setdefault("namespace", "default")
            try:
                stored.append(self.kube.create(kind, manifest))
            except AlreadyExists:
                stored.append(self.kube.merge_patch(kind, meta["name"], manifest, meta.get("namespace", "")))
        return stored

    def apply_file(self, path):
        return self.apply(*(document for document in yaml.safe_load_all(Path(path).read_text()) if document))

    def get(self, kind, name, namespace="default"):
        """The object, or None."""
        resource = KINDS[kind]
        try:
            return msgspec.json.decode(
                self.kube.request("GET", resource.path(namespace if resource.namespaced else "", name))
            )
        except NotFound:
            return None

    def list(self, kind, selector="", namespace=""):
        return self.kube.list(KINDS[kind], dict, label_selector=selector, namespace=namespace)[0]

    def delete(self, kind, name, namespace="default", **options):
        resource = KINDS[kind]
        try:
            self.kube.delete(resource, name, namespace if resource.namespaced else "", **options)
        except NotFound:
            return

    def pods(self, selector="", namespace=""):
        """Pods that are not being deleted."""
        return [p for p in self.list("Pod", selector, namespace) if "deletionTimestamp" not in p["metadata"]]

    def running(self, selector="", namespace=""):
        return [pod for pod in self.pods(selector, namespace) if pod["status"].get("phase") == "Running"]

    def claims(self, pool=""):
        return self.list("NodeClaim", f"karpenter.sh/nodepool={pool}" if pool else "")

    def events_of(self, kind, name):
        return [
            e for e in self.list("Event") if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)
        ]

    def wait_running(self, count, selector="", seconds=30, namespace=""):
        """Until `count` pods run; answers them."""

        def enough():
            running = self.running(selector, namespace)
            return running if len(running) >= count else None

        return self.wait(f"{count} pods of {selector or 'all'} run", enough, seconds)

    def tidy(self, seconds=40):
        """Takes away all workloads, NodePools and nodes, and waits until they are gone."""
        self.cloud("DELETE", "/v1/faults")
        for kind in ("Deployment", "Job", "DaemonSet", "NodePool", "SimulatedNodeClass"):
            for thing in self.list(kind):
                meta = thing["metadata"]
                self.delete(kind, meta["name"], meta.get("namespace", ""), propagation="Background")
        for pod in self.list("Pod"):
            self.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0)
        for claim in self.claims():
            self.delete("NodeClaim", claim["metadata"]["name"])

        def is_gone():
            left = {kind: self.list(kind) for kind in ("NodeClaim", "Node", "NodePool", "Pod")}
            for pod in left["Pod"]:
                self.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0)
            return not any(left.values()) and not self.live_instances()

        self.wait("everything of the test is gone", is_gone, seconds)

    # The cloud --------------------------------------------------------------------------------------------------------

    def cloud(self, method, path, body=None):
        request = urllib.request.Request(
            self.stack.settings.cloud.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def live_instances(self):
        return [i for i in self.cloud("GET", "/v1/instances")["instances"] if i["state"] in ("pending", "running")]

    def launches(self):
        """The cloud's record of every launch ever made."""
        return self.cloud("GET", "/v1/launches")

    # Redis ------------------------------------------------------------------------------------------------------------

    @property
    def keys(self):
        return self.stack.store.keys

    def redis(self, call):
        return self.stack.store.read(call)

    # Processes --------------------------------------------------------------------------------------------------------

    def child(self, name):
        return self.stack.children[name]

    def kill(self, name, number=signal.SIGKILL):
        """To the child and whatever it started."""
        self.child(name).signal(number)

    def take_out(self, name):
        """Kills a child for good: it is not started anew."""
        child = self.stack.children._children.pop(name)
        child.signal(signal.SIGKILL)
        child.wait(time.monotonic() + 5)

    def log(self, name):
        return self.child(name).log.read_text(errors="replace")

    def log_lines(self):
        """Per child, how many lines it has written so far."""
        return {child.name: child.log.read_bytes().count(b"\n") for child in self.stack.children.all()}

    def environment(self):
        return self.stack.environment()

    def cpu_seconds(self):
        """Processor time that all processes of the stack have used so far."""
        ticks = 0
        for pid in processes_of(self.folder):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def cli(self, *arguments, seconds=20, **environment):
        """`wainwright ARGUMENTS`, run to its end."""
        return subprocess.run(
            [sys.executable, "-m", "workers.cli", *arguments],
            env=self.environment() | environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def status(self):
        """`wainwright status --output json`."""
        answer = self.cli("status", "--output", "json")
        assert answer.stdout, answer.stderr
        return json.loads(answer.stdout)

    def report(self, name):
        """`wainwright pod NAME --output json`."""
        answer = self.cli("pod", name, "--output", "json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    # Waiting ----------------------------------------------------------------------------------------------------------

    def wait(self, what, is_so, seconds, pause=0.1):
        """Until is_so answers something true, which is handed on; raises TimedOut with what can be seen otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            self.stack.check()
            try:
                found = is_so()
            except (WainwrightError, OSError) as error:
                if time.monotonic() > deadline:
                    raise TimedOut(f"{what}: not within {seconds} s; last: {error}") from error
                found = None
            if found:
                return found
            if time.monotonic() > deadline:
                raise TimedOut(f"{what}: not within {seconds} s\n{self.picture()}")
            time.sleep(pause)

    def picture(self):
        """How it stands, for a failure's message."""
        lines = []
        try:
            for pod in self.pods()[:20]:
                meta, node = pod["metadata"], pod["spec"].get("nodeName", "-")
                lines.append(f"pod {meta['namespace']}/{meta['name']} {pod['status'].get('phase')} on {node}")
            for claim in self.claims()[:20]:
                name = claim["metadata"]["name"]
                record = self.redis(lambda redis, name=name: redis.hgetall(self.keys.claim(name)))
                shown = {k: record.get(k) for k in ("state", "holder", "node", "reason", "message", "deaths")}
                lines.append(f"claim {name} {shown}")
            lines.append(f"instances {[(i['node_claim'], i['state']) for i in self.live_instances()][:20]}")
            lines.append(self.cli("status").stdout)
        except (WainwrightError, OSError, subprocess.SubprocessError) as error:
            lines.append(f"(no more to be seen: {error})")
        told = [child for child in self.stack.children.all() if child.name not in ("redis", "cloud")]
        lines += [f"--- {child.name} (restarts {child.restarts})\n{child.last_words(4)}" for child in told]
        return "\n".join(lines)


def processes_of(folder):
    """Processes that have the folder in their command line or environment, this one aside; zombies do not count."""
    mark, found = os.fsencode(str(folder)), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in text:
            found.append(int(entry.name))
    return found
