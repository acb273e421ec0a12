"""Taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wainwright.api.names import (
    NODE_NOT_READY_KEY,
    NODE_UNREACHABLE_KEY,
    NOT_READY_TAINT,
    UNREGISTERED_TAINT,
)
from wainwright.api.nodes import Taint
from wainwright.api.pods import Toleration

HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
SOFT_EFFECT: Final = "PreferNoSchedule"

STARTUP_KEYS: Final = frozenset(
    {
        NODE_NOT_READY_KEY,
        NODE_UNREACHABLE_KEY,
        "node.cloudprovider.kubernetes.io/uninitialized",
        UNREGISTERED_TAINT.key,
        NOT_READY_TAINT.key,
    }
)
"""Taints of a node that is still starting: they go by themselves and keep no pod away for good."""


def tolerates_taint(toleration: Toleration, taint: Taint) -> bool:
    """Does this toleration match the taint?

    - its effect is empty or equal
    - its key is empty (with Exists: every taint) or equal
    - its operator is Exists, or its value is equal
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint], *, soft: bool = False) -> tuple[Taint, ...]:
    """The taints that keep a pod with these tolerations away. soft: count PreferNoSchedule too."""
    tolerations = tuple(tolerations)
    return tuple(
        taint
        for taint in taints
        if (taint.effect in HARD_EFFECTS or (soft and taint.effect == SOFT_EFFECT))
        and not any(tolerates_taint(toleration, taint) for toleration in tolerations)
    )


def tolerates(pod_tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """May a pod with these tolerations be scheduled beside these taints? PreferNoSchedule never forbids."""
    return not untolerated(pod_tolerations, taints)


def taint_text(taint: Taint) -> str:
    """`key=value:Effect`, as kubectl prints it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
