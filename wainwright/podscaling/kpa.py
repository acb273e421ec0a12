"""The surface of Knative's first KPA (v0.3), by its names in Python's spelling; each is documented where it lives."""

from __future__ import annotations

from wainwright.autoscaling.config import DynamicConfig
from wainwright.podscaling.controller import new_controller
from wainwright.podscaling.metrics import KPAMetrics, Metric, MetricNotFound, ScaleUnknown, metric_key
from wainwright.podscaling.reconciler import Reconciler
from wainwright.podscaling.scaler import KPAScaler

__all__ = [
    "DynamicConfig",
    "KPAMetrics",
    "KPAScaler",
    "Metric",
    "MetricNotFound",
    "Reconciler",
    "ScaleUnknown",
    "metric_key",
    "new_controller",
]
