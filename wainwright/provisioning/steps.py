"""What the steps of a claim's life share: how they end, what they hand on, how they read the view."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta
from wainwright.api.nodeclaims import NodeClaim
from wainwright.api.pods import Pod
from wainwright.batching.claims import ClaimPod, ClaimRecord, ClaimRecords, Role, View
from wainwright.cloud.port import Instance
from wainwright.errors import PermanentError, TemporaryError
from wainwright.kube.view import check_view


class Outcome(StrEnum):
    """How one visit to a claim ended. waiting: it is due again later; stopped: it is somebody else's; lost: the lease,
    or Redis, went away; skipped: it was not to be had.
    """

    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"
    STOPPED = "stopped"
    LOST = "lost"
    SKIPPED = "skipped"


class NotYet(TemporaryError):
    """Nothing is wrong; look at the claim again in wait_ms."""

    def __init__(self, message: str, wait_ms: int) -> None:
        super().__init__(message, retry_after=wait_ms / 1000)


class NotOurs(PermanentError):
    """The claim is somebody else's, or will be found by somebody else: stop, change nothing."""


class ClaimFails(PermanentError):
    """The claim cannot go on. reason: one CamelCase word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeClaim whose instance is there."""

    node_claim: NodeClaim
    instance: Instance


class Marked(Resource):
    """Any object, as far as its metadata goes."""

    metadata: ObjectMeta


def surroundings(records: ClaimRecords, name: str) -> View:
    """What the view shows around a claim. Raises ViewNotReady: nobody acts on an incomplete view (rule 5)."""
    view = records.look(name)
    check_view(view.meta, view.now_ms)
    return view


def shown_pod(pod: ClaimPod, text: str) -> Pod | None:
    """The claim's pod as the view shows it; None when it does not (another one may have its name by now)."""
    if not text:
        return None
    seen = msgspec.json.decode(text, type=Pod)
    return seen if seen.uid == pod.uid else None


def own_pods(view: View) -> list[tuple[ClaimPod, Pod | None]]:
    """The pods that the claim was made for, each as the view shows it."""
    return [(pod, shown_pod(pod, text)) for pod, text in view.pods if pod.role is not Role.REST]


def is_wanted(view: View, record: ClaimRecord) -> bool:
    """Does one of the claim's own pods still want it: unbound, or bound to the claim's own node (design §4, rule 5)?"""
    places = ("", record.node or record.name)
    return any(
        seen is not None and not seen.is_terminal and not seen.is_terminating and seen.spec.node_name in places
        for _, seen in own_pods(view)
    )


def uid_precondition(uid: str, resource_version: str = "", **meta: Any) -> dict[str, Any]:
    """The metadata of a patch that must meet exactly this object (and version)."""
    version = {"resourceVersion": resource_version} if resource_version else {}
    return {"uid": uid, **version, **meta}


def launched_fields(instance: Instance) -> dict[str, str]:
    """Fields of the record of a claim whose instance is there."""
    return {
        "provider_id": instance.provider_id,
        "instance_type": instance.instance_type,
        "zone": instance.zone,
        "capacity_type": instance.capacity_type,
        "price": f"{instance.price:.6g}",
        "node": instance.node_name,
        "capacity": msgspec.json.encode(instance.capacity).decode(),
        "allocatable": msgspec.json.encode(instance.allocatable).decode(),
    }


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def names_in(keys: Sequence[str], most: int = 5) -> str:
    """The first few, for a message."""
    return ", ".join(keys[:most]) + (", …" if len(keys) > most else "")
