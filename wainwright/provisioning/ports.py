"""What provisioning needs from the outside besides Kubernetes, Redis and the cloud."""

from __future__ import annotations

from typing import Protocol


class Hints(Protocol):
    """Says "look at this" to whoever works on it. A hint may be lost or doubled; the sweep finds what was missed."""

    def window(self, shard: int) -> None: ...

    def solve(self) -> None: ...

    def launch(self, claim: str) -> None: ...

    def nominate(self, batch: str) -> None:
        """Carry out the placements of a planned batch that need no claim."""
