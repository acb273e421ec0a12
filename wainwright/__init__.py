"""The domain: scheduling, batching, autoscaling and provisioning, and one adapter for each outside system.

What is here knows neither Celery nor how processes are started (`tasks`, `workers`) nor where settings come from
(`config`): it takes values, ports and `now`.
"""
