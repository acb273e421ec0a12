"""Puts the parts that carry out plans together, from the adapters of one process."""

from __future__ import annotations

import msgspec

from wainwright.batching.claims import ClaimRecords, LeaseKeeper
from wainwright.batching.store import Store
from wainwright.clock import Clock
from wainwright.cloud.port import CloudProvider
from wainwright.provisioning.binding import Binder, Workers
from wainwright.provisioning.buying import Buyer
from wainwright.provisioning.cluster import Events, KubeApi
from wainwright.provisioning.failing import FailingClaims
from wainwright.provisioning.garbage import GarbageCollector
from wainwright.provisioning.joining import Joiner
from wainwright.provisioning.launching import Keeper, Launcher
from wainwright.provisioning.nominations import Nominator
from wainwright.provisioning.policy import LaunchPolicy
from wainwright.provisioning.ports import Hints
from wainwright.provisioning.termination import Terminator
from wainwright.provisioning.upkeep import Upkeep


class Provisioning(msgspec.Struct, frozen=True, kw_only=True):
    """What carries out plans: launch a claim, nominate a batch, upkeep (lifecycle, sweep), garbage."""

    records: ClaimRecords
    launcher: Launcher
    nominator: Nominator
    upkeep: Upkeep
    garbage: GarbageCollector


def assemble(
    store: Store,
    kube: KubeApi,
    cloud: CloudProvider,
    events: Events,
    hints: Hints,
    workers: Workers,
    clock: Clock,
    *,
    policy: LaunchPolicy,
    cluster: str,
    keeper: Keeper | None = None,
    records: ClaimRecords | None = None,
) -> Provisioning:
    """cluster: this cluster's name in the cloud. workers: run calls beside each other (a ThreadPoolExecutor).

    keeper: renews leases (one per process); made here when not given.
    """
    records = records or ClaimRecords(store)
    keeper = keeper or LeaseKeeper(records, clock)
    terminator = Terminator(kube, cloud, workers, events, clock, policy)
    nominator = Nominator(records, events, policy)
    binder = Binder(kube, workers, clock)
    return Provisioning(
        records=records,
        launcher=Launcher(
            records,
            Buyer(records, kube, cloud, events, clock, policy, cluster),
            Joiner(records, store, kube, cloud, binder, events, clock, policy),
            FailingClaims(records, kube, cloud, terminator, policy),
            events,
            keeper,
            policy,
        ),
        nominator=nominator,
        upkeep=Upkeep(store, records, kube, nominator, hints, events, workers, clock, policy),
        garbage=GarbageCollector(kube, cloud, terminator, events, clock, cluster),
    )
