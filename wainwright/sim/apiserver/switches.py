"""The fault switches of a running embedded cluster, for the command line and for drills: what `/_wainwright/` takes."""

from __future__ import annotations

import argparse
import base64
import ssl
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import msgspec

from wainwright.sim.apiserver.faults import FaultRule

_TIMEOUT_SECONDS = 10


class SwitchError(Exception):
    """The server did not take a switch; the message is its own."""


class Switches:
    """Speaks to the embedded cluster that a kubeconfig names. Every method raises SwitchError, or OSError when nobody
    answers.
    """

    def __init__(self, kubeconfig: Path) -> None:
        import yaml

        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._token: str = config["users"][0]["user"]["token"]
        self._context: ssl.SSLContext | None = None
        if self._server.startswith("https:"):
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            self._context = ssl.create_default_context(cadata=authority)

    def inject(self, rules: Sequence[FaultRule]) -> None:
        """Put these rules in force, in place of those before."""
        self._send("PUT", "faults", msgspec.json.encode(list(rules)))

    def faults(self) -> tuple[FaultRule, ...]:
        """The rules in force."""
        return msgspec.json.decode(self._send("GET", "faults"), type=tuple[FaultRule, ...])

    def clear(self) -> None:
        """No rule, no stale reads."""
        self._send("DELETE", "faults")

    def cut_watches(self, resource: str = "") -> int:
        """End every open watch, or those of a resource (`pods`, `deployments.apps`); how many there were."""
        return int(self._answer("cut-watches", resource=resource)["cut"])

    def compact(self) -> None:
        """Forget all history: watches and continue tokens from before are answered with 410."""
        self._answer("compact")

    def stale(self, versions: int) -> None:
        """Answer gets and lists as of so many writes ago, and stay there; 0 ends it."""
        self._answer("stale", versions=versions)

    def restart(self, down_seconds: float = 0.0) -> None:
        """Drop every connection, be away for a while, come back with the objects and without history."""
        self._answer("restart", seconds=down_seconds)

    def snapshot(self) -> bytes:
        """The whole state, as `--snapshot` reads it."""
        return self._send("POST", "snapshot")

    def _answer(self, action: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self._send("POST", f"{action}?{urlencode(query)}"))
        return found

    def _send(self, method: str, action: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self._server}/_wainwright/{action}", body, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=self._context) as answer:  # noqa: S310
                data: bytes = answer.read()
                return data
        except HTTPError as error:
            raise SwitchError(msgspec.json.decode(error.read()).get("message", str(error))) from error


def run(kubeconfig: Path, action: str, argument: str = "") -> str:
    """One switch by name, as the command line has it; what to print. Raises ValueError for an argument that is none."""
    switches = Switches(kubeconfig)
    match action:
        case "show":
            return msgspec.json.encode(switches.faults()).decode()
        case "inject":
            switches.inject(msgspec.json.decode(argument, type=tuple[FaultRule, ...]))
        case "clear":
            switches.clear()
        case "cut-watches":
            return f"{switches.cut_watches(argument)} watches ended"
        case "compact":
            switches.compact()
        case "stale":
            switches.stale(int(argument or 0))
        case "restart":
            switches.restart(float(argument or 0))
        case "snapshot":
            return switches.snapshot().decode().rstrip("\n")
        case _:
            raise ValueError(f"{action}: no such switch; there are {', '.join(ACTIONS)}")
    return "done"


ACTIONS = ("show", "inject", "clear", "cut-watches", "compact", "stale", "restart", "snapshot")


def main(arguments: list[str] | None = None) -> int:
    """`python -m wainwright.sim.apiserver.switches --kubeconfig FILE ACTION [ARGUMENT]`."""
    parser = argparse.ArgumentParser(prog="python -m wainwright.sim.apiserver.switches", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("argument", nargs="?", default="", help="rules as JSON, a resource, versions, or seconds")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(run(options.kubeconfig, options.action, options.argument) + "\n")
    except (SwitchError, OSError, ValueError) as error:
        sys.stderr.write(f"{options.action}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
