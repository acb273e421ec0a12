"""Which binaries a control plane is started from, or why there are none."""

import functools
import hashlib
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = HERE / "go.mod"
SUMS = HERE / "go.sum"

NAMES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
"""What a control plane consists of. The first two are enough for an API server alone."""

HOW = (
    "`make control-plane` builds one (Go module proxy needed), or set KUBEBUILDER_ASSETS or WAINWRIGHT_TEST_KUBECONFIG"
)


def version():
    """Of Kubernetes, as go.mod requires it: `v1.36.3`."""
    return re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", MODULE.read_text(), re.MULTILINE)[1]


def built_folder():
    """Where `make control-plane` puts its binaries: one folder for each version of what goes into them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(MODULE.read_bytes() + SUMS.read_bytes()).hexdigest()[:10]
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return cache / "wainwright" / "control-plane" / f"{version()}-{machine}-{key}"


@dataclass(frozen=True)
class Assets:
    """Binaries in one folder; `origin` says where they come from."""

    folder: Path
    origin: str

    def has(self, *names):
        return all(os.access(self.folder / name, os.X_OK) for name in names)

    def __getitem__(self, name):
        return self.folder / name

    @functools.cached_property
    def version(self):
        """What kube-apiserver says of itself."""
        answer = subprocess.run([self["kube-apiserver"], "--version"], capture_output=True, text=True, check=True)
        return answer.stdout.split()[-1]


def find(*names):
    """Assets that have all the names: those of $KUBEBUILDER_ASSETS, else what was built. Raises LookupError, whose
    message is the one line to skip with.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        assets = Assets(Path(given), "KUBEBUILDER_ASSETS")
        missing = [name for name in names if not assets.has(name)]
        if missing:
            raise LookupError(f"KUBEBUILDER_ASSETS ({given}) lacks {', '.join(missing)}; {HOW}")
        return assets
    assets = Assets(built_folder(), "make control-plane")
    if not assets.has(*names):
        raise LookupError(f"no control plane built yet: {HOW}")
    return assets
