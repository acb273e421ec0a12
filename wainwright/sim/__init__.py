"""The embedded cluster: a Kubernetes API server, and controllers that speak to it (or to a real one) over HTTP only.

A means for demo, tests and what-if runs. It shares no code with the solver, so that it can contradict it.
"""
