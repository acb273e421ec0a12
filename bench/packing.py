"""The solver by itself: upstream's benchmark mix and preferences, golden scenarios, a production trace.

One thread, no server, seconds of CPU (on a machine with nothing else to do: of the clock), the best of the runs.
Upstream: Karpenter v1.13's scheduler on two cores, as recorded in the golden data. `in place` leaves out the time
spent on making the plan cheaper and on the bound.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.figures import Figure, Run
from wainwright.api.nodepools import NodePool
from wainwright.api.pods import Pod
from wainwright.scheduling.checker import check
from wainwright.scheduling.plan import Plan, SolveBudget
from wainwright.scheduling.scenario import EPOCH, Scenario, catalog_named_in, read_catalog, read_scenario
from wainwright.scheduling.snapshot import Snapshot
from wainwright.scheduling.solver import solve

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "packing"
TRACE = Path(os.environ.get("WAINWRIGHT_BENCH_TRACE", "../shared/data/openb_pods.csv"))
UPSTREAM_SECONDS = {100: 0.245, 1_000: 3.36, 10_000: 36.4, 20_000: 87.9}
"""Best of its runs, two cores (packing baseline, section 1)."""
UPSTREAM_PREFERENCES = 98.9
LABELS = "abcdefg"
CPU = ("100m", "250m", "500m", "1000m", "1500m")
MEMORY = ("100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi")
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def pod(kind: str, number: int, labels: dict[str, str], spec: dict[str, object], cpu: str, memory: str) -> object:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    name = f"{kind}-{number}"
    meta = {"name": name, "namespace": "default", "uid": f"{kind}-{number:06d}", "labels": labels}
    return {"metadata": {**meta, "creationTimestamp": EPOCH.isoformat()}, "spec": {**spec, "containers": [container]}}


def benchmark_mix(count: int) -> list[Pod]:
    """Upstream's mix of five kinds of pods; the definition is in the packing baseline, section 2."""
    draw = random.Random(42)

    def term(labels: dict[str, str], key: str) -> list[object]:
        return [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]

    pods: list[object] = []
    share = count // 5
    kinds = {"generic": share, "zone": share, "host": share, "affinity": share, "anti": share}
    for kind, number in (*kinds.items(), ("more", count - 5 * share)):
        for index in range(number):
            spec: dict[str, object] = {}
            if kind in ("generic", "more", "zone", "host"):
                labels = {"my-label": draw.choice(LABELS)}
            elif kind == "affinity":
                labels = {"my-affininity": draw.choice(LABELS)}
                spec = {
                    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(labels, ZONE)}}
                }
            else:
                labels = {"app": "nginx"}
                spec = {
                    "affinity": {
                        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(labels, HOST)}
                    }
                }
            if kind in ("zone", "host"):
                constraint = {
                    "maxSkew": 1,
                    "topologyKey": ZONE if kind == "zone" else HOST,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"my-label": draw.choice(LABELS)}},
                }
                spec = {"topologySpreadConstraints": [constraint]}
            pods.append(pod(kind, index, labels, spec, draw.choice(CPU), draw.choice(MEMORY)))
    return msgspec.convert(pods, list[Pod])


def preference_pods(count: int) -> list[Pod]:
    """Equal pods that prefer a zone, a zone of their own (impossible) and a host of their own."""

    def apart(key: str, weight: int) -> dict[str, object]:
        return {
            "weight": weight,
            "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "nginx"}}},
        }

    wanted = {"key": ZONE, "operator": "In", "values": ["test-zone-1"]}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [wanted]}}
            ]
        },
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart(ZONE, 10), apart(HOST, 1)]},
    }
    return msgspec.convert(
        [pod("pref", index, {"app": "nginx"}, {"affinity": affinity}, "500m", "512Mi") for index in range(count)],
        list[Pod],
    )


def synthetic() -> Snapshot:
    """400 synthetic types, one NodePool with limits nobody reaches."""
    catalog = read_catalog((GOLDEN / "catalogs" / "fake-400.json").read_bytes())
    limits = {"cpu": "10000000", "memory": "10000000Gi"}
    pool = msgspec.convert({"metadata": {"name": "default"}, "spec": {"limits": limits}}, NodePool)
    return Snapshot(taken_at=EPOCH, node_pools=(pool,), catalogs={"default": catalog})


def golden(name: str) -> tuple[Scenario, dict[str, object]]:
    """A large scenario and the summary of upstream's answer."""
    text = gzip.decompress((GOLDEN / "large" / "scenarios" / f"{name}.json.gz").read_bytes())
    catalog = read_catalog((GOLDEN / "large" / "scenarios" / catalog_named_in(text)).read_bytes())
    answer = json.loads(gzip.decompress((GOLDEN / "large" / "outputs" / f"{name}.json.gz").read_bytes()))
    return read_scenario(text, catalog), answer["summary"]


