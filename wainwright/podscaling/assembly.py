"""Wires pod autoscaling together, once per process; what the tasks call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from wainwright.api.podautoscalers import PODS
from wainwright.api.pods import Pod
from wainwright.autoscaling.config import AutoscalerConfig
from wainwright.autoscaling.instants import from_unix_ms
from wainwright.batching.store import Store, translated
from wainwright.clock import Clock
from wainwright.errors import WainwrightError
from wainwright.kube.client import KubeClient
from wainwright.kube.events import EventRecorder
from wainwright.podscaling.autoscalers import Autoscaler
from wainwright.podscaling.collector import Collector
from wainwright.podscaling.deciding import Pass, ShardDecider
from wainwright.podscaling.deletion_cost import DeletionCosts
from wainwright.podscaling.dynamic_config import ConfigFollower, decode_config
from wainwright.podscaling.folding import source_of
from wainwright.podscaling.inbox import record, take_pushes
from wainwright.podscaling.metrics import KPAMetrics
from wainwright.podscaling.pod_index import PodIndex
from wainwright.podscaling.reconciler import Reconciler
from wainwright.podscaling.records import decode_record
from wainwright.podscaling.samples import NAME_SEPARATOR
from wainwright.podscaling.scaler import KPAScaler
from wainwright.podscaling.sources.pods import PodAddress
from wainwright.podscaling.targets import OtherTargets, ScaleClient

logger = logging.getLogger(__name__)

FORGET_SECONDS: Final = 60.0


class ScalingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """shards: see `sharding`; all processes must agree. namespace: of the ConfigMap. collect_seconds: how long a
    collection waits for answers.
    """

    shards: int
    namespace: str
    collect_seconds: float = 0.8


class PodScaling:
    """What the tasks of one process share. Thread-safe. Methods raise ViewNotReady, StoreUnavailable.

    writers: writes Scales and statuses, beside the ticks. askers: reads targets that the view does not show and
    marks pods; not the same one, since writers wait for it.
    """

    def __init__(
        self,
        store: Store,
        kube: KubeClient,
        recorder: EventRecorder,
        clock: Clock,
        collector: Collector,
        options: ScalingOptions,
        *,
        writers: Executor,
        askers: Executor,
    ) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._collector = collector
        self._pods = PodIndex(store)
        scales = ScaleClient(kube)
        self.decider = ShardDecider(store, options.shards, OtherTargets(scales, askers, clock).facts)
        self.metrics = KPAMetrics(store)
        costs = DeletionCosts(kube, self.pod_loads, askers)
        self.scaler = KPAScaler(scales, store, recorder, costs, self._config, clock)
        self.reconciler = Reconciler(kube, self.decider, self.scaler, self.metrics, recorder, writers)
        self.config = ConfigFollower(store, kube, recorder, options.namespace)
        self._forgotten = float("-inf")

    def collect(self, shard: int, wake: Callable[[Sequence[str]], None]) -> str:
        """Reads the sources of a shard. wake: is told autoscalers at zero that have load."""
        roster, _ = self.decider.roster()
        chosen = [
            one for one in roster.shard(shard).working if any(source.type != "push" for source in one.sources.values())
        ]
        if not chosen:
            return ""
        asks_pods = [one for one in chosen if any(source.type == PODS for source in one.sources.values())]
        pods = self._pods.ready(asks_pods) if asks_pods else {}
        now = from_unix_ms(self._store.now_ms())
        samples = self._collector.collect(chosen, pods, now, seconds=self._options.collect_seconds)
        awake = record(self._store, samples, self._options.shards)
        if awake:
            wake(awake)
        failed = sum(sample.value is None for sample in samples)
        return f"{len(samples) - failed} sources read" + (f", {failed} could not be" if failed else "")

    def pushes(self, wake: Callable[[Sequence[str]], None]) -> str:
        """Takes over what applications pushed."""
        roster, _ = self.decider.roster()
        result = take_pushes(self._store, roster, self._options.shards)
        if result.awake:
            wake(result.awake)
        refused = "".join(f"; refused: {reason} ({example})" for reason, example in result.refused.items())
        return f"{result.taken} pushed samples{refused}" if result.taken or refused else ""

    def decide(self, shard: int) -> str:
        """Decides for a shard, and begins the writes that follow from it."""
        outcome = self._carry_out(self.decider.decide(shard))
        if shard == 0 and self._clock.monotonic_seconds() - self._forgotten > FORGET_SECONDS:
            self._forgotten = self._clock.monotonic_seconds()
            gone = self.decider.forget_gone()
            outcome += f", {gone} gone ones forgotten" if gone else ""
        return outcome

    def poke(self, keys: Sequence[str]) -> str:
        """Decides for some autoscalers at once."""
        return self._carry_out(self.decider.decide_keys(keys))

    def reconcile(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.reconciler.reconcile(key)

    def follow_config(self) -> str:
        return self.config.follow()

    def pod_loads(self, one: Autoscaler, pods: list[Pod]) -> Mapping[str, float]:
        """What each pod has to do, as far as the autoscaler's sources tell. Never raises."""
        addresses = [
            PodAddress(pod.metadata.name, pod.status.pod_ip, pod.metadata.creation_timestamp)
            for pod in pods
            if pod.is_ready and pod.status.pod_ip
        ]
        loads = self._collector.pod_loads(one, addresses)
        if any(source.type == "push" for source in one.sources.values()):
            for name, value in self._pushed_loads(one).items():
                loads[name] = loads.get(name, 0.0) + value
        return loads

    def _pushed_loads(self, one: Autoscaler) -> dict[str, float]:
        """Newest load by reporter: who reports under its pod's name is known as that pod."""
        key = self._store.keys.kpa_state(one.key)
        try:
            with translated():
                text: Any = self._store.raw.get(key)
        except WainwrightError:
            return {}
        known = decode_record(text)
        return {
            name.partition(NAME_SEPARATOR)[2]: source.windows.stable.values[-1]
            for name, source in (known.sources if known is not None else {}).items()
            if name != source_of(name) and source.windows is not None and source.windows.stable.values
        }

    def _carry_out(self, passed: Pass) -> str:
        if not passed.decided and not passed.aside:
            return ""
        written = self.reconciler.carry_out(passed)
        parts = [f"{len(passed.decided)} decided"]
        if passed.refused:
            parts.append(f"{passed.refused} decided by others meanwhile")
        if passed.aside:
            parts.append(f"{len(passed.aside)} set aside")
        if written:
            parts.append(f"{written} to be written")
        return ", ".join(parts)

    def _config(self) -> AutoscalerConfig:
        with translated():
            text: Any = self._store.raw.get(self._store.keys.kpa_config)
        return decode_config(text)
