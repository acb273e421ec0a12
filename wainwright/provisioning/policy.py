"""How launching behaves: times and modes, handed in once."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

import msgspec

from wainwright.cloud.port import REQUEST_LIFETIME

SKEW_MS: Final = 2000
"""A request is taken to be able to arrive so much longer than the cloud allows: clocks differ."""


class LaunchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """binding: `direct` binds pods to their new nodes, `scheduler` leaves them to kube-scheduler.

    deadline: how long a claim may go without an instance; ready_deadline: without a Ready node, from its launch.
    unavailable: how long an offering without capacity is not asked for again. nomination: how long room on a ready node
    is kept for pods that kube-scheduler is to bind. settle: how long our taint stays on after we bound the last pod:
    kube-scheduler hears of nodes and of pods on different watches, and would fill room whose pods it has not heard of
    yet (the kubelet refuses what is too much then: OutOfcpu). refused: how long a NodePool gets no claims after the
    cloud refused one for good: without it, its pods would be planned for it and refused again and again. retry: wait
    after an error that somebody else must heal. poll: wait between looks at something that goes on by itself (an
    instance that ends, pods that leave). longest_wait: even if the cloud asks to be left alone for longer, so that a
    claim nobody wants any more is noticed.
    """

    binding: Literal["direct", "scheduler"] = "direct"
    deadline: timedelta = timedelta(minutes=5)
    ready_deadline: timedelta = timedelta(minutes=15)
    unavailable: timedelta = timedelta(minutes=3)
    settle: timedelta = timedelta(seconds=1)
    refused: timedelta = timedelta(minutes=1)
    nomination: timedelta = timedelta(seconds=20)
    request_lifetime: timedelta = REQUEST_LIFETIME
    retry: timedelta = timedelta(seconds=2)
    poll: timedelta = timedelta(seconds=1)
    longest_wait: timedelta = timedelta(seconds=30)

    @property
    def request_ms(self) -> int:
        """How long a request may still arrive after it was allowed."""
        return milliseconds(self.request_lifetime) + SKEW_MS

    @property
    def keep_unready_ms(self) -> int:
        """How long room is kept on a node that is not ready yet."""
        return milliseconds(self.ready_deadline + self.nomination)


def milliseconds(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)
