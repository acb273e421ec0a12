"""`wainwright cluster up`: the embedded cluster alone, API server and controllers, in the foreground."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from wainwright.kube.client import KubeClient
from wainwright.kube.config import load_config
from workers.children import Children
from workers.stack import START_SECONDS, StackError, apply_crds, child_environment, python


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """listen: address to bind, loopback when empty; advertise: host name for the kubeconfig. cloud: URL or empty."""

    folder: Path
    kubeconfig: Path
    port: int = 0
    listen: str = ""
    advertise: str = ""
    cloud: str = ""


class Cluster:
    """The embedded cluster, running. State survives a stop and start in the same folder."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self.children = Children(options.folder / "logs")

    def start(self, report: Callable[[str], None]) -> None:
        """Raises StackError, with nothing left running."""
        try:
            self._start(report)
        except BaseException:
            self.stop()
            raise

    def _start(self, report: Callable[[str], None]) -> None:
        options = self._options
        fresh = options.kubeconfig.with_name(f".{options.kubeconfig.name}.starting")
        fresh.unlink(missing_ok=True)
        options.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        server = ["--port", str(options.port), "--kubeconfig", str(fresh), "--data-dir", str(options.folder / "api")]
        server += ["--snapshot", str(options.folder / "state.jsonl"), "--exit-with-parent"]
        for flag, value in (("--listen", options.listen), ("--advertise", options.advertise)):
            if value:
                server += [flag, value]
        environment = child_environment()
        report("Kubernetes API server")
        self.children.start("api-server", python("wainwright.sim.apiserver", *server), environment)
        deadline = time.monotonic() + START_SECONDS
        while not fresh.exists():
            self.check()
            if time.monotonic() > deadline:
                raise StackError(f"the API server did not get ready within {START_SECONDS:.0f} s")
            time.sleep(0.05)
        report("CustomResourceDefinitions and controllers")
        apply_crds(KubeClient(load_config(str(fresh))))
        controllers = ["--kubeconfig", str(fresh), "--exit-with-parent"]
        if options.cloud:
            controllers += ["--cloud", options.cloud]
        self.children.start("controllers", python("wainwright.sim.controllers", *controllers), environment)
        # Others wait for this file: it appears when the cluster can be used, CustomResourceDefinitions included.
        options.kubeconfig.write_bytes(b"")
        options.kubeconfig.chmod(0o600)
        options.kubeconfig.write_bytes(fresh.read_bytes())

    def check(self) -> None:
        """Starts anew what died. Raises StackError for what does not stay up."""
        lost = self.children.check()
        if lost:
            raise StackError(f"{lost[0].name} does not stay up\n{lost[0].last_words()}")

    def stop(self) -> None:
        """Ends both within five seconds."""
        self.children.stop()
