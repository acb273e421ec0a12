"""The two windows over one autoscaler's load: stable (long, calm) and panic (short, follows bursts)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from wainwright.autoscaling.annotations import Metric
from wainwright.autoscaling.buckets import Aggregation, Buckets
from wainwright.autoscaling.instants import unix_second
from wainwright.autoscaling.spec import DeciderSpec


class Averages(msgspec.Struct, frozen=True):
    """Load over each window, in the metric's unit, summed over pods."""

    stable: float
    panic: float


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """metric: what the values count; load of another metric never mixes in (`fitted` starts anew)."""

    metric: Metric
    stable: Buckets
    panic: Buckets

    @classmethod
    def new(cls, spec: DeciderSpec) -> Windows:
        """Empty windows of the spec's lengths."""
        return cls(
            metric=spec.metric,
            stable=Buckets(length=spec.stable_window_s, aggregation=spec.aggregation),
            panic=Buckets(length=spec.panic_window_s, aggregation=spec.aggregation),
        )

    def record(self, measured: datetime, value: float) -> Windows:
        """With a sample added to the second it was measured in (see Buckets.record, also for late ones)."""
        second = unix_second(measured)
        return msgspec.structs.replace(
            self, stable=self.stable.record(second, value), panic=self.panic.record(second, value)
        )

    def put(self, measured: datetime, value: float) -> Windows:
        """Like record, but value replaces what that second held."""
        second = unix_second(measured)
        return msgspec.structs.replace(self, stable=self.stable.put(second, value), panic=self.panic.put(second, value))

    def fitted(self, spec: DeciderSpec) -> Windows:
        """With the spec's lengths, keeping the newest seconds that fit. Another metric means empty windows.

        As in Knative, the way of averaging is chosen when windows are made and stays: `with_aggregation` changes it.
        """
        if self.metric is not spec.metric:
            return Windows.new(spec)
        if self.stable.length == spec.stable_window_s and self.panic.length == spec.panic_window_s:
            return self
        return msgspec.structs.replace(
            self, stable=self.stable.resize(spec.stable_window_s), panic=self.panic.resize(spec.panic_window_s)
        )

    def with_aggregation(self, aggregation: Aggregation) -> Windows:
        """Averaged in another way from now on; the values are the same under both."""
        return msgspec.structs.replace(
            self,
            stable=msgspec.structs.replace(self.stable, aggregation=aggregation),
            panic=msgspec.structs.replace(self.panic, aggregation=aggregation),
        )

    def averages(self, now: datetime) -> Averages | None:
        """Load over both windows; None: no data for longer than the stable window."""
        second = unix_second(now)
        if self.stable.is_empty(second):
            return None
        return Averages(self.stable.average(second), self.panic.average(second))