def trace() -> list[Pod]:
    """The pods of the trace, GPU shares counted as one."""
    pods = []
    with TRACE.open() as lines:
        for index, row in enumerate(csv.DictReader(lines)):
            one = msgspec.to_builtins(
                msgspec.convert(
                    pod("trace", index, {"qos": row["qos"]}, {}, f"{row['cpu_milli']}m", f"{row['memory_mib']}Mi"), Pod
                )
            )
            if int(row["num_gpu"]):
                one["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = row["num_gpu"]
            pods.append(one)
    return msgspec.convert(pods, list[Pod])


def timed(snapshot: Snapshot, pods: list[Pod], budget: SolveBudget, runs: int) -> tuple[float, Plan]:
    """Best of the runs, in seconds, and the plan."""
    best, plan = float("inf"), Plan()
    for _ in range(runs):
        began = time.process_time()
        plan = solve(snapshot, pods, EPOCH, budget)
        best = min(best, time.process_time() - began)
    return best, plan


def measure(run: Run) -> Iterator[Figure]:
    """Speed first, then price against the bound."""
    quick = SolveBudget(improvement_units=0, bound_rounds=0)
    runs = 1 if run.quick else 3
    snapshot = synthetic()
    for count in (100, 1_000, 10_000) if run.quick else (100, 1_000, 2_000, 10_000, 20_000, 100_000):
        run.report(f"benchmark mix, {count} pods")
        pods = benchmark_mix(count)
        repeats = runs if count <= 20_000 else 1
        place, _ = timed(snapshot, pods, quick, repeats)
        whole, plan = timed(snapshot, pods, SolveBudget(), repeats)
        yield Figure(
            name=f"benchmark mix, {count:,} pods x 400 types",
            table="Speed",
            unit="s",
            target={10_000: "0.7 s in place", 20_000: "1.5 s in place", 2_000: "0.25 s in place"}.get(count, ""),
            values={
                "in place": place,
                "whole": whole,
                "upstream": UPSTREAM_SECONDS.get(count, float("nan")),
                "price": plan.price,
                "bound": plan.lower_bound,
            },
        )
    pods = preference_pods(1_000 if run.quick else 4_000)
    place, plan = timed(snapshot, pods, quick, runs)
    yield Figure(
        name=f"preferences, {len(pods):,} pods",
        table="Speed",
        unit="s",
        target="1 s in place",
        values={
            "in place": place,
            "whole": timed(snapshot, pods, SolveBudget(), 1)[0],
            "upstream": UPSTREAM_PREFERENCES if len(pods) == 4_000 else float("nan"),
            "price": plan.price,
            "bound": plan.lower_bound,
        },
    )
    if TRACE.exists():
        pods = trace()
        scenario, _ = golden("gpu-cluster-a")
        both = msgspec.structs.replace(
            scenario.snapshot,
            node_pools=tuple(
                msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits={}))
                for pool in msgspec.convert([{"metadata": {"name": "default"}}], tuple[NodePool, ...])
            ),
            nodes=(),
        )
        place, _ = timed(both, pods, quick, 1)
        whole, plan = timed(both, pods, SolveBudget(), 1)
        yield Figure(
            name=f"production trace, {len(pods):,} pods x 161 EC2 types ({len(plan.unplaced)} fit on none)",
            table="Speed",
            unit="s",
            values={
                "in place": place,
                "whole": whole,
                "upstream": float("nan"),
                "price": plan.price,
                "bound": plan.lower_bound,
            },
        )
    for name in ("web-tier-a", "batch-burst-a", "lognormal-a", "deployments-a", "gpu-cluster-a", "benchmark-mix-a"):
        run.report(name)
        scenario, summary = golden(name)
        live, plan = timed(scenario.snapshot, list(scenario.pods), SolveBudget(), runs)
        patient = SolveBudget(improvement_units=20_000_000, bound_rounds=100)
        took, better = (live, plan) if run.quick else timed(scenario.snapshot, list(scenario.pods), patient, 1)
        broken = check(scenario.snapshot, scenario.pods, plan) + check(scenario.snapshot, scenario.pods, better)
        bound = max(better.lower_bound, float(str(summary["best_lower_bound_price"])))
        yield Figure(
            name=f"{name}{'' if not broken else f' BREAKS {len(broken)} RULES'}",
            table="Price",
            unit="$/h, s",
            values={
                "price": plan.price,
                "seconds": live,
                "price, patient": better.price,
                "seconds, patient": took,
                "bound": bound,
                "over bound": plan.price / bound,
                "upstream": float(str(summary["total_price"])),
                "upstream s": float(str(summary["solve_seconds_min"])),
            },
        )
    yield Figure(
        name="memory of this process at its highest",
        table="Memory",
        unit="MB",
        target="500 MB at 20,000 pods",
        values={"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024},
    )
