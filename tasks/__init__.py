"""Thin Celery tasks: parse, read a snapshot, decide, apply, report. An `if` about the domain belongs elsewhere."""
