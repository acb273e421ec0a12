"""Typed settings, Celery configuration and beat schedule; beside them the YAML for a cluster (crd, rbac, deploy).

Read once at start into frozen models. Nothing else touches the environment.
"""
