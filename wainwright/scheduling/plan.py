"""The outcome of one solve."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from wainwright.api.base import PodUid
from wainwright.api.nodepools import NodeSelectorRequirement
from wainwright.api.nodes import Taint
from wainwright.scheduling.snapshot import Option


class ReasonCode(StrEnum):
    """Why a pod could not go somewhere: which rule refused it."""

    REQUIREMENTS = "requirements"
    RESOURCES = "resources"
    OFFERING = "offering"
    TAINTS = "taints"
    HOST_PORTS = "host-ports"
    VOLUMES = "volumes"
    TOPOLOGY_SPREAD = "topology-spread"
    POD_AFFINITY = "pod-affinity"
    POD_ANTI_AFFINITY = "pod-anti-affinity"
    LIMITS = "limits"
    MIN_VALUES = "min-values"
    RESERVED = "reserved"
    NO_INSTANCE_TYPES = "no-instance-types"
    NO_NODE_POOLS = "no-node-pools"
    INVALID = "invalid"
    BUDGET = "budget"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod could not go to `where`: `nodepool/NAME`, `nodes` (existing ones, grouped; count says how many),
    or `pod` when the pod itself cannot be understood. message: a sentence for the user, with values and a hint.
    """

    where: str
    code: ReasonCode
    message: str
    count: int = 1


class PlannedClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node to be made. options: every way left to launch it, cheapest first; each of them holds `pods`.

    requests: pods and daemons together. capacity: the largest per resource over the types kept, what limits are
    charged. allocatable: the least per resource over the types kept.
    """

    node_pool: str
    pods: tuple[PodUid, ...]
    options: tuple[Option, ...]
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requests: dict[str, int] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}

    @property
    def price(self) -> float:
        """US dollars an hour of the option launched first."""
        return self.options[0].price


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that goes to a node that exists, or is in flight (`claim` is set then)."""

    pod: PodUid
    node: str
    claim: str = ""


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that goes nowhere, with why: one reason per NodePool and per group of existing nodes at least."""

    pod: PodUid
    reasons: tuple[Reason, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every pod of the input is in exactly one of claims, placements, unplaced.

    relaxed: per pod, the preferences that were dropped for it. price: US dollars an hour of the new claims;
    worst_price: with each claim at its dearest option; lower_bound: no plan that places these pods can cost less
    (0: not known). work: units of work spent (comparable between runs; no clock). complete: False when the budget
    ran out first.
    """

    claims: tuple[PlannedClaim, ...] = ()
    placements: tuple[Placement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    relaxed: dict[PodUid, tuple[str, ...]] = {}
    price: float = 0.0
    worst_price: float = 0.0
    lower_bound: float = 0.0
    work: int = 0
    complete: bool = True

    @property
    def gap(self) -> float:
        """How far the price is above the lower bound, as a share of it; 0 where no bound is known."""
        return self.price / self.lower_bound - 1 if self.lower_bound > 0 else 0.0


class SolveBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much a solve may do. work_units: an upper bound on candidate checks; stop: asked now and then, True ends it.

    A solve that runs out still answers for every pod: those not reached carry the reason `budget`.
    """

    work_units: int = 500_000_000
    bound_rounds: int = 24
    """Steps spent on the lower bound; 0 leaves it out."""
    improvement_units: int = 2_000_000
    """Of these, how many may go into making a complete plan cheaper."""
    stop: Callable[[], bool] | None = None
