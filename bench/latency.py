"""Latency: what the system adds between a pod's creation and its binding, as a watching client sees it.

A pod's time is cut at two instants: marked unschedulable (by kube-scheduler), and the end of its window by the rule:
one idle second after the last pod of its batch was marked. From then on everything is lost to the system but the
cloud's launch delay. The phases (…) are by the records, of each batch or claim.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from bench.figures import Figure, Run, spread
from bench.parts import SHAPES, create_pods, pod, running_stack, wait_bound
from wainwright.batching.store import Store
from workers.demo.observer import Observer, Seen
from workers.stack import Stack


class Round(msgspec.Struct):
    """Seconds of each pod of a round. lost: to the system. by_phase: of each batch or claim, where that went."""

    whole: list[float]
    marking: list[float]
    window: list[float]
    lost: list[float]
    by_phase: dict[str, list[float]]


def measure(run: Run) -> Iterator[Figure]:
    rounds = {1: 3, 100: 2} if run.quick else {1: 20, 100: 10, 1000: 5}
    with running_stack(run, launch_workers=2) as stack:
        observer = Observer(stack.kube, "bench=wainwright")
        try:
            _round(stack, observer, "warm-up", 5)
            for pods, times in rounds.items():
                taken = []
                for number in range(times):
                    run.report(f"{pods} pods, round {number + 1} of {times}")
                    taken.append(_round(stack, observer, f"r{pods}-{number}", pods))
                yield from _figures(pods, taken)
        finally:
            observer.stop()


def _figures(pods: int, rounds: Sequence[Round]) -> Iterator[Figure]:
    def all_of(field: str) -> list[float]:
        return [seconds for one in rounds for seconds in getattr(one, field)]

    label = "1 pod" if pods == 1 else f"{pods:,} pods"
    yield Figure(name=f"{label}: created → bound", values=spread(all_of("whole")), unit="s")
    yield Figure(name=f"{label}: created → marked", values=spread(all_of("marking")), unit="s")
    yield Figure(name=f"{label}: marked → window's end", values=spread(all_of("window")), unit="s")
    target = "p50 < 0.5" if pods == 100 else ""
    yield Figure(name=f"{label}: lost to the system", values=spread(all_of("lost")), unit="s", target=target)
    for phase in rounds[0].by_phase:
        seconds = [value for one in rounds for value in one.by_phase[phase]]
        yield Figure(name=f"{label}: … {phase}", values=spread(seconds), unit="s")


def _round(stack: Stack, observer: Observer, name: str, count: int) -> Round:
    """Creates `count` pods that need nodes of their own, and waits until they are bound."""
    offset = time.monotonic() - stack.store.now_ms() / 1000
    manifests = [pod(f"{name}-{n}", SHAPES[n % 5], round_=name, padding=1000) for n in range(count)]
    created = create_pods(stack.kube, manifests)
    seen = dict(zip(created, wait_bound(observer, list(created), 60 + count / 10), strict=True))
    settings = stack.settings
    idle, longest = settings.batching.idle_seconds, settings.batching.max_seconds
    launch = settings.stack.launch_delay_seconds
    done = Round([], [], [], [], {})
    batches = _batches(stack.store, set(created))
    for uids in batches.values():
        members = {uid: seen[uid] for uid in uids if uid in seen}
        marked = [_marked(one) for one in members.values()]
        window_end = min(max(marked) + idle, min(marked) + longest)
        for uid, one in members.items():
            assert one.bound_at is not None
            assert one.created_at is not None
            start = min(created[uid], one.created_at)
            done.whole.append(one.bound_at - start)
            done.marking.append(_marked(one) - start)
            done.window.append(max(0.0, window_end - _marked(one)))
            done.lost.append(one.bound_at - max(window_end, _marked(one)) - launch)
    done.by_phase = _phases(stack, batches, seen, offset)
    return done


def _marked(seen: Seen) -> float:
    """When it was seen marked; a pod bound before that was seen counts as marked then."""
    found = seen.pending_at if seen.pending_at is not None else seen.bound_at
    assert found is not None
    return found


def _batches(store: Store, uids: set[str]) -> dict[str, list[str]]:
    """The batches that held these pods: UIDs by batch, each in its last one."""
    keys = store.keys
    names: list[str] = []
    for state in ("planned", "done"):
        names += store.read(lambda redis, state=state: redis.zrange(keys.batches(state), 0, -1))  # type: ignore[misc]
    last: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _fields(store, name).get("closed_ms", "0")):
        items = msgspec.json.decode(_fields(store, name).get("items", "[]"), type=list[tuple[str, str, str]])
        last.update((uid, name) for uid, _, _ in items if uid in uids)
    found: dict[str, list[str]] = {}
    for uid, name in last.items():
        found.setdefault(name, []).append(uid)
    return found


def _fields(store: Store, batch: str) -> dict[str, str]:
    fields: dict[str, str] = store.read(lambda redis: redis.hgetall(store.keys.batch(batch)))
    return fields


def _phases(
    stack: Stack, batches: dict[str, list[str]], seen: dict[str, Seen], offset: float
) -> dict[str, list[float]]:
    """Where the time went, by the records. offset: monotonic seconds of this process less seconds of Redis' clock."""
    store, idle = stack.store, stack.settings.batching.idle_seconds
    launch = stack.settings.stack.launch_delay_seconds
    names = ("last pod marked → queued", "due → closed", "closed → planned", "planned → launched", "launched → bound")
    phases: dict[str, list[float]] = {name: [] for name in names}
    plans = set()
    for batch, uids in batches.items():
        fields = _fields(store, batch)
        due, closed, planned = (int(fields[name]) / 1000 for name in ("due_ms", "closed_ms", "planned_ms"))
        marked = max(_marked(seen[uid]) for uid in uids)
        phases[names[0]].append(due - idle + offset - marked)
        phases[names[1]].append(closed - due)
        phases[names[2]].append(planned - closed)
        plans.add(fields["plan"])
    for claim in store.read(lambda redis: redis.zrange(store.keys.claims, 0, -1)):
        record = store.read(lambda redis, claim=claim: redis.hgetall(store.keys.claim(claim)))  # type: ignore[misc]
        if record.get("plan") in plans and "bound_ms" in record:
            created, launched, bound = (int(record[name]) / 1000 for name in ("created_ms", "launched_ms", "bound_ms"))
            phases[names[3]].append(launched - created - launch)
            phases[names[4]].append(bound - launched)
    return phases
