"""Processes and their wiring: Celery app, watcher, embedded stack, command line."""
