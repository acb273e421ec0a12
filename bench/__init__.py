"""Benchmarks: what the system costs and how late it is. Never tests: nothing here fails for being slow.

`python -m bench` runs all, `python -m bench NAME` one. A benchmark is a module with a docstring whose first line is its
title, and `measure(run) -> Iterator[Figure]`.
"""
